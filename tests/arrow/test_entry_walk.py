"""Transactions, order and limits on the way from entries to columns."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from arrow_entries import (
    EVENT_BYTES,
    FILE,
    TIME_MS,
    begin,
    columns,
    end,
    header,
    insert,
    statement,
)
from arrow_truth import body_of

from canal_server.arrow.generic_rows import GenericColumns
from canal_server.arrow.typed_rows import TypedColumns
from canal_server.errors import DecodeError
from canal_server.model.entry import EntryType, EventType
from canal_server.model.versions import version
from canal_server.protocol.entry_messages import Entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import encode

ROW = columns({"id": "1"})
ORDER = slice(-4, None)  # version, time, seq, row


def numbers(
    column: tuple[int, int, tuple[Any, ...]], code: Literal["q", "i"] = "q"
) -> list[int]:
    """Return the values of a fetched column of fixed width."""
    length, nulls, (validity, offsets, values) = column
    assert (nulls, validity, offsets) == (0, None, None)
    found: list[int] = memoryview(values).cast(code).tolist()
    assert len(found) == length
    return found


def order_of(generic: GenericColumns) -> list[tuple[int, int, int, int]]:
    """Return (version, time in us, seq, row) of the rows; takes them."""
    *three, row = generic.take()[ORDER]
    return list(zip(*map(numbers, three), numbers(row, "i"), strict=True))


def at(offset: int) -> int:
    """Return the version of an offset in the file of the entries."""
    return version(0, FILE, offset)


def test_commits_are_filled_in_at_the_end() -> None:
    """All rows of a transaction have the position and the time of its end."""
    generic = GenericColumns("d")
    generic.feed(body_of([begin(100), insert(200, ROW, ROW)]))
    assert (generic.rows, generic.pending, generic.full) == (2, 2, False)
    with pytest.raises(ValueError, match="2 of 2 rows wait for their commit"):
        generic.take()
    generic.feed(body_of([insert(300, ROW), end(400, execute_time=TIME_MS + 5)]))
    assert generic.pending == 0
    commit = at(400 + EVENT_BYTES), (TIME_MS + 5) * 1000
    assert order_of(generic) == [
        (*commit, at(200), 0), (*commit, at(200), 1), (*commit, at(300), 0)
    ]  # fmt: skip


@pytest.mark.parametrize("time_ms", [1 << 62, -(1 << 62), 253_402_300_800_000])
def test_times_that_no_year_has(time_ms: int) -> None:
    """A time beyond the years 1 to 9999 is damage: no reader could show it."""
    generic = GenericColumns("d")
    with pytest.raises(DecodeError, match="malformed entry"):
        generic.feed(body_of([insert(200, ROW), end(300, execute_time=time_ms)]))
    dropped = statement(300, EventType.ERASE, "DROP TABLE t", execute_time=time_ms)
    with pytest.raises(DecodeError, match="malformed entry"):
        GenericColumns("d").feed(body_of([dropped]))
    for commit in (GenericColumns("d").expect, GenericColumns("d").finish):
        with pytest.raises(DecodeError, match=f"{time_ms} ms is not within the years"):
            commit(at(300), time_ms)


def test_rows_of_one_offset_count_on() -> None:
    """Events of a compressed transaction have one offset: their rows count through."""
    generic = GenericColumns("d")
    generic.feed(body_of([insert(200, ROW, ROW), insert(200, ROW), end(200)]))
    assert [row[2:] for row in order_of(generic)] == [
        (at(200), 0), (at(200), 1), (at(200), 2)
    ]  # fmt: skip


def test_transactions_without_begin() -> None:
    """MariaDB's have none; each still ends for itself."""
    generic = GenericColumns("d")
    generic.feed(
        body_of([insert(200, ROW), end(300), insert(400, ROW), end(500), begin(600)])
    )
    assert [row[0] for row in order_of(generic)] == [at(400), at(600)]


def test_transactions_without_end() -> None:
    """What a ROLLBACK ended without a trace ends where the next one begins."""
    generic = GenericColumns("d")
    generic.feed(body_of([begin(100), insert(200, ROW), begin(450)]))
    generic.feed(body_of([insert(600, ROW), end(700)]))
    assert [row[0] for row in order_of(generic)] == [at(450), at(800)]


def test_statements_are_commits_outside_of_transactions() -> None:
    """DDL ends where it ends; inside of a transaction it waits for the end."""
    ddl = EventType.ALTER
    generic = GenericColumns("d")
    generic.feed(body_of([statement(200, ddl, "x"), begin(300)]))
    assert generic.pending == 0
    generic.feed(body_of([statement(400, ddl, "x")]))
    assert generic.pending == 1
    generic.feed(body_of([end(500)]))
    assert [row[0] for row in order_of(generic)] == [at(300), at(600)]


