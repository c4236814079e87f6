"""Dump and decode as one: the loop, tables, and the sets at the start of files."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import binlog_bytes as b
import pytest
from byte_source import Bytes
from reader_driver import INT, Images, Reading, insert, log_with

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.decoder.events.engine import HALT_NEED_INPUT, HALT_TABLE
from canal_server.errors import (
    DecodeError,
    InsideTransaction,
    SourceError,
    TableMetaError,
)
from canal_server.filters.table_filters import TableFilter
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_reader import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_blocks import Span

SID = bytes(range(16))
SID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"


# --- the loop -----------------------------------------------------------------------


def test_to_the_end_of_the_source() -> None:
    """All chunks are decoded, and the source's end is reported."""
    log = log_with()
    insert(log, 1)
    insert(log, 2)
    stream = log.as_stream()
    reading = Reading()
    assert reading.run(stream[:50], stream[50:51], None, stream[51:])
    assert reading.values == ["1", "2"]
    assert reading.idle == 1


def test_decoding_in_turn() -> None:
    """Whoever lets several readers decode in turn waits neither for data nor stores."""
    log = log_with()
    insert(log, 1)
    insert(log, 2)
    turns: list[bool] = []
    halts: list[int] = []

    def in_turn(decode: Callable[[], int]) -> int:
        turns.append(True)
        halts.append(decode())
        turns.pop()
        return halts[-1]

    def deliver(spans: list[Span]) -> bool:
        assert not turns
        return reading.deliver(spans)

    def note_idle() -> None:
        assert not turns
        reading.note_idle()

    reading = Reading(in_turn=in_turn)
    stream = log.as_stream()
    source = Bytes([stream[:50], None, stream[50:]])
    assert reading.reader.run(source, deliver, note_idle, reading.stop)
    assert reading.values == ["1", "2"]
    assert reading.idle == 1
    assert HALT_TABLE in halts
    assert halts[-1] == HALT_NEED_INPUT


def test_stops_when_asked() -> None:
    """A stop ends reading before the next chunk."""
    log = log_with()
    insert(log, 1)
    reading = Reading()
    reading.stop.request()
    assert not reading.run(log.as_stream())
    assert reading.values == []


def test_stops_when_delivery_is_refused() -> None:
    """After a refused delivery nothing more is read."""
    log = log_with()
    insert(log, 1)
    reading = Reading()
    source = Bytes([log.as_stream(), log.as_stream()])
    assert not reading.reader.run(source, lambda _: False, reading.note_idle, Stop())
    assert source.try_receive_into(memoryview(bytearray(10))) == 10


def test_nothing_at_hand_and_stopped() -> None:
    """A source without data that was stopped ends reading."""

    class Silent(Bytes):
        """Return nothing."""

        def try_receive_into(self, buffer: memoryview) -> int | None:
            return None

        receive_into = lambda self, buffer, timeout_s: None  # noqa: E731

    reading = Reading()
    assert not reading.reader.run(
        Silent([]), reading.deliver, reading.note_idle, reading.stop
    )
    assert reading.idle == 1


def test_limit() -> None:
    """With `until` reading ends before the first event at that offset."""
    log = log_with()
    insert(log, 1)
    limit = log.position
    insert(log, 2)
    reading = Reading(until=limit)
    assert not reading.run(log.as_stream())
    assert reading.values == ["1"]


@pytest.mark.parametrize(
    ("packet", "error", "message"),
    [
        (b"\xfe\0\0\2\0", StreamEnd, r"after bin\.000001:"),
        (b"\xff\xd4\x04#HY000purged", DecodeError, "error packet"),
    ],
)
def test_ends_of_a_stream(packet: bytes, error: type[Exception], message: str) -> None:
    """The end and the errors reported by the server are distinguished."""
    log = log_with()
    insert(log, 1)
    reading = Reading()
    head = len(packet).to_bytes(3, "little") + b"\x20"
    with pytest.raises(error, match=message):
        reading.run(log.as_stream() + head + packet)
    assert reading.values == ["1"]


def test_errors_of_a_server() -> None:
    """The caller's function translates an error packet."""
    reading = Reading(error_of_packet=lambda body: SourceError(f"said {body!r}"))
    with pytest.raises(SourceError, match=r"said b'.*abc'"):
        reading.run(b"\4\0\0\1\xffabc")


def test_rows_inside_of_a_statement() -> None:
    """The error for a start between a table map and its rows names the remedy."""
    log = log_with()
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(1)))
    with pytest.raises(DecodeError, match="inside a statement"):
        Reading().run(log.as_stream())


@pytest.mark.parametrize("refuses", [False, True])
def test_table_map_inside_of_a_transaction(*, refuses: bool) -> None:
    """An error reports a transaction that began before the start, if requested."""
    log = log_with()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(1)))
    log.xid()
    reading = Reading()
    reading.reader.decoder.refuses_inside = refuses
    if refuses:
        with pytest.raises(InsideTransaction):
            reading.run(log.as_stream())
    else:
        reading.run(log.as_stream())
    assert reading.values == ([] if refuses else ["1"])


