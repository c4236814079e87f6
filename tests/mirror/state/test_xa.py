"""XA transactions: rows of one that is rolled back after it was prepared."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

import pyarrow as pa
from fix_mirror_process import PATIENCE_S, MirrorProcess
from fix_pipeline import DESTINATION
from fix_random import longer

from canal_server.mirror.copy.copy_changes import CatchUp
from canal_server.mirror.session.spark_session import source_options, table_options
from canal_server.mirror.settings.settings_file import load
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.xa import KEPT_MAX, PreparedXa, is_of_xa
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.columns.spark_schema import packed_schema
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options
from canal_server.spark.packed.packed_rows import (
    PART,
    ROWS,
    STATEMENT,
    XA_ROWS,
    Packed,
    unpack,
)
from canal_server.spark.reading.range_tasks import Range, cut
from canal_server.spark.row_batches import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fix_pipeline import Pipeline

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.settings.mirror_settings import MirrorSettings

T, U, W = (TableName("shop", name) for name in "tuw")
NOBODY = TableName("", "")
LARGE = 30_000  # rows of a transaction that is read in several parts


def statement(kind: str, xid: str, table: TableName = NOBODY, version: int = 0) -> Any:
    """Return an item of a transaction."""
    return Packed(
        kind=STATEMENT, destination="d", table=table, seq=0, row=0, sql=xid,
        event_type=kind, version=version,
    )  # fmt: skip


def rows(table: TableName, version: int) -> Packed:
    """Return an item with rows of a transaction that ends at a version."""
    return Packed(
        kind=ROWS, destination="d", table=table, seq=0, row=0, version=version, count=1
    )


def accepted(*items: Packed, by: PreparedXa | None = None) -> list[set[TableName]]:
    """Return what each item rolled back, if anything."""
    prepared = by or PreparedXa()
    found = [set(prepared.accept(item)) for item in items]
    return [names for names in found if names]


ROLLBACK, COMMIT = "XAROLLBACK", "XACOMMIT"


def test_tables_of_what_is_rolled_back() -> None:
    """Those of that transaction alone; nothing when it is committed, or not known."""
    items = [
        statement(XA_ROWS, "X'01',X'',1", T, 9),
        statement(XA_ROWS, "X'01',X'',1", U, 9),
        statement(XA_ROWS, "X'02',X'',1", W, 19),
    ]
    assert accepted(*items, statement(ROLLBACK, "XA ROLLBACK X'01',X'',1")) == [{T, U}]
    assert accepted(*items, statement(ROLLBACK, "XA ROLLBACK X'03',X'',1")) == []
    commit = statement(COMMIT, "XA COMMIT X'01',X'',1")
    rollback = statement(ROLLBACK, "XA ROLLBACK X'01',X'',1")
    assert accepted(*items, commit, rollback) == []
    assert accepted(*items, rollback, rollback) == [{T, U}]


def test_a_name_that_is_used_again() -> None:
    """It is another transaction: one of a single phase does not log its end."""
    first = statement(XA_ROWS, "x", T, 9), statement(XA_ROWS, "x", U, 9)
    second = statement(XA_ROWS, "x", W, 29)
    assert accepted(*first, second, statement(ROLLBACK, "XA ROLLBACK x")) == [{W}]


def test_parts_in_the_middle_of_a_transaction() -> None:
    """Within a batch, its rows show where it ends; no others count."""
    prepared = PreparedXa()
    accepted(statement(XA_ROWS, "x", T, 9), rows(U, 9), rows(W, 10), by=prepared)
    later = prepared.copy()
    accepted(rows(W, 9), by=later)
    assert accepted(statement(ROLLBACK, "XA ROLLBACK x"), by=later) == [{T, U}]
    # In MariaDB, the last part has the name.
    items = rows(U, 9), rows(W, 8), statement(XA_ROWS, "x", T, 9)
    assert accepted(*items, statement(ROLLBACK, "XA ROLLBACK x")) == [{T, U}]


def test_more_transactions_than_are_kept() -> None:
    """One that may be among those that are forgotten concerns all of their tables."""
    prepared = PreparedXa()
    for number in range(KEPT_MAX + 2):
        table = {0: T, 1: U}.get(number, W)
        prepared.accept(statement(XA_ROWS, f"x{number}", table, number))
    prepared = PreparedXa.from_json(prepared.to_json())
    assert len(prepared.tables) == KEPT_MAX
    assert prepared.is_used
    items = [statement(ROLLBACK, f"XA ROLLBACK x{number}") for number in (2, 0)]
    assert accepted(*items, by=prepared) == [{W}, {T, U}]


def test_after_what_a_copy_has_to_begin() -> None:
    """Each table has the position of its rows, which identifies old ones."""
    prepared = PreparedXa()
    for seq, name in ((10, T), (20, U)):
        prepared.accept(replace(statement(XA_ROWS, "x", name, 30), seq=seq))
    found = prepared.accept(statement(ROLLBACK, "XA ROLLBACK x"))
    assert found == {T: 10, U: 20}


@pytest.fixture
def settings(pipeline: Pipeline, tmp_path: Path) -> MirrorSettings:
    """Give the settings of a mirror of the schema."""
    mirror = MirrorProcess(pipeline, tmp_path)
    mirror.write_conf()
    return load(str(mirror.conf), {})


@pytest.fixture
def pipeline(
    source_server: Any, database: str, make_pipeline: Callable[..., Pipeline]
) -> Pipeline:
    """Give a canal-server that reads three tables."""
    source_server.execute(
        *(f"CREATE TABLE {database}.{n} (id INT PRIMARY KEY, v INT)" for n in "tuw"),
        *(f"INSERT INTO {database}.{n} VALUES (1, 1), (2, 2)" for n in "tuw"),
    )
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    return pipeline


def run_xa(pipeline: Pipeline, xid: str, end: str, *statements: str) -> None:
    """Run statements in a transaction that is prepared and ended."""
    with pipeline.source.connect(database=pipeline.schema) as connection:
        cursor = connection.cursor()
        for sql in (
            f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'",
            f"XA {end} '{xid}'",
        ):  # fmt: skip
            cursor.execute(sql)


def items_between(
    settings: MirrorSettings, start: RangePosition, end: RangePosition
) -> Iterator[Packed]:
    """Yield what the mirror's stream has between two positions, part by part."""
    options = read_options(
        source_options(settings)
        | {"filter": settings.wire_filter, "minPartitionRows": "1000"}
    )
    channel = Channel(options, DESTINATION)
    for part in cut(channel, options, Range(DESTINATION, start, end), None):
        for batch in read_rows(options, packed_schema(), part, channel):
            yield from unpack(pa.Table.from_batches([batch]))
    channel.close()