def test_changes_as_statements_belong_to_transactions() -> None:
    """An INSERT that was logged as a statement waits for its transaction's end."""
    generic = GenericColumns("d")
    sql = statement(200, EventType.INSERT, "insert …", is_ddl=False)
    generic.feed(body_of([sql]))
    assert generic.pending == 1
    generic.feed(body_of([end(500)]))
    assert [row[0] for row in order_of(generic)] == [at(600)]


def test_notes_are_no_rows() -> None:
    """The text of the statement whose rows follow is not a change."""
    generic = GenericColumns("d")
    generic.feed(
        body_of([begin(1), statement(9, EventType.QUERY, "insert …", is_ddl=False)])
    )
    assert generic.rows == 0


def test_a_commit_announced_in_advance() -> None:
    """Rows of a part of a transaction can be fetched before its end is fed."""
    generic = GenericColumns("d", rows_max=1)
    generic.feed(body_of([begin(100)]))
    generic.expect(at(999), TIME_MS)
    body = body_of([insert(200, ROW), insert(300, ROW)])
    received = generic.feed(body)
    assert 0 < received < len(body)
    assert generic.full
    assert order_of(generic) == [(at(999), TIME_MS * 1000, at(200), 0)]
    assert received + generic.feed(body[received:]) == len(body)
    assert [row[0] for row in order_of(generic)] == [at(999)]
    # Its end, and then another transaction.
    generic.feed(body_of([end(899), insert(1000, ROW), end(1100)]))
    assert [row[0] for row in order_of(generic)] == [at(1200)]


def test_a_commit_announced_for_rows_that_wait() -> None:
    """It counts for the rows before it as well."""
    generic = GenericColumns("d")
    generic.feed(body_of([insert(200, ROW)]))
    generic.expect(at(500), TIME_MS)
    assert generic.pending == 0
    assert [row[0] for row in order_of(generic)] == [at(500)]


def test_a_commit_announced_wrongly() -> None:
    """If the end is elsewhere, rows that were fetched had a wrong number."""
    generic = GenericColumns("d")
    generic.expect(at(500), TIME_MS)
    with pytest.raises(DecodeError, match=f"ends at version {at(700)}, not at"):
        generic.feed(body_of([insert(200, ROW), end(600)]))


def test_finish() -> None:
    """The commit of a transaction whose end is not fed is set at the end."""
    generic = GenericColumns("d")
    generic.feed(body_of([insert(200, ROW), end(300), insert(400, ROW)]))
    generic.finish(at(9000), TIME_MS + 1)
    assert [row[:2] for row in order_of(generic)] == [
        (at(400), TIME_MS * 1000), (at(9000), (TIME_MS + 1) * 1000)
    ]  # fmt: skip


def test_a_limit_of_rows() -> None:
    """At a limit `feed` stops, but not within a transaction."""
    generic = GenericColumns("d", rows_max=2)
    whole = [begin(100), insert(200, ROW, ROW, ROW), insert(300, ROW), end(400)]
    body = body_of([*whole, begin(500), insert(600, ROW), end(700)])
    received = generic.feed(body)
    assert body[:received] == body_of(whole)
    assert generic.full
    assert generic.feed(body[received:]) == 0
    assert len(order_of(generic)) == 4
    assert generic.feed(body[received:]) == len(body) - received
    assert (generic.rows, generic.full) == (1, False)


def test_a_limit_of_bytes() -> None:
    """Memory is limited as well."""
    limit = 1 << 20
    long_row = columns({"id": "1", "note": "x" * 10_000})
    generic = GenericColumns("d", bytes_max=limit)
    body = body_of([insert(100, long_row), end(200)] * 300)
    received = generic.feed(body)
    assert 0 < received < len(body)
    assert limit <= generic.bytes_held < 2 * limit


def test_whole_messages() -> None:
    """A body of Messages is accepted unchanged, with the batch's number first."""
    raw = tuple(encode(entry) for entry in (insert(200, ROW), end(300)))
    generic = GenericColumns("d")
    generic.feed(encode(Messages(batch_id=5, messages=raw)))
    assert generic.rows == 1


def test_heartbeats_are_left_out() -> None:
    """Entries that are not changes become no rows."""
    generic = GenericColumns("d")
    generic.feed(body_of([Entry(header(0), EntryType.HEARTBEAT, b"")]))
    assert generic.rows == 0


