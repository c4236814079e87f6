"""What a session reads with: the stream, the reader, and the end of what was read.

Where a session begins is decided in `session_start`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.model.positions import EntryPosition
from canal_server.mysql.server_errors import error_of_packet
from canal_server.mysql.source_settings import Address
from canal_server.source.archive.archived_dump import dump_of
from canal_server.source.read.binlog_reader import Reader

if TYPE_CHECKING:
    from canal_server.filters.column_filters import ColumnFilter
    from canal_server.model.positions import LogIdentity
    from canal_server.mysql.dump_connection import DumpStream
    from canal_server.mysql.replication import ReplicaId
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import TablePredicate, TableSchemas
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.archive.archived_dump import ArchivedDump
    from canal_server.source.begin.boundary_index import BoundaryIndex
    from canal_server.source.pump.delivered import Delivered
    from canal_server.source.pump.pump_ports import PumpSource
    from canal_server.source.pump.session_schemas import SessionSchemas
    from canal_server.source.read.silence_limit import Patience
    from canal_server.source.read.start_position import StartPosition
    from canal_server.source.read.unreadable_events import Unreadable


def servers_before(
    schemas: SessionSchemas, index: BoundaryIndex | None, delivered: Delivered
) -> list[str]:
    """Return the uuids or ids of the servers that were read before, in order."""
    found = schemas.sources()
    if not found and index is not None:
        found = index.sources()
    return [*found, delivered.server] if delivered.server else found


def reader_of(
    source: PumpSource,
    read_as: LogIdentity,
    position: StartPosition,
    begin: StartPosition,
    *,
    schemas: TableSchemas,
    table_filter: TablePredicate,
    columns: ColumnFilter,
    unreadable: Unreadable,
) -> Reader:
    """Return a reader of what follows `position`; the dump starts at `begin`.

    All positions of the session carry the object `read_as`: by that the GTID sets of
    sessions are distinguished, as another server may have the same address later.
    """
    config, address = source.config, str(Address(read_as.address, read_as.port))
    reader = Reader(
        source.pool,
        source.table_ids,
        schemas,
        table_filter=table_filter,
        columns=columns,
        filters=config.filter,
        events=config.source.events,
        unreadable=unreadable,
        gtids=begin.gtids if config.source.gtid_on else None,
        error_of_packet=lambda body: error_of_packet(
            body, address=address, position=str(position)
        ),
        source=read_as,
        in_turn=source.in_turn,
    )
    reader.decoder.refuses_inside = not position.by_gtid
    return reader


def stream_of(
    access: Access,
    replica: ReplicaId,
    begin: StartPosition,
    turn: Stop,
    patience: Patience,
) -> DumpStream | ArchivedDump:
    """Return a stream of the binlog from a position; it is not open yet."""
    return dump_of(access, replica, begin.dump_start(), turn, patience.options())


def end_position(
    reader: Reader, known: EntryPosition | None, server_id: int
) -> EntryPosition:
    """Return the end of what was read as a position to begin at; it must be settled.

    It has the set executed there, if that is known. `known` is the last position
    before it.
    """
    decoder, gtids = reader.decoder, reader.sets.gtids
    executed = decoder.followed.executed(whole=True)
    # Another server may be searched by this time, so it is not that of a file's
    # creation: a transaction that began before it may end after it.
    read_ms = decoder.last_event_time * 1000 or None
    return EntryPosition(
        decoder.file,
        decoder.position,
        read_ms if known is None else known.timestamp,
        server_id if known is None else known.server_id,
        str(gtids) if gtids is not None else executed or None,
        included=True,
    )
