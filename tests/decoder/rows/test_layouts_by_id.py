"""Table maps that were seen: which rows find theirs, and when they are forgotten."""

from __future__ import annotations

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog
from binlog_driver import INT, Driven, transaction, values_of

from canal_server.decoder.events import engine
from canal_server.errors import DecodeError

STATEMENT_END = 1  # flag of a statement's last row event


def maps(log: Binlog, numbers: range) -> None:
    """Append a table map for each table id."""
    for number in numbers:
        log.add(b.TABLE_MAP, b.table_map_body([INT], table_id=number))


def rows(log: Binlog, number: int, *, flags: int = 0) -> None:
    """Append a row event whose value is its table's id."""
    body = bytearray(b.rows_body(1, b.int_row(number), table_id=number))
    body[6] = flags
    log.add(b.WRITE_ROWS, bytes(body))


def one_statement(log: Binlog, numbers: range) -> None:
    """Append a statement that writes a row into each of many tables."""
    maps(log, numbers)
    for number in numbers[:-1]:
        rows(log, number)
    rows(log, numbers[-1], flags=STATEMENT_END)


def test_statement_of_many_tables() -> None:
    """All rows of one statement find their table maps, however many there are."""
    log = Binlog()
    log.start()
    log.begin()
    one_statement(log, range(1, 5001))
    log.xid()
    driven = Driven()
    driven.feed(log.as_stream())
    assert values_of(driven.entries) == [str(n) for n in range(1, 5001)]
    assert driven.halts == [engine.HALT_TABLE] * 5000


def test_transaction_of_many_statements() -> None:
    """A transaction of more tables than are kept is read, each asked for once."""
    log = Binlog()
    log.start()
    log.begin()
    for number in range(1, 5001):
        one_statement(log, range(number, number + 1))
    log.xid()
    driven = Driven()
    driven.feed(log.as_stream())
    assert values_of(driven.entries) == [str(n) for n in range(1, 5001)]
    assert driven.tables_asked == 5000


def test_few_tables_are_asked_for_once() -> None:
    """A table map that comes again is not asked for, in any transaction."""
    log = Binlog()
    log.start()
    for number in [*range(1, 2001)] * 2:
        transaction(log, number, table_id=number)
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.tables_asked == 2000


def test_forgotten_between_statements_only() -> None:
    """A full cache is emptied where a statement begins, known tables or not."""
    log = Binlog()
    log.start()
    log.begin()
    one_statement(log, range(1, 3001))
    # The first one of these is known, and was to be forgotten.
    one_statement(log, range(3000, 3003))
    log.xid()
    driven = Driven()
    driven.feed(log.as_stream())
    assert values_of(driven.entries)[3000:] == ["3000", "3001", "3002"]
    assert driven.tables_asked == 3003


def test_map_of_other_columns() -> None:
    """The same table id with other columns is another table."""
    log = Binlog()
    log.start()
    transaction(log, 1)
    log.add(b.TABLE_MAP, b.table_map_body([INT], table="other"))
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.tables_asked == 2


@pytest.mark.slow
def test_too_many_tables() -> None:
    """A statement with too many table maps is refused, with its position."""
    log = Binlog()
    log.start()
    maps(log, range(1, 65_538))
    driven = Driven()
    with pytest.raises(DecodeError, match="65536 tables in one statement") as caught:
        driven.feed(log.as_stream())
    assert caught.value.position == log.position - len(log.events[-1])


def test_rows_without_their_table() -> None:
    """Rows of a table that was never mapped are asked about."""
    log = Binlog()
    log.start()
    rows(log, 5)
    driven = Driven()
    driven.feed(log.as_stream())
    assert driven.halts == [engine.HALT_NO_TABLE_MAP]