def test_epochs_and_files() -> None:
    """The order begins with the epoch and the number in the file's name."""
    generic = GenericColumns("d", epoch=5)
    other = "mysql-bin.1000000"
    generic.feed(body_of([insert(200, ROW), end(300)]))
    generic.feed(
        body_of([insert(4, ROW, logfile_name=other), end(104, logfile_name=other)])
    )
    assert [row[0] for row in order_of(generic)] == [
        version(5, FILE, 400), version(5, other, 204)
    ]  # fmt: skip


def test_offsets_beyond_two_gigabytes() -> None:
    """Rows whose events share a step of 64 bytes count through: the order is total."""
    far = 3 << 30
    generic = GenericColumns("d")
    generic.feed(
        body_of([insert(far, ROW), insert(far + 37, ROW), insert(far + 74, ROW)])
    )
    generic.finish(at(far + 200), TIME_MS)
    found = [row[2:] for row in order_of(generic)]
    assert found == [(at(far), 0), (at(far), 1), (at(far + 74), 0)]
    assert found == sorted(set(found))


@pytest.mark.parametrize(
    "fields",
    [
        {"logfile_name": ""},
        {"logfile_name": "x" * 600},
        {"logfile_name": "binlog.16777216"},
        {"logfile_name": "binlog." + "9" * 30},
        {"logfile_offset": 1 << 40},
        {"logfile_offset": -1},
    ],
)
def test_positions_without_a_number(fields: dict[str, object]) -> None:
    """An entry that cannot be ordered is refused."""
    with pytest.raises(DecodeError, match="at a position without a number"):
        GenericColumns("d").feed(body_of([insert(200, ROW, **fields)]))


def test_zeros_in_front_of_a_file_number() -> None:
    """A name may have any number of them."""
    name = "binlog." + "0" * 40 + "12"
    generic = GenericColumns("d")
    generic.feed(body_of([insert(200, ROW, logfile_name=name)]))
    generic.finish(1, 1)
    assert order_of(generic)[0][2] == version(0, 12, 200)


@pytest.mark.parametrize(
    "body",
    [b"\x12", b"\x12\x05\x0a", b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
     b"\x12\x02\x0a\x05", b"\x00\x01", b"\x0b"],
)  # fmt: skip
def test_malformed(body: bytes) -> None:
    """A truncated or invalid message is refused, and ends the reading."""
    generic = GenericColumns("d")
    with pytest.raises(DecodeError, match="truncated or malformed"):
        generic.feed(body)
    with pytest.raises(DecodeError, match="truncated or malformed"):
        generic.feed(body_of([insert(200, ROW)]))


def test_errors_name_the_position() -> None:
    """The event whose entry cannot be read is named."""
    entry = Entry(header(4321), EntryType.ROWDATA, b"\x62\x05\x0a")
    with pytest.raises(DecodeError, match=rf"\(event at {FILE}:4321\)") as caught:
        GenericColumns("d").feed(body_of([entry]))
    assert (caught.value.file, caught.value.position) == (FILE, 4321)


@pytest.mark.parametrize(
    "options", [{"epoch": 128}, {"epoch": -1}, {"rows_max": 0}, {"bytes_max": 0}]
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    """Limits have to be some, and an epoch has to fit."""
    with pytest.raises(ValueError, match=r"epoch|limits"):
        GenericColumns("d", **options)


def test_buffers_outlive_their_columns() -> None:
    """Fetched columns stay unchanged, even if their source is changed or freed."""
    generic = GenericColumns("d")
    generic.feed(body_of([insert(200, ROW), end(300)]))
    kept = generic.take()
    before = [bytes(part) for _, _, parts in kept for part in parts if part is not None]
    generic.feed(body_of([insert(900, ROW, ROW), end(950)]))
    del generic
    after = [bytes(part) for _, _, parts in kept for part in parts if part is not None]
    assert before == after
    assert memoryview(kept[0][2][2]).readonly


def test_statements_stop_typed_columns() -> None:
    """The caller sees a statement before later entries are read."""
    typed = TypedColumns("d", "t", [("id", "int32", 0, 0)])
    ddl = statement(300, EventType.ALTER, "alter table t …")
    body = body_of([insert(100, ROW), end(200), ddl, insert(500, ROW), end(600)])
    received = typed.feed(body)
    assert body[:received] == body_of([insert(100, ROW), end(200), ddl])
    later = 300 + EVENT_BYTES
    assert typed.take_statements() == [
        (FILE, 300, later, "d", "t", EventType.ALTER, True, "alter table t …", "d")
    ]
    assert typed.take_statements() == []
    assert received + typed.feed(body[received:]) == len(body)
    assert typed.rows == 2
