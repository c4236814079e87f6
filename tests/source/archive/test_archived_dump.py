"""Dumps that begin in an archive: what they send, where they begin, how they end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from binlog_archiver import archive
from fix_source_access import RawDump, access_of
from servers import PrivateServer, Unavailable

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import ArchiveError, BinlogPurged, SourceError
from canal_server.mysql.dump_connection import DumpOptions
from canal_server.mysql.replication import (
    FileStart,
    GtidStart,
    MariaGtidStart,
    replica_id,
)
from canal_server.mysql.server_errors import READING_BINLOG_FAILED, is_refusal
from canal_server.runtime.lifecycle import Stop
from canal_server.source.archive.archived_dump import dump_of

FLAVOURS = ["mysql", "mariadb"]
END = 0xFE  # the packet that ends a stream
# Events that open and close files, and heartbeats.
OTHERS = (3, 4, 15, 27, 35, 41, 161, 163)


class Kept:
    """A source whose first files are in an archive only, and dumps of it.

    `sent` is what the source sent while it still had them, by start.
    """

    def __init__(self, source, folder):
        self.source, self.folder = source, folder
        source.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT)")
        self.sets = [self.executed()]
        self.ends = [source.binlog_position()]
        for number in range(6):
            source.execute(f"INSERT INTO shop.t VALUES ({number})")
            if number % 2:
                source.execute("FLUSH BINARY LOGS")
            self.sets.append(self.executed())
            self.ends.append(source.binlog_position())
        self.names = archive(source, folder, purges=False)
        self.starts = [
            FileStart(self.names[0]),
            FileStart(*self.ends[0]),
            FileStart(*self.ends[3]),
            *map(self.after_set, self.sets[:-1]),
        ]
        self.sent = [self.events(start, archived=False) for start in self.starts]
        archive(source, folder)

    def executed(self) -> str:
        """Return the set that was executed so far."""
        mysql = self.source.flavour == "mysql"
        name = "gtid_executed" if mysql else "gtid_binlog_pos"
        ((found,),) = self.source.execute(f"SELECT @@global.{name}")
        return str(found).replace("\n", "")

    def dump(self, start, stop=None, *, archived=True):
        """Return a dump that ends at the end of the binlog."""
        access = replace(
            access_of(self.source),
            archive=self.folder if archived else None,
            named_by="canal.instance.master.address",
        )
        options = DumpOptions(follow=False)
        return dump_of(access, replica_id("test"), start, stop or Stop(), options)

    def after_set(self, text):
        """Return the start after a GTID set."""
        if self.source.flavour == "mysql":
            return GtidStart(GtidSet.parse(text).encode())
        return MariaGtidStart(str(MariaGtidSet.parse(text)))

    def events(self, start, *, archived=True) -> list[bytes]:
        """Return the events that a dump sends to its end, without those it makes up."""
        dump = self.dump(start, archived=archived)
        raw, found = RawDump(dump), []
        try:
            dump.open()
            while (packet := raw.packet()) and packet[0] != END:
                assert packet[0] == 0, packet
                log_pos = int.from_bytes(packet[14:18], "little")
                if log_pos:
                    found.append(packet[1:])
        finally:
            dump.close()
        return found


@pytest.fixture(scope="module", params=FLAVOURS)
def kept(request, tmp_path_factory):
    """Give a source whose binlog was archived and purged."""
    try:
        with PrivateServer(request.param) as source:
            yield Kept(source, tmp_path_factory.mktemp("archive"))
    except Unavailable as error:
        pytest.skip(f"no {request.param} of our own: {error}")


def test_events(kept):
    """The archive sends the events that the source sent, from each kind of start.

    Those of the first file and of later ones, by file and by GTID, up to a file that
    only the source has.
    """
    for start, sent in zip(kept.starts, kept.sent, strict=True):
        found = kept.events(start)
        # The source has written the next file since, whose opening is sent as well.
        assert bodies(found)[: len(bodies(sent))] == bodies(sent), start


def bodies(events: list[bytes]) -> list[tuple[int, bytes]]:
    """Return types and contents of events that are in transactions."""
    return [(each[4], each[19:]) for each in events if each[4] not in OTHERS]


@pytest.mark.parametrize(
    ("offset", "error", "words"),
    [
        (5, SourceError, "at offset 5: .*replace it"),
        (1 << 20, BinlogPurged, "is after its end"),
    ],
)
def test_no_such_offset(kept, offset, error, words):
    """An offset where no event begins is refused as by a server."""
    with pytest.raises(error, match=words) as caught:
        kept.events(FileStart(kept.names[0], offset))
    assert is_refusal(caught.value)
    assert caught.value.errno == READING_BINLOG_FAILED


def test_too_old_a_set(kept):
    """A set from before the archive is purged there as well; the text says what it has.

    The first file is missing then: later ones begin after more than the set has.
    """
    first = kept.folder / kept.names[0]
    content = first.read_bytes()
    first.unlink()
    try:
        with pytest.raises(BinlogPurged, match=f"which has {kept.names[1]} to"):
            kept.dump(kept.after_set(kept.sets[0])).open()
    finally:
        first.write_bytes(content)


def test_a_gap(kept):
    """A missing file is named, whatever is in the archive before it."""
    missing = kept.folder / kept.names[1]
    content = missing.read_bytes()
    missing.unlink()
    try:
        with pytest.raises(BinlogPurged, match=f"lacks {kept.names[1]}"):
            kept.dump(FileStart(kept.names[0])).open()
    finally:
        missing.write_bytes(content)


def test_an_unreadable_directory(kept):
    """A directory that does not exist is an error with its setting."""
    dump = kept.dump(FileStart(kept.names[0]))
    folder = kept.folder.rename(kept.folder.with_name("elsewhere"))
    try:
        with pytest.raises(ArchiveError, match=r"^canal.instance.master.archive.d"):
            dump.open()
    finally:
        folder.rename(kept.folder)


def test_ends(kept):
    """A stop and `close` end a dump that reads a file, and one that was not opened."""
    space = memoryview(bytearray(100))
    stop = Stop()
    dump = kept.dump(FileStart(kept.names[0]), stop)
    dump.open()
    while dump.received_bytes == 0:
        assert dump.try_receive_into(space)
    stop.request()
    assert dump.receive_into(space, None) is None
    dump.close()
    dump.close()
    assert dump.receive_into(space, None) == 0
    assert dump.try_receive_into(space) == 0
    kept.dump(FileStart(kept.names[0])).close()