def test_transactions_that_began_before_the_start() -> None:
    """The rest of a transaction that has ended is accepted in either mode."""
    log = log_with()
    log.xid()
    insert(log, 7)
    reading = Reading()
    reading.reader.decoder.refuses_inside = True
    reading.run(log.as_stream())
    assert reading.values == ["7"]


def test_rotate_without_a_name() -> None:
    """A rotate without a file name is refused with its position."""
    log = log_with()
    log.add(b.ROTATE, bytes(8))
    with pytest.raises(DecodeError, match="without a file name") as caught:
        Reading().run(log.as_stream())
    assert (caught.value.file, caught.value.position) == (
        "bin.000001",
        4 + len(log.events[0]),
    )


def test_rotate_to_a_position_that_no_file_has() -> None:
    """It is refused: no file is that long, and it cannot be stored."""
    log = log_with()
    log.add(b.ROTATE, (1 << 63).to_bytes(8, "little") + b"bin.000002")
    with pytest.raises(
        DecodeError, match="ROTATE event to position 9223372036854775808"
    ):
        Reading().run(log.as_stream())


# --- tables -------------------------------------------------------------------------


def test_table_ids() -> None:
    """Rows carry the id of their table's name."""
    log = log_with()
    insert(log, 1)
    reading = Reading()
    numbers: list[int] = []

    def deliver(spans: list[Span]) -> bool:
        for block, first, stop in spans:
            numbers.extend(block.record(i)["table_ordinal"] for i in range(first, stop))
        return True

    reading.reader.run(Bytes([log.as_stream()]), deliver, reading.note_idle, Stop())
    number = reading.table_ids.ordinal_of((("db", "t"),))
    assert numbers == [0, number, 0]


def test_tables_that_are_filtered_out() -> None:
    """Tables that no filter selects are not looked up and not read."""
    log = log_with()
    insert(log, 1, table="other", table_id=6)
    insert(log, 2)
    reading = Reading(black=r"db\.other")
    reading.run(log.as_stream())
    assert reading.values == ["2"]
    assert reading.images.refreshed == []


def test_wishes_change_between_a_table_map_and_its_rows() -> None:
    """A new filter applies from the next table map; the rows before are complete."""
    log = log_with()
    insert(log, 1)
    insert(log, 2)
    insert(log, 3, table="other", table_id=6)
    cut = sum(len(b.in_packets(event)) for event in log.events[:3])
    stream = log.as_stream()
    reading = Reading(Images(t=("int",), other=("int",)), black=r"db\.other")

    def change() -> None:
        reading.reader.change_table_filter(TableFilter(r"db\.other", "").accepts)

    source = Bytes([stream[:cut], None, stream[cut:]])
    reading.reader.run(source, reading.deliver, change, Stop())
    assert reading.values == ["1", "3"]


def test_columns_that_pass_the_filter() -> None:
    """The column filter is called for each table."""
    log = log_with()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT, INT]))
    log.add(b.WRITE_ROWS, b.rows_body(2, b.int_row(1, 2)))
    reading = Reading(Images(t=("int", "int")), field="db.t:c1")
    reading.run(log.as_stream())
    (row,) = reading.entries[-1].row_change().row_datas
    assert [(c.name, c.value) for c in row.after_columns] == [("c1", "2")]


def test_columns_that_were_reordered() -> None:
    """Where the binlog names columns, the column filter uses those names."""
    log = log_with()
    log.begin()
    names = b"\4\6\2c1\2c0"  # a field of that type and length: two names
    log.add(b.TABLE_MAP, b.table_map_body([INT, INT], optional=names))
    log.add(b.WRITE_ROWS, b.rows_body(2, b.int_row(1, 2)))
    reading = Reading(Images(t=("int", "int")), field="db.t:c1")
    reading.run(log.as_stream())
    (row,) = reading.entries[-1].row_change().row_datas
    assert [(c.name, c.value) for c in row.after_columns] == [("c1", "1")]


def test_columns_are_looked_up_again() -> None:
    """Where the known columns do not fit, the server is asked, and may fit."""
    log = log_with()
    insert(log, 1)
    images = Images(t=("int", "int"))
    images.fresh = Images(t=("int",)).tables
    reading = Reading(images)
    reading.run(log.as_stream())
    assert reading.values == ["1"]
    assert images.refreshed == ["t"]


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (("int", "int"), "column size is not match for table: db.t: 1 .* vs 2 known"),
        (("date",), r"column 1 \(c0\) of table db.t: binlog type 3 vs known type date"),
        (None, "the server has no table db.t"),
    ],
)
def test_columns_that_do_not_fit(types: tuple[str, ...] | None, message: str) -> None:
    """Where they do not fit at all it stops: how, where, and the remedy."""
    log = log_with()
    insert(log, 1)
    images = Images() if types is None else Images(t=types)
    with pytest.raises(TableMetaError, match=message) as caught:
        Reading(images).run(log.as_stream())
    position = 4 + len(log.events[0]) + len(log.events[1])
    assert f"the rows at bin.000001:{position} are" in str(caught.value)
    assert "filter.table.error" in str(caught.value)


