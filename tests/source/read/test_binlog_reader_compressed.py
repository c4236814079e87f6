"""Compressed transactions of MySQL and compressed events of MariaDB."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import binlog_bytes as b
import pytest
import zstandard
from byte_source import Bytes
from reader_driver import INT, Reading, insert, log_with

from canal_server.errors import ConnectionLost, DecodeError
from canal_server.model.entry import EventType
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from canal_server.ports import Span


def inner_transaction(*values: int) -> bytes:
    """Return the events of a transaction as in a payload."""
    rows = b"".join(map(b.int_row, values))
    return (
        b.inner(b.QUERY, b.query_body(b"BEGIN"))
        + b.inner(b.TABLE_MAP, b.table_map_body([INT]))
        + b.inner(b.WRITE_ROWS, b.rows_body(1, rows))
        + b.inner(b.XID, (9).to_bytes(8, "little"))
    )


@pytest.mark.parametrize("algorithm", [0, 255])
def test_compressed_transactions(algorithm: int) -> None:
    """A payload's events are delivered, compressed or not, and what follows them."""
    events = inner_transaction(*range(100_000))
    data = zstandard.compress(events) if algorithm == 0 else events
    log = log_with()
    body = b.payload_body(data, algorithm=algorithm, size=len(events))
    log.add(b.PAYLOAD, body)
    insert(log, -1)
    reading = Reading()
    reading.run(log.as_stream())
    assert reading.values == [*map(str, range(100_000)), "-1"]
    offsets = {entry.header.logfile_offset for entry in reading.entries[:3]}
    assert offsets == {4 + len(log.events[0])}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b.payload_body(b"nonsense", algorithm=0, size=9), "cannot be inflated"),
        (b.payload_body(b"x", algorithm=7, size=9), "algorithm 7"),
        (b.payload_body(b"x" * 9, algorithm=255, size=9), "9 bytes left"),
        (b"\1", "ends early"),
    ],
)
def test_broken_payloads(body: bytes, message: str) -> None:
    """A payload that cannot be read is refused with the position of its event."""
    log = log_with()
    log.add(b.PAYLOAD, body)
    with pytest.raises(DecodeError, match=message) as caught:
        Reading().run(log.as_stream())
    assert caught.value.position == 4 + len(log.events[0])


def test_stopped_inside_of_a_payload() -> None:
    """Delivery refused inside a compressed transaction ends the session."""
    log = log_with()
    events = inner_transaction(1)
    log.add(b.PAYLOAD, b.payload_body(events, algorithm=255, size=len(events)))
    reading = Reading()
    source = Bytes([log.as_stream()])
    with pytest.raises(ConnectionLost, match="inside a compressed"):
        reading.reader.run(source, lambda _: False, reading.note_idle, Stop())


def test_a_stop_inside_of_a_payload() -> None:
    """A stop does not wait for the end of a transaction that inflates to much."""
    log = log_with()
    events = inner_transaction(*range(1_000_000))
    log.add(
        b.PAYLOAD,
        b.payload_body(zstandard.compress(events), algorithm=0, size=len(events)),
    )
    reading, stop = Reading(), Stop()
    delivered = 0

    def deliver(spans: list[Span]) -> bool:
        nonlocal delivered
        delivered += sum(last - first for _, first, last in spans)
        stop.request()
        return True

    source = Bytes([log.as_stream()])
    with pytest.raises(ConnectionLost, match="inside a compressed"):
        reading.reader.run(source, deliver, reading.note_idle, stop)
    assert delivered > 0


def deflated(data: bytes) -> bytes:
    """Return data as MariaDB compresses the tail of an event."""
    return b"\x82" + len(data).to_bytes(2, "big") + zlib.compress(data)


def test_compressed_events_of_mariadb() -> None:
    """Compressed statements and rows are delivered like the plain ones."""
    log = log_with()
    sql = b"CREATE TABLE x (a INT)"
    head = b.query_body(sql)[: -len(sql)]
    log.add(b.QUERY_COMPRESSED, head + deflated(sql))
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    for version, kind in ((1, b.WRITE_ROWS_COMPRESSED), (2, 169)):
        head = b.rows_body(1, b"", version=version)
        rows = b.int_row(version) + b.int_row(version + 10)
        log.add(kind, head + deflated(rows))
    head = b.rows_body(1, b"", version=1, images=2)
    log.add(167, head + deflated(b.int_row(5) + b.int_row(6)))
    log.add(168, b.rows_body(1, b"", version=1) + deflated(b.int_row(7)))
    reading = Reading()
    reading.run(log.as_stream())
    assert reading.entries[0].row_change().sql == sql.decode()
    assert reading.values == ["1", "11", "2", "12", "6", "7"]
    kinds = [entry.header.event_type for entry in reading.entries]
    assert kinds == [
        EventType.CREATE,
        EventType.INSERT,
        EventType.INSERT,
        EventType.UPDATE,
        EventType.DELETE,
    ]
    lengths = [entry.header.event_length for entry in reading.entries]
    assert lengths == [len(log.events[n]) for n in (1, 3, 4, 5, 6)]
