"""Unreadable events are skipped where they are named, and only there."""

from __future__ import annotations

import base64
import logging
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import binlog_bytes as b
import pytest
import zstandard
from binlog_bytes import Binlog
from reader_driver import INT, Images, Reading, insert, log_with

from canal_server.config.schema import (
    Action,
    EventConfig,
    HostConfig,
    HostPort,
    InstanceConfig,
    NamedEvent,
    SourceConfig,
)
from canal_server.errors import DecodeError
from canal_server.model.entry import EntryType, EventType
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.source.read.unreadable_events import Advice, Unreadable

if TYPE_CHECKING:
    from canal_server.protocol.entry_messages import Entry

FILE = "bin.000001"
OWN = Path("/etc/my conf/shop/instance.properties")
MASTER = Access(address=Address("db", 3306), credentials=Credentials("canal", ""))
KEY = "canal.instance.master.unreadable.events"
BEGIN, ROWS, END = (
    EntryType.TRANSACTIONBEGIN,
    EntryType.ROWDATA,
    EntryType.TRANSACTIONEND,
)
SHORT_ROW = b"\0\1"  # of an INT


def reading_of(*events: tuple[int, Action], **options: Any) -> Reading:
    """Return a reader that may skip events at these offsets."""
    named = tuple(NamedEvent(FILE, at, how) for at, how in events)
    source = SourceConfig(
        standby=HostConfig(address=HostPort("other", 3306)),
        events=EventConfig(unreadable=named),
    )
    config = InstanceConfig(destination="shop", file=OWN, source=source)
    return Reading(
        events=EventConfig(unreadable=named),
        unreadable=Unreadable(
            named, key=KEY, source="db:3306", advice=Advice(config, MASTER, KEY)
        ),
        **options,
    )


def states(reading: Reading) -> list[tuple[str, int]]:
    """Return the outcome of the events, and how many each covers."""
    return [
        (str(each["state"]), int(str(each["events"])))
        for each in reading.unreadable.status()
    ]


def props_of(entry: Entry) -> dict[str, str]:
    """Return the properties of an entry's content."""
    return {pair.key: pair.value for pair in entry.row_change().props}


def shape(reading: Reading) -> list[str]:
    """Return what was delivered: B, E, values of rows, R for raw bytes."""
    found = []
    for entry in reading.entries:
        if entry.entry_type != ROWS:
            found.append("B" if entry.entry_type == BEGIN else "E")
        elif entry.row_change().event_type == EventType.QUERY:
            assert props_of(entry)["unreadable"] == "true"
            found.append("R")
        else:
            rows = entry.row_change().row_datas
            found += [row.after_columns[0].value for row in rows]
    return found


def broken_rows() -> tuple[Binlog, int]:
    """Return a binlog with three transactions, and where a row event is broken."""
    log = log_with()
    insert(log, 1)
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    at = log.position
    log.add(b.WRITE_ROWS, b.rows_body(1, SHORT_ROW))
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(2)))
    log.xid()
    insert(log, 3)
    return log, at


def test_stops_with_advice() -> None:
    """The error for an unnamed event says how to inspect it and how to resume."""
    log, at = broken_rows()
    reading = reading_of()
    with pytest.raises(DecodeError) as caught:
        reading.run(log.as_stream())
    message = str(caught.value)
    assert f"{FILE}:{at}" in message
    assert (
        "canal-server decode --conf '/etc/my conf' --destination shop --from "
        f"{FILE}:{at} --until {FILE}:{at + 1} --unreadable raw --entries; " in message
    )
    assert f"write {KEY} = {FILE}:{at}=skip in {OWN}, and restart the se" in message
    assert shape(reading) == ["B", "1", "E", "B"]


def test_advice_about_other_servers() -> None:
    """The advice reads the standby where that is the source, and appends to names."""
    log, at = broken_rows()
    reading = reading_of((9999, Action.SKIP))
    standby = replace(MASTER, address=Address("other", 3306))
    reading.unreadable.turn_to(standby)
    with pytest.raises(DecodeError) as caught:
        reading.run(log.as_stream())
    assert "--destination shop --standby --from " in str(caught.value)
    assert f"append ,{FILE}:{at}=skip to {KEY} in {OWN}" in str(caught.value)


def test_advice_begins_where_the_transaction_does() -> None:
    """The command reads from the event of the transaction's GTID on."""
    log = log_with()
    insert(log, 1)
    begin = log.position
    log.add(b.ANONYMOUS_GTID, b.gtid_body(bytes(16), 0))
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    log.add(b.WRITE_ROWS, b.rows_body(1, SHORT_ROW))
    with pytest.raises(DecodeError, match=f"--from {FILE}:{begin} --until"):
        reading_of().run(log.as_stream())


