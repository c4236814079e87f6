"""Statements in the binlog: DDL, what is logged with rows, incidents."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any

import binlog_bytes as b
import pytest
from reader_driver import Reading, insert, log_with

from canal_server.model.entry import EntryType, EventType

if TYPE_CHECKING:
    from canal_server.model.columns_known import TableMeta


def test_ddl() -> None:
    """A DDL is delivered with its names, and applied before the next rows."""
    log = log_with("ALTER TABLE t ADD COLUMN b INT", thread=3)
    reading = Reading()
    reading.run(log.as_stream())
    (entry,) = reading.entries
    change = entry.row_change()
    assert (change.is_ddl, change.event_type) == (True, EventType.ALTER)
    assert (change.sql, change.ddl_schema_name) == (
        "ALTER TABLE t ADD COLUMN b INT",
        "db",
    )
    header = entry.header
    assert (header.schema_name, header.table_name) == ("db", "t")
    position = f"bin.000001:{4 + len(log.events[0])}"
    assert reading.images.applied == [
        ("db", "ALTER TABLE t ADD COLUMN b INT", position)
    ]


def test_a_rollback_ends_its_transaction() -> None:
    """A statement logged without its COMMIT is not joined to the next transaction."""
    log = log_with()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([(b.LONG, b"")]))
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(1)))
    log.add(b.QUERY, b.query_body(b"ROLLBACK"))
    insert(log, 2)
    reading = Reading()
    reading.run(log.as_stream())
    kinds = [entry.entry_type for entry in reading.entries]
    begin, rows, end = (
        EntryType.TRANSACTIONBEGIN, EntryType.ROWDATA, EntryType.TRANSACTIONEND,
    )  # fmt: skip
    assert kinds == [begin, rows, end] * 2


def test_ddl_between_rows_of_a_table() -> None:
    """After a DDL a table map with the same bytes is looked up again."""
    log = log_with()
    insert(log, 1)
    log.add(b.QUERY, b.query_body(b"ALTER TABLE t COMMENT 'x'"))
    insert(log, 2)
    reading = Reading()
    found: list[tuple[str, str]] = []
    find = reading.images.find

    def noted(schema: str, table: str, position: object) -> TableMeta | None:
        found.append((schema, table))
        return find(schema, table, position)

    reading.images.find = noted  # type: ignore[method-assign, assignment]
    reading.run(log.as_stream())
    assert reading.values == ["1", "2"]
    assert found == [("db", "t")] * 2


def test_ddl_that_is_filtered_out() -> None:
    """DDL of filtered tables is not delivered, but applied."""
    log = log_with("CREATE TABLE other (a INT)")
    reading = Reading(black=r"db\.other")
    reading.run(log.as_stream())
    assert reading.entries == []
    assert len(reading.images.applied) == 1


@pytest.mark.parametrize(
    ("option", "sql", "is_left"),
    [
        ("query_ddl", "CREATE TABLE x (a INT)", False),
        ("query_dml", "CREATE TABLE x (a INT)", True),
        ("query_dcl", "CREATE TABLE x (a INT)", True),
        ("query_dml", "INSERT INTO t VALUES (1)", False),
        ("query_dcl", "INSERT INTO t VALUES (1)", True),
        ("query_dcl", "CREATE DATABASE x", False),
        ("query_dml", "CREATE DATABASE x", True),
    ],
)
def test_kinds_of_statements_left_out(option: str, sql: str, *, is_left: bool) -> None:
    """Each setting leaves out its kind of statement."""
    options: dict[str, Any] = {option: True}
    reading = Reading(**options)
    reading.run(log_with(sql).as_stream())
    assert bool(reading.entries) == is_left


def test_dml_statements() -> None:
    """A statement that changes rows is delivered as such, not as DDL."""
    reading = Reading()
    reading.run(log_with("UPDATE t SET a = 1").as_stream())
    change = reading.entries[0].row_change()
    assert (change.is_ddl, change.event_type) == (False, EventType.UPDATE)
    assert reading.images.applied == []


def test_statements_in_the_words_of_their_session() -> None:
    """The session's sql_mode and character set decide how a text is parsed."""
    status = b"\1" + (4).to_bytes(8, "little") + b"\4" + struct.pack("<HHH", 28, 28, 28)
    log = log_with(
        'CREATE TABLE "中" (a INT)'.encode("gbk"),
        status=status,
    )
    reading = Reading()
    reading.run(log.as_stream())
    (entry,) = reading.entries
    assert entry.header.table_name == "中"
    assert entry.row_change().sql == 'CREATE TABLE "中" (a INT)'


def test_what_is_logged_beside_rows() -> None:
    """Texts of statements are delivered as separate entries, in order."""
    log = log_with()
    log.add(b.ROWS_QUERY, b"\x20INSERT INTO t VALUES (1)")
    log.add(b.ANNOTATE_ROWS, b"DELETE FROM t")
    log.add(b.INTVAR, b"\2" + (7).to_bytes(8, "little"))
    log.add(b.RAND, struct.pack("<QQ", 1, 2))
    log.add(b.USER_VAR, struct.pack("<I", 1) + b"v\1")
    reading = Reading()
    reading.run(log.as_stream())
    changes = [entry.row_change() for entry in reading.entries]
    assert [change.sql for change in changes] == [
        "INSERT INTO t VALUES (1)",
        "DELETE FROM t",
        "SET INSERT_ID = 7",
        "SET SESSION rand_seed1 = 1 , rand_seed2 = 2",
        "SET @v := NULL",
    ]
    assert {change.event_type for change in changes} == {EventType.QUERY}
    assert {change.is_ddl for change in changes} == {None}
    assert [entry.header.table_name for entry in reading.entries][:2] == ["t", ""]
    left_out = Reading(query_dml=True)
    left_out.run(log.as_stream())
    assert left_out.entries == []


def test_incidents(caplog: pytest.LogCaptureFixture) -> None:
    """An incident, by which events may be missing from the binlog, is an error."""
    log = log_with()
    log.add(b.INCIDENT, b"\1\0\3abc")
    insert(log, 1)
    reading = Reading()
    with caplog.at_level(logging.ERROR):
        reading.run(log.as_stream())
    assert "incident 0100" in caplog.text
    assert reading.values == ["1"]


def test_an_alter_that_is_not_done() -> None:
    """The second part of MariaDB's two-part ALTER is delivered and applied."""
    log = log_with()
    for more in (2, 4):
        log.add(b.MARIA_GTID, struct.pack("<QIBB", 7, 0, 1, more) + bytes(8))
        log.add(b.QUERY, b.query_body(b"ALTER TABLE t ADD b INT", b"db"))
    reading = Reading()
    reading.run(log.as_stream())
    assert len(reading.entries) == len(reading.images.applied) == 1
