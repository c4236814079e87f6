"""A mirror that runs while something is wrong: told, nothing wrong in the lake, mended.

One mirror goes through many troubles, as each start of Spark costs much.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from fix_mirror_process import MirrorProcess
from fix_pipeline import Pipeline
from fix_spark import skip_without_spark
from small_disk import full, mounted

deltalake = pytest.importorskip("deltalake", reason="the extra is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra is not installed")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SCHEMA = "shop"
SECRET = "s3cret-word"
BLACK = "canal.instance.filter.black.regex"


class Shop(MirrorProcess):
    """A mirror of a database of its own."""

    def sql(self, *statements: str) -> None:
        """Run statements in the schema."""
        self.source.execute(f"USE {SCHEMA}", *statements)

    def wait_for_told(self, table: str, phase: str, text: str) -> str:
        """Wait until a table is told of like that; returns the text as a whole."""

        def look() -> bool:
            found = self.told(table)
            return found[0] == phase and text in found[1]

        try:
            self.wait_for(look, f"{table} {phase}: {text}")
        finally:
            print(table, self.told(table))
        return self.told(table)[1]

    def check_log(self) -> None:
        """See that nobody was shown a traceback, or a secret."""
        assert self.process
        log = "".join(self.process.log)
        assert "Traceback" not in log, log[-20_000:]
        assert not re.search(r"^\s+at \w+(\.\w+)+\(", log, re.MULTILINE), log[-20_000:]
        assert SECRET not in log


@pytest.fixture
def shop(
    own_server: Callable[..., Any], tmp_path: Path
) -> Iterator[Callable[..., Shop]]:
    """Give `make(flavour)`: a mirror that was not started, its canal-server runs."""
    skip_without_spark()
    made: list[tuple[Shop, Pipeline]] = []

    def make(flavour: str = "mysql", **settings: str) -> Shop:
        server = own_server(flavour)
        server.execute(f"CREATE DATABASE {SCHEMA}")
        pipeline = Pipeline(server, SCHEMA, tmp_path / "conf", dict(settings), None)
        pipeline.start()
        pipeline.keep_port()
        shop = Shop(pipeline, tmp_path)
        made.append((shop, pipeline))
        return shop

    yield make
    for shop, pipeline in made:
        shop.close()
        pipeline.close()


def test_troubles_of_tables_and_of_the_disk(shop, tmp_path) -> None:
    """What is wrong with one table is beside it, and the others go on.

    Rights, the server's filter, somebody's table in the lake, and a disk that is full;
    each is gone on with by itself when it is mended, or as its text says.
    """
    mirror = shop(**{BLACK: rf"{SCHEMA}\.hidden"})
    mirror.sql(
        *(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a VARCHAR(100), b INT)"
            for name in ("t", "hidden", "part", "other")
        ),
        "INSERT INTO t VALUES (1, 'x', 1)",
        "INSERT INTO part VALUES (1, 'x', 1)",
        f"CREATE USER 'copier'@'%' IDENTIFIED BY '{SECRET}'",
        f"GRANT SELECT ON {SCHEMA}.t TO 'copier'@'%'",
        f"GRANT SELECT ON {SCHEMA}.hidden TO 'copier'@'%'",
        f"GRANT SELECT ON {SCHEMA}.other TO 'copier'@'%'",
        f"GRANT SELECT (id, a) ON {SCHEMA}.part TO 'copier'@'%'",
    )
    mirror.settings["source"] |= {"user": "copier", "password": SECRET}
    with mounted(tmp_path / "lake", "size=24m"):
        somebodys = str(mirror.path / SCHEMA / "other")
        deltalake.write_deltalake(somebodys, pa.table({"mine": [1, 2]}))
        mirror.start()
        mirror.agree(t=("id",))
        told = mirror.wait_for_told("part", "copying", "denied")
        assert "copier" in told
        assert f"table {SCHEMA}.part" in told
        told = mirror.wait_for_told("hidden", "waiting", "filter.regex")
        assert told.startswith("canal-server does not know it")
        told = mirror.wait_for_told("other", "stopped", "no mirror has made")
        assert somebodys in told
        assert deltalake.DeltaTable(somebodys).version() == 0

        mirror.sql(f"GRANT SELECT ON {SCHEMA}.part TO 'copier'@'%'")
        mirror.agree(part=("id",))
        # ... full disk
        before = mirror.lake("t", "id")
        with full(mirror.path):
            mirror.sql(
                *(f"INSERT INTO t VALUES ({n}, REPEAT('y', 99), 1)" for n in (2, 3)),
                "UPDATE t SET b = 2 WHERE id = 1",
                "ALTER TABLE part DROP PRIMARY KEY, ADD PRIMARY KEY (b)",
                "CREATE TABLE late (id INT PRIMARY KEY)",
            )
            assert mirror.process
            mirror.process.wait_for_log("No space left on device")
            assert mirror.lake("t", "id") == before
        mirror.sql("INSERT INTO t VALUES (4, 'z', 4)")
        mirror.agree(t=("id",), part=("b",))
        mirror.check_log()
        mirror.stop()
