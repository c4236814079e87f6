"""Online schema changes of mirrored tables: the lake gets the rows without a copy."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from fix_lake import identity
from schema_changes import cut_over, gh_ost, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fix_mirror_process import MirrorProcess

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]

ROWS = 2_000
TABLE = "CREATE TABLE {} (id INT PRIMARY KEY, n INT, name VARCHAR(20))"
FILL = (
    f"INSERT INTO {{}} WITH RECURSIVE s AS (SELECT 1 i UNION ALL SELECT i + 1 FROM s "
    f"WHERE i < {ROWS // 2}) SELECT i, i % 7, CONCAT('row ', i) FROM s"
)


def id_of(mirror: MirrorProcess, table: str) -> str:
    """Return the identity of a table, by which its readers know it."""
    form = mirror.settings["lake"].get("format", "delta")
    return identity(mirror.path / mirror.pipeline.schema / table, form)


def log_of(mirror: MirrorProcess) -> str:
    """Return what the running mirror has logged."""
    assert mirror.process is not None
    return "".join(mirror.process.log)


def shadows(mirror: MirrorProcess) -> list[str]:
    """Return the tables of schema changes that the lake has."""
    folder = mirror.path / "_mirror" / "copy" / "migrations"
    return sorted(each.name for each in folder.glob("*/*"))


def follows(mirror: MirrorProcess, table: str) -> bool:
    """Check whether a table follows the stream."""
    return mirror.phase_of(table)[0] == "following"


def check_forgotten(mirror: MirrorProcess, *names: str) -> None:
    """Check that the lake and the status have nothing of the former names of a table.

    Nor does the log ask for somebody to delete its copy.
    """
    schema = mirror.pipeline.schema
    mirror.wait_for(
        lambda: (
            not any(
                (mirror.path / schema / name).exists() or mirror.state(name)
                for name in names
            )
        ),
        f"the end of {' and '.join(names)}",
    )
    log = log_of(mirror)
    assert not [name for name in names if f"{schema}.{name}: dropped: " in log]


class Load:
    """Changes rows of a table again and again, whatever its columns are."""

    def __init__(self, mirror: MirrorProcess, table: str) -> None:
        self._mirror = mirror
        self._table = table
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.errors: list[Exception] = []

    def _run(self) -> None:
        number = ROWS
        try:
            schema = self._mirror.pipeline.schema
            with self._mirror.source.connect(database=schema) as connection:
                connection.autocommit(True)
                cursor = connection.cursor()
                while not self._ended.wait(0.02):
                    number += 1
                    table = self._table
                    cursor.execute(
                        f"INSERT INTO {table} (id, n, name) VALUES ({number}, 1, 'x')"
                    )
                    cursor.execute(f"UPDATE {table} SET n = n + 1 WHERE id % 97 = 5")
                    cursor.execute(f"DELETE FROM {table} WHERE id = {number - 30}")
        except Exception as error:  # noqa: BLE001  # shown by the test's own thread
            self.errors.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert not self.errors


@pytest.fixture
def orders(mirror: MirrorProcess, form: str) -> Iterator[MirrorProcess]:
    """Give a mirror that follows a table."""
    mirror.settings["lake"] |= {"format": form}
    run(mirror, TABLE.format("orders"), FILL.format("orders"))
    mirror.start()
    mirror.wait_for(lambda: follows(mirror, "orders"), "orders")
    yield mirror
    mirror.stop()


def test_gh_ost(orders: Any, form: str) -> None:
    """The table stays the same in the lake, and has the rows of gh-ost's table.

    That one is invisible, and removed afterwards, and nothing is copied.
    """
    schema = orders.pipeline.schema
    before = id_of(orders, "orders")
    for number, (alter, columns) in enumerate(
        (
            ("add index by_n (n)", "id, n, name"),
            ("add column price decimal(9,2) not null default 1.50", "id, n, name"),
            ("modify n bigint, drop column name", "id, n"),
        )
    ):
        for statement in gh_ost(orders, alter, columns):
            run(orders, statement)
        run(
            orders,
            f"UPDATE orders SET n = {number} WHERE id % 50 = {number}",
            f"DELETE FROM orders WHERE id % 100 = {50 + number}",
            f"INSERT INTO orders (id, n) VALUES ({ROWS + number}, 5)",
        )
        cut_over(orders, columns)
        run(
            orders,
            "DROP TABLE _orders_del",
            f"INSERT INTO orders (id, n) VALUES (-{number}, 6)",
        )
        orders.agree(orders=("id",))
        orders.wait_for(lambda: not shadows(orders), "the removal of the new rows")
    assert id_of(orders, "orders") == before
    log = log_of(orders)
    print(log)
    for text in (
        f"{schema}._orders_gho: new table, follows the stream",
        f"{schema}.orders: got the rows of {schema}._orders_gho",
    ):
        assert log.count(text) == 3
    assert "copied again" not in log
    streams = 1 if form == "delta" else 0  # which the last one ends
    assert log.count("mirror-table-ends-streams") == streams
    assert orders.state("_orders_del") == {}
    assert not (orders.path / schema / "_orders_ghc").exists()
    done = orders.command("verify", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [each["outcome"] for each in json.loads(done.stdout)["tables"]] == ["equal"]


@pytest.mark.skipif(
    shutil.which("pt-online-schema-change") is None,
    reason="pt-online-schema-change is not installed: apt install percona-toolkit",
)
def test_pt_online_schema_change(orders: Any) -> None:
    """The same with the tool itself, which copies by triggers, while rows change."""
    source, schema = orders.source, orders.pipeline.schema
    before = id_of(orders, "orders")
    user, password = f"{schema[:20]}_dba", "its-own"
    source.execute(
        f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY '{password}'",
        f"GRANT ALL ON *.* TO {user}@'127.0.0.1'",
    )
    address = f"h={source.host},P={source.port},u={user},p={password}"
    with Load(orders, "orders"):
        done = subprocess.run(
            [
                "pt-online-schema-change", "--execute", "--no-version-check",
                "--recursion-method=none", "--chunk-size=200", "--sleep=0.05",
                "--alter", "ADD COLUMN price DECIMAL(9,2) NOT NULL DEFAULT 1.50",
                f"{address},D={schema},t=orders",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    source.execute(f"DROP USER {user}@'127.0.0.1'")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    orders.agree(orders=("id",))
    orders.wait_for(lambda: not shadows(orders), "the removal of the new rows")
    assert id_of(orders, "orders") == before
    log = log_of(orders)
    print(log)
    assert f"{schema}.orders: got the rows of {schema}._orders_new" in log
    assert "copied again" not in log


def test_ones_own_script(orders: Any) -> None:
    """Tables that are exchanged by a script keep, under their names, what they have.

    A table that only gets another name continues under it, with its history.
    """
    run(
        orders,
        TABLE.format("orders_next"),
        "INSERT INTO orders_next SELECT id, n + 1, name FROM orders WHERE id % 3 = 0",
    )
    orders.wait_for(lambda: follows(orders, "orders_next"), "orders_next")
    first = {name: id_of(orders, name) for name in ("orders", "orders_next")}
    run(
        orders,
        "UPDATE orders SET n = 99 WHERE id = 5",
        "UPDATE orders_next SET n = 98 WHERE id = 6",
        "RENAME TABLE orders TO orders_before, orders_next TO orders",
        "UPDATE orders SET n = 97 WHERE id = 9",
    )
    orders.agree(orders=("id",), orders_before=("id",))
    assert id_of(orders, "orders") == first["orders"]
    run(
        orders,
        "DELETE FROM orders WHERE id = 12",
        "ALTER TABLE orders RENAME TO bought",
        "UPDATE bought SET n = 96 WHERE id = 15",
        "RENAME TABLE bought TO purchases",
        "INSERT INTO purchases VALUES (0, 0, 'new')",
    )
    orders.agree(purchases=("id",))
    assert id_of(orders, "purchases") == first["orders"]
    check_forgotten(orders, "orders", "bought")
    log = log_of(orders)
    print(log)
    assert "copied again" not in log
    assert log.count("copied,") == 2  # orders and orders_next, at first


def test_a_new_name_while_the_mirror_is_stopped(orders: Any) -> None:
    """The table continues under it, with what was changed before and afterwards.

    Another name that it had meanwhile changes nothing.
    """
    before = id_of(orders, "orders")
    orders.stop()
    run(
        orders,
        "UPDATE orders SET n = 99 WHERE id = 5",
        "RENAME TABLE orders TO bought",
        "DELETE FROM bought WHERE id = 6",
        "RENAME TABLE bought TO purchases",
        "DELETE FROM purchases WHERE id = 7",
        TABLE.format("other"),
        "INSERT INTO other VALUES (1, 2, 'new')",
    )
    orders.start(wait=False)
    orders.agree(purchases=("id",), other=("id",))
    assert id_of(orders, "purchases") == before
    check_forgotten(orders, "orders", "bought")
    log = log_of(orders)
    print(log)
    assert log.count("copied,") == 1  # the new one
    assert "copied again" not in log


def test_partitions(mirror: Any, form: str) -> None:
    """Rows of partitions that are dropped or emptied are deleted, nothing is copied.

    Also in one breath with the statement that adds a partition, and after a kill.
    """
    mirror.settings["lake"] |= {"format": form}
    run(
        mirror,
        "CREATE TABLE visits (id INT, day DATE NOT NULL, n INT, PRIMARY KEY (id, day)) "
        "PARTITION BY RANGE (TO_DAYS(day)) (PARTITION d1 VALUES LESS THAN "
        "(TO_DAYS('2026-11-02')), PARTITION d2 VALUES LESS THAN "
        "(TO_DAYS('2026-11-03')), PARTITION d3 VALUES LESS THAN "
        "(TO_DAYS('2026-11-04')))",
        "INSERT INTO visits WITH RECURSIVE s AS (SELECT 1 i UNION ALL SELECT i + 1 "
        "FROM s WHERE i < 900) SELECT i, '2026-11-01' + INTERVAL i % 3 DAY, 0 FROM s",
    )
    mirror.start()

    def touched() -> bool:
        run(mirror, "UPDATE visits SET n = n + 1 WHERE id = 500")  # ends a batch
        return bool(mirror.knows_partitions("visits"))

    mirror.wait_for(touched, "the partitions")
    run(
        mirror,
        "ALTER TABLE visits ADD PARTITION (PARTITION d4 VALUES LESS THAN "
        "(TO_DAYS('2026-11-05')))",
        "ALTER TABLE visits DROP PARTITION d1",
        "INSERT INTO visits VALUES (1, '2026-11-04', 7), (2, '2026-11-01', 8)",
    )
    mirror.agree(visits=("id", "day"))
    mirror.wait_for(touched, "the new partition")
    mirror.kill()
    run(
        mirror,
        "ALTER TABLE visits TRUNCATE PARTITION d2",
        "INSERT INTO visits VALUES (3, '2026-11-02', 9)",
        "ALTER TABLE visits TRUNCATE PARTITION d4",
    )
    mirror.start(wait=False)
    mirror.agree(visits=("id", "day"))
    log = log_of(mirror)
    print(log)
    assert "copied again" not in log
    assert mirror.state("visits")["copies"] == 1
    mirror.stop()
