"""Reads a part of a binlog once, from a file or from a server, entry by entry.

For people and for comparisons: entries become Python values here. Leaves out the
pump, which never ends and never unpacks an entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.config.schema import FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.errors import ConnectionLost, DecodeError
from canal_server.filters.column_filters import ColumnFilter
from canal_server.model.positions import binlog_file_number
from canal_server.mysql.dump_connection import DumpOptions
from canal_server.mysql.replication import FileStart, replica_id
from canal_server.mysql.server_errors import error_of_packet
from canal_server.protocol.entry_messages import decode_entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode, varint
from canal_server.runtime.lifecycle import Stop
from canal_server.source.archive.archived_dump import dump_of
from canal_server.source.read.binlog_files import FileSource
from canal_server.source.read.binlog_reader import Reader, StreamEnd
from canal_server.source.read.map_columns import MapReader, NoColumns
from canal_server.source.read.unreadable_events import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from canal_server.config.schema import Action
    from canal_server.decoder.events.engine import Decoder
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import ByteSource, Span, TablePredicate, TableSchemas
    from canal_server.protocol.entry_messages import Entry

_FIRST_EVENT = 4
_DESTINATION = "decode"


@dataclass(frozen=True, slots=True)
class FilePosition:
    """An offset in a binlog file of a server."""

    file: str
    offset: int

    def reached_by(self, file: str, offset: int) -> bool:
        """Return whether an event at this offset begins at or after this position."""
        if file == self.file:
            return offset >= self.offset
        return binlog_file_number(file) > binlog_file_number(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What to read, and with which columns.

    `images`: None uses the columns of the table maps. `take` receives each entry and
    returns false to end. `until` is a position in the first file or in a later one.
    """

    images: TableSchemas | None
    take: Callable[[Entry], bool]
    take_body: Callable[[bytes], bool] | None = None  # instead of `take`, many entries
    table_filter: TablePredicate = lambda _names: True
    until: FilePosition | None = None
    unreadable: Action | None = None  # how to treat events that cannot be read
    advice: Callable[[Decoder], str] | None = None  # for an error on such an event

    def read_file(self, path: Path) -> bool:
        """Read a binlog file; false when `take` ended it.

        Raises DecodeError, also for a file that ends inside an event, TableMetaError,
        SourceError when the images query a server, OSError.
        """
        reader = self._reader(packets=False)
        with FileSource(path) as source:
            reader.start(path.name, _FIRST_EVENT)
            if not self._run(reader, source, Stop()):
                return False
        decoder = reader.decoder
        if decoder.feed.waiting:
            raise DecodeError(
                f"the file is truncated: {decoder.feed.waiting} bytes after the last "
                "complete event",
                file=path.name,
                position=decoder.position,
            )
        return True

    def read_server(
        self, access: Access, start: FilePosition, stop: Stop, *, follow: bool = False
    ) -> bool:
        """Read a server's binlog to its end; false when `take` or `until` ended it.

        With `follow`, wait at the end for new events. Raises SourceError, DecodeError
        and TableMetaError.
        """
        reader = self._reader(address=str(access.address))
        stream = dump_of(
            access,
            replica_id(_DESTINATION),
            FileStart(start.file, start.offset),
            stop,
            DumpOptions(follow=follow),
        )
        try:
            stream.open()
            reader.start(start.file, start.offset)
            if self._run(reader, stream, stop):
                raise ConnectionLost(f"{access.address} closed the connection")
        except StreamEnd:
            return True
        finally:
            stream.close()
        return False

    def _reader(self, *, packets: bool = True, address: str = "") -> Reader:
        kind = MapReader if self.images is None else Reader
        return kind(
            BlockPool(),
            TableIds(),
            NoColumns() if self.images is None else self.images,
            table_filter=self.table_filter,
            columns=ColumnFilter("", ""),
            filters=FilterConfig(),
            packets=packets,
            unreadable=Unreadable(everything=self.unreadable, advice=self.advice),
            error_of_packet=lambda body: error_of_packet(body, address=address),
        )

    def _run(self, reader: Reader, source: ByteSource, stop: Stop) -> bool:
        return reader.run(source, self._consume_spans, _no_idle_work, stop)

    def _consume_spans(self, spans: list[Span]) -> bool:
        return all(
            self._consume(bytes(block.slice(first, stop)))
            for block, first, stop in spans
        )

    def _consume(self, body: bytes) -> bool:
        """Pass entries on, each as field 2 of Messages; false: no more."""
        if self.until is None and self.take_body is not None:
            return self.take_body(body)
        for data in decode(Messages, body).messages:
            entry = decode_entry(data)
            if self._is_after_end(entry):
                return False
            if self.take_body is not None:
                if not self.take_body(b"\x12" + varint(len(data)) + data):
                    return False
            elif not self.take(entry):
                return False
        return True

    def _is_after_end(self, entry: Entry) -> bool:
        header = entry.header
        return self.until is not None and self.until.reached_by(
            header.logfile_name, header.logfile_offset
        )


def _no_idle_work() -> None:
    return None