def test_columns_that_do_not_fit_of_a_dropped_table() -> None:
    """Known columns that do not fit are reported also without the server's help."""
    log = log_with()
    insert(log, 1)
    images = Images(t=("int", "int"))
    images.refresh = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(TableMetaError) as caught:
        Reading(images).run(log.as_stream())
    problem = "1 in the binlog vs 2 known; the table does not exist on the server now. "
    assert problem in str(caught.value)


def test_tables_that_may_be_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """With filter.table.error the rows are left out with a warning."""
    log = log_with()
    insert(log, 1, table="gone", table_id=6)
    insert(log, 2)
    reading = Reading(table_error=True)
    with caplog.at_level(logging.WARNING):
        reading.run(log.as_stream())
    assert reading.values == ["2"]
    assert "rows of db.gone at bin.000001:" in caplog.text


# --- GTIDs --------------------------------------------------------------------------


def test_sets_that_a_file_begins_with() -> None:
    """In GTID mode the set at the start of a file is part of the executed set."""
    log = log_with()
    known = GtidSet.parse(f"{SID_TEXT}:1-5")
    log.add(b.PREVIOUS_GTIDS, known.encode())
    log.add(b.GTID, b.gtid_body(SID, 6))
    insert(log, 1)
    reading = Reading(gtids=GtidSet())
    reading.run(log.as_stream())
    assert str(reading.reader.sets.gtids) == f"{SID_TEXT}:1-6"
    assert reading.entries[0].header.gtid == f"{SID_TEXT}:1-6"
    outside = Reading()
    outside.run(log.as_stream())
    assert outside.reader.sets.gtids is None


def test_lists_that_a_file_begins_with() -> None:
    """The same holds for MariaDB's list."""
    log = log_with()
    log.add(b.GTID_LIST, struct.pack("<IIIQ", 1, 0, 11, 5))
    log.server_id = 11
    log.add(b.MARIA_GTID, struct.pack("<QIB", 6, 0, 0) + bytes(6))
    insert(log, 1)
    reading = Reading(gtids=MariaGtidSet())
    reading.run(log.as_stream())
    assert str(reading.reader.sets.gtids) == "0-11-6"
    assert reading.entries[-1].header.gtid == "0-11-6"


@pytest.mark.parametrize(
    ("kind", "gtids"),
    [(b.PREVIOUS_GTIDS, GtidSet()), (b.GTID_LIST, MariaGtidSet())],
)
def test_broken_sets(kind: int, gtids: GtidSet | MariaGtidSet) -> None:
    """A truncated set is refused with its position."""
    log = log_with()
    log.add(kind, b"\3\0\0\0")
    with pytest.raises(DecodeError) as caught:
        Reading(gtids=gtids).run(log.as_stream())
    assert caught.value.file == "bin.000001"


# --- numbers of tables --------------------------------------------------------------


def test_tables_ask_again_when_their_ids_restart() -> None:
    """Rows carry a table's new id although its table map has the same bytes."""
    log = log_with()
    for table_id, table in enumerate(("t", "u", "v", "t"), start=5):
        insert(log, table_id, table=table, table_id=5 if table == "t" else table_id)
    reading = Reading(Images(t=("int",), u=("int",), v=("int",)), names_max=2)
    reading.run(log.as_stream())
    assert reading.table_ids.epoch == 1
    first, second, third, fourth = reading.row_table_ordinals
    assert (first, second) == (1, 2)
    assert len({first, second, third, fourth}) == 4
    names = [reading.table_ids.names_of(each) for each in reading.row_table_ordinals]
    assert names == [(("db", name),) for name in "tuvt"]


def test_a_statement_in_which_table_ids_restart() -> None:
    """A table whose map arrived earlier keeps its old id for this statement."""
    log = log_with()
    insert(log, 1, table="a", table_id=1)
    log.begin()
    for table_id, table in ((2, "b"), (3, "c")):
        log.add(b.TABLE_MAP, b.table_map_body([INT], table=table, table_id=table_id))
    for table_id in (2, 3):
        log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(table_id), table_id=table_id))
    log.xid()
    insert(log, 4, table="b", table_id=2)
    reading = Reading(Images(a=("int",), b=("int",), c=("int",)), names_max=2)
    reading.run(log.as_stream())
    assert reading.row_table_ordinals == [1, 2, 3, 4]
    names = [reading.table_ids.names_of(each) for each in reading.row_table_ordinals]
    assert names == [(("db", name),) for name in "abcb"]