@pytest.mark.parametrize(("how", "middle"), [(Action.SKIP, []), (Action.RAW, ["R"])])
def test_named_rows_are_passed_over(
    how: Action, middle: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Everything except the named event is delivered, within its transaction."""
    log, at = broken_rows()
    reading = reading_of((at, how))
    with caplog.at_level(logging.WARNING):
        reading.run(log.as_stream())
    assert shape(reading) == ["B", "1", "E", "B", *middle, "2", "E", "B", "3", "E"]
    assert states(reading) == [("passed over", 1)]
    (line,) = caplog.messages
    assert f"db:3306: event {FILE}:{at} (type 30, table db.t) cannot be read" in line
    assert "its rows end early" in line


def test_raw_bytes_are_those_of_the_event() -> None:
    """The entry has the event from its header to its checksum, and its table."""
    log, at = broken_rows()
    reading = reading_of((at, Action.RAW))
    reading.run(log.as_stream())
    entry = reading.entries[4]
    props = props_of(entry)
    ends = [int.from_bytes(each[13:17], "little") for each in log.events]
    raw = log.events[ends.index(at) + 1]
    assert base64.b64decode(props["rawEvent"]) == raw
    assert props["binlogEventType"] == "30"
    assert "its rows end early" in props["error"]
    assert (entry.header.schema_name, entry.header.table_name) == ("db", "t")
    assert entry.header.logfile_offset == at
    change = entry.row_change()
    assert change.sql.startswith("/* canal: event bin.000001:")
    assert not change.is_ddl
    assert change.row_datas == ()


def test_repeated_reads_are_the_same() -> None:
    """Chunks of any size, files and packets, relaying or not: the same entries."""
    log, at = broken_rows()
    first = reading_of((at, Action.RAW))
    first.run(log.as_stream())
    stream = log.as_stream()
    pieces = [stream[i : i + 7] for i in range(0, len(stream), 7)]
    for chunks, options in (
        (pieces, {}),
        ([stream], {"relay_from": (0, 0)}),
        ([log.as_file()[4:]], {"packets": False}),
    ):
        again = reading_of((at, Action.RAW), **options)
        again.run(*chunks)
        assert again.fields == first.fields


def test_only_the_named_event_is_passed_over() -> None:
    """Another unreadable event stops the reader as before."""
    log, at = broken_rows()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    other = log.position
    log.add(b.WRITE_ROWS, b.rows_body(1, SHORT_ROW))
    reading = reading_of((at, Action.SKIP))
    with pytest.raises(DecodeError, match=f"at {FILE}:{other}"):
        reading.run(log.as_stream())
    assert shape(reading)[-4:] == ["B", "3", "E", "B"]


def test_readable_events_are_delivered(caplog: pytest.LogCaptureFixture) -> None:
    """A named readable event is delivered, and its name reported as unneeded."""
    log = log_with()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    at = log.position
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(2)))
    log.xid()
    reading = reading_of((at, Action.SKIP), (log.position + 500, Action.SKIP))
    with caplog.at_level(logging.WARNING):
        reading.run(log.as_stream())
    assert shape(reading) == ["B", "2", "E"]
    assert states(reading) == [("read", 0), ("not met", 0)]
    assert f"{KEY} names {FILE}:{at}, but no unreadable event starts" in caplog.text


def test_events_before_the_beginning_are_not_called_readable() -> None:
    """Nothing is reported about an event before the start position."""
    log = log_with()
    insert(log, 1)
    reading = reading_of((log.position - 40, Action.SKIP))
    reading.reader.start(FILE, log.position)
    start = log.position
    insert(log, 2)
    events = [
        each for each in log.events if int.from_bytes(each[13:17], "little") > start
    ]
    reading.run(*map(b.in_packets, [log.events[0], *events]))
    assert states(reading) == [("not met", 0)]


@pytest.mark.parametrize(("how", "raw"), [(Action.SKIP, []), (Action.RAW, ["R", "R"])])
def test_rows_of_a_lost_table_map(how: Action, raw: list[str]) -> None:
    """Without its table map a statement's rows are skipped, too, up to its end."""
    log = log_with()
    insert(log, 1)  # under the same table id
    log.begin()
    at = log.position
    log.add(b.TABLE_MAP, b.table_map_body([INT])[:-3], checksum=b"oops")
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(2)))
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(3)))
    log.xid()
    insert(log, 4)
    reading = reading_of((at, how))
    reading.run(log.as_stream())
    assert shape(reading) == ["B", "1", "E", "B", *raw, "3", "E", "B", "4", "E"]
    assert states(reading) == [("passed over", 2)]


def test_a_damaged_end_still_ends_its_transaction() -> None:
    """An XID with a wrong checksum is skipped; the transaction ends there."""
    log = log_with()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(2)))
    at = log.position
    log.add(b.XID, (9).to_bytes(8, "little"), checksum=b"oops")
    insert(log, 3)
    reading = reading_of((at, Action.SKIP))
    reading.run(log.as_stream())
    assert shape(reading) == ["B", "2", "E", "B", "3", "E"]


@pytest.mark.parametrize("sql", [b"BEGIN", b"BEG?N"])
def test_a_damaged_begin_still_begins_its_transaction(sql: bytes) -> None:
    """Rows after a damaged statement are in a transaction, as always."""
    log = log_with()
    at = log.position
    log.add(b.QUERY, b.query_body(sql), checksum=b"oops")
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(2)))
    log.xid()
    reading = reading_of((at, Action.SKIP))
    reading.run(log.as_stream())
    assert shape(reading) == ["B", "2", "E"]