def test_tables_as_the_binlog_has_them(
    pipeline: Pipeline, settings: MirrorSettings
) -> None:
    """Each transaction has its tables, also a large one that is read in parts."""
    schema = pipeline.schema
    catching = catch_up(settings, TableName(schema, "t"))
    start = catching.latest()
    run_xa(pipeline, "back", "ROLLBACK", "UPDATE t SET v = 9 WHERE id = 1",
           "DELETE FROM u WHERE id = 2")  # fmt: skip
    pipeline.source.execute(f"INSERT INTO {schema}.w VALUES (3, 3)")
    run_xa(pipeline, "kept", "COMMIT", "UPDATE t SET v = 5", "DELETE FROM w")
    series = (
        f"WITH RECURSIVE n AS (SELECT 10 i UNION ALL SELECT i + 1 FROM n WHERE i < "
        f"{LARGE}) SELECT i, 0 FROM n"
    )
    limit = "max_recursive_iterations" if pipeline.source.flavour == "mariadb" else ""
    run_xa(
        pipeline, "large", "ROLLBACK",
        f"SET SESSION {limit or 'cte_max_recursion_depth'} = 1000000",
        "UPDATE w SET v = 1", f"INSERT INTO u {series}", f"INSERT INTO t {series}",
    )  # fmt: skip
    run_xa(pipeline, "phase", "ROLLBACK", "UPDATE t SET v = 6 WHERE id = 1")
    prepared, found, parts = PreparedXa(), [], 0
    for item in items_between(settings, start, catching.latest()):
        parts += item.kind == PART
        names = prepared.accept(item)
        if item.event_type == ROLLBACK:
            assert is_of_xa(item)
            found.append({name.table for name in names})
    assert found == [{"t", "u"}, {"t", "u"}, {"t"}]
    assert prepared.tables == {}
    assert parts > 2
    catching.close()


