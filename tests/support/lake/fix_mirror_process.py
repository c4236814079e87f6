"""A mirror as a process: its settings, its lake, and what the lake has to equal.

::

    def test_x(mirror):
        mirror.start()
        mirror.source.execute(...)
        mirror.agree(t=("id",))      # waits until the lake has it all
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from fix_pipeline import DESTINATION, UNIT_S, Process
from fix_spark import skip_without_spark, spark_environ
from forked_command import ForkedCommand, Forker
from process_sessions import kill_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fix_pipeline import Pipeline

NAME = "copy"
PATIENCE_S = 12 * UNIT_S
POLL_S = 0.1
PYTHONS = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONSAFEPATH"}
# To import what a mirror needs takes longer than a mirror that cannot begin.
FORKER = Forker(
    "canal_server.cli.mirror.mirror_command",
    "canal_server.mirror.run.progress",
    "canal_server.mirror.run.run",
)
MEMORY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


STARTED = "follows the stream|following the stream|nothing to do"


class MirrorProcess:
    """A mirror of a pipeline's schema, run again and again on one lake."""

    def __init__(self, pipeline: Pipeline, folder: Path, *, port: int = 0) -> None:
        """Mirror what a pipeline reads; the database is at a port of this machine."""
        self.pipeline = pipeline
        self.source = pipeline.source
        self.folder = folder
        self.path = folder / "lake"
        self.conf = folder / "mirror.yml"
        self.settings: dict[str, Any] = {
            "name": NAME,
            "canal": {
                "servers": f"127.0.0.1:{pipeline.server_port}",
                "destination": DESTINATION,
            },
            "source": {
                "host": self.source.host,
                "port": port or self.source.port,
                "user": self.source.user,
                "password": self.source.password,
            },
            "lake": {"path": str(self.path)},
            "tables": [{"match": rf"{pipeline.schema}\..*"}],
            "stream": {"retry_timeout": "20s"},
            "spark": {
                "spark.master": "local[2,3]",
                "spark.local.dir": str(folder / "local"),
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": MEMORY,
            },
        }
        self.process: Process | None = None
        # How the command is started, with its log on standard error.
        self.launcher = [sys.executable, "-P", "-m", "canal_server", "mirror"]
        self.environ = mirror_environ()
        # Where it is started; as in a checkout, what is there is not what is installed.
        self.here = folder / "checkout"

    def write_conf(self) -> None:
        """Write the settings to the file of the command."""
        self.conf.write_text(json.dumps(self.settings))  # JSON is YAML

    def start(self, *, wait: bool = True) -> None:
        """Start the mirror; waits until it has started its stream."""
        self.write_conf()
        decoy = self.here / "canal_server" / "__init__.py"
        decoy.parent.mkdir(parents=True, exist_ok=True)
        decoy.write_text("raise ImportError('this is not what is installed')\n")
        popen = subprocess.Popen(
            [*self.launcher, "--conf", str(self.conf)],
            cwd=self.here,
            env=self.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.process = Process(popen)
        if wait:
            self.process.wait_for_log(STARTED, PATIENCE_S)

    def kill(self) -> None:
        """Kill the mirror's driver and its JVM, as a machine that goes away does."""
        process, self.process = self.process, None
        assert process is not None
        kill_session(process.pid)
        process.wait()

    def stop_group(self) -> list[str]:
        """End the mirror as `timeout` does, by its group; returns what it logs then."""
        process, self.process = self.process, None
        assert process is not None
        logged = len(process.log)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, "".join(process.log)
        return process.log[logged:]

    def stop(self) -> None:
        """End the mirror as an operator does."""
        process, self.process = self.process, None
        assert process is not None
        process.send(signal.SIGTERM)
        status = process.wait(PATIENCE_S)
        assert status == 0, "".join(process.log)

    def close(self) -> None:
        """End what runs, and show its log for a test that failed."""
        if self.process is not None:
            process = self.process
            self.kill()
            print("".join(process.log)[-20_000:])

    def failing(self, environ: dict[str, str] | None = None) -> Process:
        """Start a mirror that is not to get as far as Spark; its log is read."""
        self.write_conf()
        given = ["mirror", "--conf", str(self.conf)]
        environ = os.environ | spark_environ() | (environ or {})
        return Process(ForkedCommand(given, FORKER, environ))

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `canal-server mirror …` to its end."""
        return subprocess.run(
            [
                sys.executable, "-P", "-m", "canal_server", "mirror",
                *arguments, "--conf", str(self.conf),
            ],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )  # fmt: skip

    # --- the lake ---------------------------------------------------------------------

    def agree(self, **keys: tuple[str, ...]) -> None:
        """Wait until tables, named with their keys, are in the lake as they are."""
        for table, key in keys.items():
            look = functools.partial(self._agrees, table, key)
            try:
                self.wait_for(look, table)
            except AssertionError:
                assert self.lake(table, *key) == self.truth(table, *key)
                raise

    def _agrees(self, table: str, key: tuple[str, ...]) -> bool:
        return self.lake(table, *key) == self.truth(table, *key)

    def wait_for(self, look: Callable[[], bool], what: str) -> None:
        """Wait until something is so; fails with the mirror's log."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not look():
            process = self.process
            log = "".join(process.log[-60:]) if process else "(it does not run)"
            assert time.monotonic() < give_up_at, f"{what} never happened:\n{log}"
            time.sleep(POLL_S)

    def lake(self, table: str, *key: str) -> dict[tuple[object, ...], dict[str, Any]]:
        """Return the rows of a table in the lake by their keys; none without it."""
        from deltalake import DeltaTable  # noqa: PLC0415  # an extra
        from deltalake.exceptions import TableNotFoundError  # noqa: PLC0415

        folder = self.path / self.pipeline.schema / table
        try:
            if self.settings["lake"].get("catalog"):
                rows = catalog_rows(self.settings["lake"], self.pipeline.schema, table)
            elif (folder / "metadata" / "version-hint.text").exists():
                rows = iceberg_rows(folder)
            else:
                rows = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return {}
        return by_key(
            [{n: plain(v) for n, v in r.items() if n[0] != "_"} for r in rows], key
        )

    def truth(self, table: str, *key: str) -> dict[tuple[object, ...], dict[str, Any]]:
        """Return the rows of a table in the database, as `lake` does."""
        with self.source.connect(database=self.pipeline.schema) as connection:
            cursor = connection.cursor()
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(f"SELECT * FROM {table}")
            names = [each[0] for each in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
        return by_key([{n: plain(v) for n, v in row.items()} for row in rows], key)

    def state(self, table: str) -> dict[str, Any]:
        """Return what the mirror keeps about a table; empty when it does not yet."""
        from canal_server.mirror.settings import table_values  # noqa: PLC0415  # pyarrow
        from canal_server.mirror.state.state import file_of  # noqa: PLC0415

        # No pattern: the mirror has files of its own, whose names may end like a table.
        name = file_of(table_values.TableName(self.pipeline.schema, table))
        try:
            text = (self.path / "_mirror" / NAME / "tables" / name).read_text()
        except FileNotFoundError:
            return {}
        return dict(json.loads(text))

    def knows_partitions(self, table: str) -> bool:
        """Check whether the mirror knows which rows are in each partition of a table.

        It does so from a batch on that comes after it has asked the source.
        """
        _, _, parts = self.state(table).get("partitions") or ("", "", [])
        return bool(parts) and all(values for _, values in parts)

    def phase_of(self, table: str) -> tuple[str, str]:
        """Return a table's phase, and the text beside it."""
        state = self.state(table)
        return state.get("phase", ""), state.get("message", "")


def mirror_environ() -> dict[str, str]:
    """Return an environment in which Java is found, and the package that we test.

    Which Python runs it, and that what lies where it is started is none of it, the
    mirror has to set for Spark itself.
    """
    environ = os.environ | spark_environ()
    return {name: environ[name] for name in environ.keys() - PYTHONS}


def iceberg_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of an Iceberg table in a folder."""
    from pyiceberg.table import StaticTable  # noqa: PLC0415  # an extra

    found = StaticTable.from_metadata(str(folder)).scan().to_arrow()
    return list(found.to_pylist())


def catalog_rows(lake: dict[str, Any], schema: str, table: str) -> list[dict[str, Any]]:
    """Return the rows of an Iceberg table by its catalog; none if it is not there."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415  # an extra
    from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

    from canal_server.mirror.lake.stores.object_stores import (  # noqa: PLC0415
        store_of,
    )

    store = store_of(lake["path"], lake["storage_options"]).iceberg
    catalog = load_catalog("default", **store, **lake["catalog"])
    try:
        found = catalog.load_table(f"{schema}.{table}").scan().to_arrow()
    except NoSuchTableError:
        return []
    return list(found.to_pylist())


def by_key(
    rows: list[dict[str, Any]], key: tuple[str, ...]
) -> dict[tuple[object, ...], dict[str, Any]]:
    """Return rows by their keys; without one, each text of a row with its count."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in rows:
        if key:
            name = tuple(row[each] for each in key)
            assert name not in found, f"{name} is there twice"
            found[name] = row
        else:
            text = (json.dumps(row, sort_keys=True, default=str),)
            found.setdefault(text, {"count": 0})["count"] += 1
    return found


def plain(value: Any) -> Any:
    """Return a value in one form, whichever side it comes from."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, timedelta):  # TIME, which is a text in the lake
        return str(value)
    return value


@pytest.fixture
def mirror_of(tmp_path: Path) -> Iterator[Callable[..., MirrorProcess]]:
    """Give `mirror_of(pipeline)`: a mirror of a pipeline that runs."""
    skip_without_spark()
    pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")
    made: list[MirrorProcess] = []

    def make(pipeline: Pipeline, *, port: int = 0) -> MirrorProcess:
        made.append(MirrorProcess(pipeline, tmp_path, port=port))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def make_mirror(
    request: pytest.FixtureRequest,
    make_pipeline: Callable[..., Pipeline],
    mirror_of: Callable[..., MirrorProcess],
) -> Callable[..., MirrorProcess]:
    """Give `make(server)`: a mirror of a server's schema; its pipeline runs.

    The schema is a fresh one of a shared server, unless one is named.
    """

    def make(server: Any, schema: str = "") -> MirrorProcess:
        schema = schema or request.getfixturevalue("database")
        pipeline = make_pipeline(server, schema)
        pipeline.start()
        pipeline.keep_port()
        return mirror_of(pipeline)

    return make


@pytest.fixture
def mirror(
    database: str, make_mirror: Callable[..., MirrorProcess], source_server: Any
) -> MirrorProcess:
    """Give a mirror of a MySQL, and of a MariaDB, that was not started."""
    return make_mirror(source_server, database)