def inner_transaction(*bodies: bytes) -> bytes:
    """Return the events of a transaction, with these row events."""
    return b"".join([
        b.inner(b.QUERY, b.query_body(b"BEGIN")),
        b.inner(b.TABLE_MAP, b.table_map_body([INT])),
        *(b.inner(b.WRITE_ROWS, body) for body in bodies),
        b.inner(b.XID, (9).to_bytes(8, "little")),
    ])  # fmt: skip


@pytest.mark.parametrize(("how", "raw"), [(Action.SKIP, []), (Action.RAW, ["R"])])
def test_inner_events_of_a_compressed_transaction(how: Action, raw: list[str]) -> None:
    """Only the unreadable events of a payload are skipped."""
    log = log_with()
    at = log.position
    data = inner_transaction(
        b.rows_body(1, b.int_row(2)),
        b.rows_body(1, SHORT_ROW),
        b.rows_body(1, b.int_row(3)),
    )
    body = b.payload_body(zstandard.compress(data), algorithm=0, size=len(data))
    log.add(b.PAYLOAD, body)
    insert(log, 4)
    reading = reading_of((at, how))
    reading.run(log.as_stream())
    assert shape(reading) == ["B", "2", *raw, "3", "E", "B", "4", "E"]


@pytest.mark.parametrize(("how", "raw"), [(Action.SKIP, []), (Action.RAW, ["R"])])
def test_payloads_that_cannot_be_inflated(how: Action, raw: list[str]) -> None:
    """What precedes a payload's fault is delivered, and its transaction ends."""
    log = log_with()
    at = log.position
    data = inner_transaction(b.rows_body(1, b.int_row(2)), b.rows_body(1, b.int_row(3)))
    body = b.payload_body(data[:-40], algorithm=255, size=len(data))
    log.add(b.PAYLOAD, body)
    insert(log, 4)
    reading = reading_of((at, how))
    reading.run(log.as_stream())
    assert shape(reading) == ["B", "2", *raw, "E", "B", "4", "E"]


def test_the_end_of_a_payload_that_is_passed_over() -> None:
    """After it a position is between transactions, though nothing of it was read."""
    log = log_with()
    insert(log, 1)
    log.add(b.ANONYMOUS_GTID, b.gtid_body(bytes(16), 0))
    at = log.position
    log.add(b.PAYLOAD, b.payload_body(b"no zstd", algorithm=0, size=9))
    reading = reading_of((at, Action.SKIP))
    reading.run(log.as_stream())
    assert reading.reader.decoder.is_settled
    assert reading.reader.decoder.position == log.position


def test_compressed_rows_of_mariadb() -> None:
    """A compressed row event that cannot be inflated is skipped as a whole."""
    log = Binlog()
    log.add(b.FORMAT, b.format_body("11.4.2-MariaDB"))
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    at = log.position
    head = b.rows_body(1, b"", version=1)
    log.add(b.WRITE_ROWS_COMPRESSED, head + b"\x81\5" + zlib.compress(b"12345")[:-6])
    log.add(b.WRITE_ROWS_V1, b.rows_body(1, b.int_row(2), version=1))
    log.xid()
    reading = reading_of((at, Action.RAW))
    reading.run(log.as_stream())
    assert shape(reading) == ["B", "R", "2", "E"]
    assert props_of(reading.entries[1])["binlogEventType"] == "166"


def test_events_without_an_end_stop() -> None:
    """Where the end of an event is unknown, a name does not help."""
    log = log_with()
    insert(log, 1)
    at = log.position
    log.add(b.QUERY, b.query_body(b"x"))
    data = bytearray(log.as_file()[4:])
    data[at + 9 - 4 : at + 13 - 4] = (3).to_bytes(4, "little")
    reading = reading_of((at, Action.SKIP), packets=False)
    with pytest.raises(DecodeError, match="its end is unknown: start after it"):
        reading.run(bytes(data))


def test_everything() -> None:
    """`decode --unreadable` skips every unreadable event."""
    log, _ = broken_rows()
    reading = Reading(unreadable=Unreadable(everything=Action.RAW))
    reading.run(log.as_stream())
    assert shape(reading) == ["B", "1", "E", "B", "R", "2", "E", "B", "3", "E"]


def test_clients_of_other_tables_do_not_get_raw_rows() -> None:
    """Raw bytes of a table's rows carry that table's id, like its rows."""
    log, at = broken_rows()
    reading = reading_of((at, Action.RAW), images=Images(t=("int",)))
    numbers: set[int] = set()

    def deliver(spans: Any) -> bool:
        for block, first, stop in spans:
            records = map(block.record, range(first, stop))
            numbers.update(
                each["table_ordinal"] for each in records if each["event_type"]
            )
        return True

    reading.deliver = deliver  # type: ignore[method-assign]
    reading.run(log.as_stream())
    assert len(numbers) == 1
    assert 0 not in numbers