def catch_up(settings: MirrorSettings, name: TableName, **how: Any) -> CatchUp:
    """Return what reads one table's changes."""
    return CatchUp(
        table_options(settings, name), DESTINATION, "m", lambda _: {}, Stop(),
        name=name, **how,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("table", "continues", "expected"),
    [("t", False, ["back"]), ("u", False, []), ("u", True, ["back"])],
)
def test_while_a_table_catches_up(
    pipeline: Pipeline,
    settings: MirrorSettings,
    table: str,
    continues: bool,
    expected: Any,
) -> None:
    """It sees rollbacks of its rows; of all rows if another read began earlier."""
    name = TableName(pipeline.schema, table)
    catching = catch_up(settings, name, continues=continues)
    start = catching.latest()
    run_xa(pipeline, "back", "ROLLBACK", "UPDATE t SET v = 9 WHERE id = 1")
    run_xa(pipeline, "kept", "COMMIT", "UPDATE t SET v = 5 WHERE id = 1")
    found: list[Packed] = []
    follower: Any = SimpleNamespace(
        table=SimpleNamespace(source=name),
        begin=lambda _: None,
        reached=lambda _: None,
        flush=lambda *_: None,
        feed=lambda item, _: found.append(item),
    )
    catching.read(follower, start, catching.latest())
    rolled_back = [item.sql for item in found if is_of_xa(item)]
    assert not list(catching.statements(name, start, catching.latest()))
    catching.close()
    assert rolled_back == [f"XA ROLLBACK X'{t.encode().hex()}',X'',1" for t in expected]
    assert sum(item.count for item in found) == 2 * (table == "t")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(0)
@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
def test_in_the_lake(mirror: MirrorProcess) -> None:
    """Rolled-back rows are absent; rows prepared during a new copy are not lost.

    In MySQL few accounts see prepared transactions: without that, no copy starts.
    """
    schema, source = mirror.pipeline.schema, mirror.source
    source.execute(
        *(f"CREATE TABLE {schema}.{n} (id INT PRIMARY KEY, v INT)" for n in "tu"),
        f"CREATE TABLE {schema}.keyless (id INT, v INT)",
        *(f"INSERT INTO {schema}.{n} VALUES (1, 1)" for n in ("t", "u", "keyless")),
    )
    keys = {"t": ("id",), "u": ("id",), "keyless": ()}
    mirror.start()
    mirror.agree(**keys)
    run_xa(
        mirror.pipeline, "back", "ROLLBACK", "INSERT INTO t VALUES (2, 2)",
        "UPDATE t SET v = 9", "DELETE FROM keyless",
    )  # fmt: skip
    if source.flavour == "mysql":
        assert mirror.process
        mirror.process.wait_for_log(
            "WARNING.*account cannot see the server's prepared XA", PATIENCE_S
        )
        mirror.wait_for(
            lambda: "GRANT XA_RECOVER_ADMIN" in mirror.phase_of("t")[1], "the remedy"
        )
    with source.connect(database=schema) as connection:
        cursor = connection.cursor()
        for sql in ("XA START 'x'", "INSERT INTO t VALUES (3, 3)", "XA END 'x'",
                    "XA PREPARE 'x'"):  # fmt: skip
            cursor.execute(sql)
        if source.flavour == "mysql":
            source.execute(f"GRANT XA_RECOVER_ADMIN ON *.* TO '{source.user}'@'%'")
        source.execute(f"INSERT INTO {schema}.u VALUES (2, 2)")
        mirror.agree(u=("id",))
        cursor.execute("XA COMMIT 'x'")
    mirror.agree(**keys)
    assert mirror.state("u")["copies"] == 1
    assert mirror.state("t")["copies"] == mirror.state("keyless")["copies"] == 2
    mirror.stop()
    if source.flavour == "mysql":
        source.execute(f"REVOKE XA_RECOVER_ADMIN ON *.* FROM '{source.user}'@'%'")
