"""Ranges of binlog files that the source has purged are read from an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from binlog_archiver import archive
from fix_archived import ARCHIVE
from fix_pipeline import DESTINATION, UNIT_S

from canal_server.client.range_client import PURGED, RangedClient, RangePosition
from canal_server.errors import ClientError
from canal_server.protocol.entry_messages import EntryType, decode_entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode
from canal_server.ranges.range_source import CUT_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fix_archived import Archived
    from fix_pipeline import Pipeline

NAME = "lake"
FLAVOURS = ["mysql", "mariadb"]
WAIT_MS = int(UNIT_S * 3000)


def ranged_client(pipeline: Pipeline) -> RangedClient:
    """Return a client of ranged reads."""
    return RangedClient("127.0.0.1", pipeline.server_port, timeout_s=3 * UNIT_S)


def read(
    client: RangedClient, start: RangePosition, end: RangePosition, name: str = NAME
) -> list[bytes]:
    """Return the serialized entries of a range."""
    found: list[bytes] = []
    for piece in client.read(DESTINATION, name, start, end):
        found += decode(Messages, bytes(piece)).messages
    return found


def rows_of(entries: Iterable[bytes]) -> list[bytes]:
    """Return the entries with rows and statements alone."""
    return [
        each for each in entries if decode_entry(each).entry_type == EntryType.ROWDATA
    ]


def end_of(
    client: RangedClient, start: RangePosition, made: Archived, name: str = NAME
) -> RangePosition:
    """Return the end of a range that has everything that was written."""
    file, offset = made.source.binlog_position()
    while (start.journal, start.position) < (file, offset):
        start = client.head(DESTINATION, name, start, wait_ms=WAIT_MS).end
        rest = client.head(DESTINATION, name, start)
        if rest.end == start:
            return start
    return start


def write_many(made: Archived) -> None:
    """Write rows that are enough for parts."""
    table = f"{made.pipeline.schema}.many"
    rows = ", ".join(f"({number})" for number in range(CUT_ROWS))
    made.source.execute(
        f"CREATE TABLE {table} (a INT)",
        f"INSERT INTO {table} VALUES {rows}",
        f"DELETE FROM {table}",
    )


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("gtid", [False, True], ids=["file", "gtid"])
def test_after_a_purge(
    make_archived: Callable[..., Archived], *, flavour: str, gtid: bool
) -> None:
    """A range is the same from the source, and from the archive after a purge.

    Whole or in parts, and together with what the source still has.
    """
    made = make_archived(flavour, gtid=gtid)
    pipeline = made.pipeline
    pipeline.start()
    with ranged_client(pipeline) as client:
        start = client.subscribe(DESTINATION, NAME).cursor
        made.write_files(3)
        write_many(made)
        end = end_of(client, start, made)
        before = read(client, start, end)
    assert len(rows_of(before)) > 10
    pipeline.stop()
    names = archive(made.source, made.folder)
    assert start.journal in names
    assert end.journal in names
    made.writer.write(5)
    pipeline.start()
    with ranged_client(pipeline) as client:
        assert client.subscribe(DESTINATION, NAME).cursor == start
        first = client.head(DESTINATION, NAME, start, max_rows=1)
        assert start.journal <= first.end.journal < end.journal
        assert read(client, start, end) == before
        latest = end_of(client, end, made)
        whole = read(client, start, latest)
        assert rows_of(whole)[: len(rows_of(before))] == rows_of(before)
        assert len(whole) > len(before)
        parts = client.plan(DESTINATION, NAME, start, latest, 4)
        assert len(parts) > 1
        found: list[bytes] = []
        for part in parts:
            found += read(client, part.start, part.end)
        assert rows_of(found) == rows_of(whole)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_starts(make_archived: Callable[..., Archived], flavour: str) -> None:
    """A new subscription may start in the archive: by file, time or set, or oldest."""
    made = make_archived(flavour)
    pipeline = made.pipeline
    ((before_s,),) = made.source.execute("SELECT UNIX_TIMESTAMP()")
    variable = {"mysql": "gtid_executed", "mariadb": "gtid_binlog_pos"}[flavour]
    ((executed,),) = made.source.execute(f"SELECT @@GLOBAL.{variable}")
    made.write_files(2)
    names = archive(made.source, made.folder)
    made.writer.write(5)
    pipeline.start()
    written = sum(map(len, made.writer.transactions))
    with ranged_client(pipeline) as client:
        found = {}
        for name, start in (
            ("oldest", "earliest"),
            ("file", f"file:{names[0]}:4"),
            ("time", f"time:{int(before_s) * 1000}"),
            ("set", f"gtid:{executed}"),
        ):
            at = client.subscribe(DESTINATION, name, start=start).cursor
            assert at.journal in names
            end = end_of(client, at, made, name)
            found[name] = rows_of(read(client, at, end, name))
    rows = {
        name: sum(len(decode_entry(each).row_change().row_datas) for each in entries)
        for name, entries in found.items()
    }
    assert rows["oldest"] == rows["file"] == written
    assert 0 < rows["set"] < written
    assert rows["time"] <= rows["oldest"]
    for each in found.values():
        assert found["oldest"][-len(each) :] == each


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_the_archive_lacks(
    make_archived: Callable[..., Archived], flavour: str
) -> None:
    """A range of a missing file is refused as purged; the error names the file.

    So it is without the archive. Once the file is there, the range is read.
    """
    made = make_archived(flavour)
    pipeline = made.pipeline
    pipeline.start()
    with ranged_client(pipeline) as client:
        start = client.subscribe(DESTINATION, NAME).cursor
        made.write_files(3)
        end = end_of(client, start, made)
        before = read(client, start, end)
    pipeline.stop()
    names = archive(made.source, made.folder)
    assert start.journal == names[0]
    missing = made.folder / names[1]
    content = missing.read_bytes()
    missing.unlink()
    made.writer.write(5)  # a client of before has nothing to resume with
    pipeline.meta_file.unlink()
    pipeline.start()
    with ranged_client(pipeline) as client:
        with pytest.raises(ClientError, match=f"lacks {names[1]}") as refused:
            read(client, start, end)
        assert refused.value.code == PURGED
        missing.write_bytes(content)
        assert read(client, start, end) == before
    pipeline.stop()
    pipeline.configure({ARCHIVE: None})
    pipeline.start()
    with ranged_client(pipeline) as client:
        with pytest.raises(ClientError, match=f"has purged {names[0]}") as refused:
            read(client, start, end)
        assert refused.value.code == PURGED
