"""The pump: one thread per source, from its bytes to the transaction buffer.

It connects, finds where to start, reads until something fails, and starts again with
growing delays. After a lost connection it continues after the last transaction that was
delivered, and does not deliver twice what it then reads again.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.errors import (
    BinlogPurged,
    CanalError,
    ConnectionLost,
    TableMetaStoreError,
)
from canal_server.filters.column_filters import ColumnFilter
from canal_server.model.positions import (
    EntryPosition,
    LogIdentity,
    LogPosition,
    binlog_file_number,
)
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.replication import PumpReplica
from canal_server.position.log_position_managers import same_server
from canal_server.runtime.log_context import log_about
from canal_server.runtime.start_turns import STARTS
from canal_server.source.begin.gtid_tracking import SetFollower, reachable_set
from canal_server.source.begin.index_writer import session_writer
from canal_server.source.begin.purged import purged_message
from canal_server.source.begin.replicated import reachable
from canal_server.source.begin.session_start import SessionStart
from canal_server.source.begin.source_servers import Source, sources_of
from canal_server.source.pump.capture_checks import CaptureChecks
from canal_server.source.pump.delivered import Delivered
from canal_server.source.pump.first_start import FirstStart
from canal_server.source.pump.idle_rest import IdleRest
from canal_server.source.pump.pump_status import PumpState, PumpStatus
from canal_server.source.pump.read_files import ReadFiles
from canal_server.source.pump.redelivery import Redelivery, redelivery_of
from canal_server.source.pump.session_failures import Failures
from canal_server.source.pump.session_reader import (
    end_position,
    reader_of,
    servers_before,
    stream_of,
)
from canal_server.source.pump.session_schemas import SessionSchemas
from canal_server.source.pump.source_switch import SourceSwitch
from canal_server.source.read.silence_limit import Patience
from canal_server.source.read.unreadable_events import unreadable_of
from canal_server.source.schema.source_traits import source_of

if TYPE_CHECKING:
    from canal_server.core.gtid.mariadb_sets import MariaGtidSet
    from canal_server.core.gtid.mysql_sets import GtidSet
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import Span, TablePredicate
    from canal_server.runtime.lifecycle import Deadline, Stop
    from canal_server.source.begin.index_writer import IndexWriter
    from canal_server.source.pump.pump_ports import Outlet, PumpEvents, PumpSource
    from canal_server.source.read.binlog_reader import Reader
    from canal_server.source.read.start_position import StartPosition

_log = logging.getLogger(__name__)

# Events that a dump may send before the server looks for the position.
_OPENING_EVENTS = 4


class Pump:
    """Keeps one source's stream going; a Stage.

    It delivers to `outlet` and reports to `events`, both on its own thread.
    """

    def __init__(
        self,
        source: PumpSource,
        outlet: Outlet,
        events: PumpEvents,
        table_filter: TablePredicate,
    ) -> None:
        config, access = source.config, source.access
        self.status = PumpStatus()
        self.unreadable = unreadable_of(config, access)
        self._received_before = 0  # bytes, by sessions that ended
        self.files = ReadFiles()
        self.sources = sources_of(config.source, access, source.standby)
        self._source = source
        self._config = config
        self._positions = source.positions
        self._columns = ColumnFilter(config.filter.field, config.filter.black_field)
        self.table_filter = table_filter
        self._outlet = outlet
        self._events = events
        self._passed: EntryPosition | None = None  # in this session
        self.passed_to: LogPosition | None = None  # the same, for any thread
        # The boundary up to which all was delivered, in this session. Threads that read
        # ranges look at it: what comes before it is in the history.
        self.delivered_to: EntryPosition | None = None
        self._last_read: Span | None = None  # the last span of this session
        self._first_start = FirstStart(config, source.positions, events)
        self.has_delivered = False  # anything, ever
        self._switch = SourceSwitch()
        self._reader: Reader | None = None
        self._replica = PumpReplica(config.destination, config.source.slave_id)
        self._delivered = Delivered()
        self._redelivery: Redelivery | None = None  # of this session
        self.index = source.index
        self._index_writer: IndexWriter | None = None  # of this session
        self._sets = SetFollower(source.executed)
        complete = self._sets.marked
        self.schemas = SessionSchemas(config, source.history, source.schemas, complete)
        # The server that all positions of this session name.
        self._read_as = self.identity
        # File number and offset right before the first byte that the session reads, or
        # the set after which it reads.
        self.reads_after: tuple[int, int] | None = None
        self.reads_after_set: GtidSet | MariaGtidSet | None = None
        self._start = SessionStart(config, access, self._turn, source.index)
        self._failures = Failures(config.destination)
        self._patience = Patience(config.source)
        self._checks = CaptureChecks(config.source, config.filter)
        self._rest = IdleRest(self._checks, self._switch)
        self._server = ""
        self._server_id = 0
        self._advanced = False  # something was delivered since the last failure
        # Whether the source lacks what is to be read: no session starts by itself.
        self.is_purged = False
        self._thread = threading.Thread(
            target=self._run, name=f"pump-{config.destination}", daemon=True
        )

    # --- Stage ----------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, which handles errors of the source; none is raised."""
        self._thread.start()

    def request_stop(self) -> None:
        """Request the stop, and cut the connections on which the thread may wait."""
        self._switch.request_stop()

    def begin_with(self, stored: LogIdentity | None) -> None:
        """Read first the server that a stored position names; call before `start`."""
        self.sources.begin_with(stored)
        self._start.turn_to(self._access, self._turn)

    def switch_to(self, source: Source) -> None:
        """Read another server; from any thread, returns at once.

        The session ends as with a stop: what is delivered stays, and the rest is
        dropped and read from the other server.
        """
        self._switch.end(source)

    def join(self, deadline: Deadline) -> bool:
        """Wait until the thread has ended."""
        if self._thread.ident is not None:
            self._thread.join(deadline.remaining_s())
        return not self._thread.is_alive()

    @property
    def identity(self) -> LogIdentity:
        """Return the identity of the server that is read."""
        return self.sources.current.identity

    @property
    def server(self) -> str:
        """Return the uuid or id of the server of this session, or of the last one."""
        return self._server

    @property
    def sets(self) -> SetFollower:
        """Return what tracks GTID sets outside of GTID mode."""
        return self._sets

    @property
    def began_at(self) -> EntryPosition | None:
        """Return where the first session began; nothing before it was ever delivered.

        None before it has read anything. From any thread.
        """
        return self._first_start.began_at

    @property
    def exact_from(self) -> int | None:
        """Return the number of the first file in which the sets of entries are exact.

        None: there is none so far, or nothing is read. From any thread.
        """
        reader = self._reader
        return None if reader is None else reader.sets.exact_from

    @property
    def whole_from(self) -> int | None:
        """Return the number of the first file of which nothing is left out.

        None: there is none so far, or nothing is read. From any thread.
        """
        reader = self._reader
        return None if reader is None else reader.sets.whole_from

    @property
    def reached(self) -> tuple[int, int] | None:
        """Return the file number and offset up to which the source was read.

        For the pump's thread; None before anything was read.
        """
        decoder = self._reader.decoder if self._reader else None
        if decoder is None or not decoder.file:
            return None
        return binlog_file_number(decoder.file), decoder.position

    @property
    def _access(self) -> Access:
        return self.sources.current.access

    def repeated(self) -> dict[str, int] | None:
        """Return what was redelivered after the last switch by time, if any."""
        redelivery = self._redelivery
        return None if redelivery is None else redelivery.counts()

    @property
    def stop(self) -> Stop:
        """Return the stop request, for whoever waits on the pump's thread."""
        return self._switch.stop

    @property
    def _turn(self) -> Stop:
        return self._switch.current

    def retry(self) -> None:
        """Read the source again now, if the last session failed; from any thread."""
        self._switch.retry()

    def change_table_filter(self, table_filter: TablePredicate) -> None:
        """Read other tables from now on; from any thread."""
        self.table_filter = table_filter
        reader = self._reader
        if reader is not None:
            reader.change_table_filter(table_filter)

    # --- the thread -----------------------------------------------------------------

    def _run(self) -> None:
        log_about(*self._config.subject)
        try:
            self._run_sessions()
        finally:
            self.schemas.close()
            if self.index is not None:
                self.index.close()
        self.status.state = PumpState.STOPPED

    def _run_sessions(self) -> None:
        while not self.stop.requested():
            self._begin_turn()
            self._switch.begin_session()
            try:
                delay_s = self._attempt()
                if delay_s is None:
                    continue
            except Exception as error:  # noqa: BLE001
                # The outermost frame of the thread: a fault of ours must be logged and
                # must not end the stream.
                self.status.failed(repr(error))
                delay_s = self._failures.fault(error)
            self.status.state = PumpState.WAITING
            self._switch.pause(delay_s)

    def _attempt(self) -> float | None:
        """Run one session; return the seconds to wait if it failed, else None."""
        try:
            self._session()
        except CanalError as error:
            if not self._turn.requested():
                return self._failed(error)
        return None  # a stop or a switch ended it

    def _begin_turn(self) -> None:
        """Switch to another server if that was requested."""
        if not self._switch.begin(self.sources.switch_to):
            return
        self.is_purged = False
        self._start.turn_to(self._access, self._turn)
        # What was read from the other server says nothing about this one's files.
        self._delivered.forget()
        self._failures.forget()
        self._patience.reset()

    def _failed(self, error: CanalError) -> float:
        """Record an error; return the seconds to wait."""
        self._replica.lost(error)
        if self._advanced:
            # The session delivered something: its end is a first failure.
            self._failures.forget()
            self._patience.reset()
            self._advanced = False
        else:
            self._patience.failed(error)
        if isinstance(error, TableMetaStoreError):
            # Somebody may make room, or its server may return: it is opened again.
            self.schemas.close()
        begins_elsewhere = self._start.failed(error, passed=self._passed is not None)
        message = f"{type(error).__name__}: {error}"
        self.is_purged = isinstance(error, BinlogPurged) and not begins_elsewhere
        if self.is_purged:
            name = self._config.destination
            stored = self._positions.latest(name)
            files, conf = self._start.files, self._config.conf_option
            message = purged_message(
                message, name, stored, self.identity, files, conf_option=conf
            )
        self.status.failed(message)
        return self._failures.fail(
            error,
            message,
            elsewhere=begins_elsewhere,
            counting=self._start.is_counting,
        )

    def _session(self) -> None:
        """Connect, and read until the session ends. Raises CanalError."""
        self.status.state = PumpState.CONNECTING
        if self.index is not None:
            self.index.open()
        self.schemas.open()
        control = ControlConnection(self._patience.limit(self._access), self._turn)
        self._switch.control = control
        try:
            with control, STARTS.turn():
                info = self._checks.examine(control, self._failures)
                self.status.warnings = self._checks.warnings
                self._server, self._server_id = source_of(info), info.server_id
                self.status.source = str(info)
                self._delivered.check(self._start.list_files(control))
                self.files.begin(self._start.files)
                self._read(control, info, self._find_position(control, info))
        finally:
            self._switch.control = None
            self._outlet.end()

    def skips(self, position: EntryPosition) -> bool:
        """Return whether a client at a position is given nothing before it.

        From any thread; true before the first session.
        """
        return self._start.skips(position, *self._delivered.position())

    def begins_after(self, start_position: LogPosition | None) -> EntryPosition | None:
        """Return after what the entries of a client begin, by what it has acked.

        None: all of them are for the client. From any thread.
        """
        if self.sources.switches:
            # The ring may hold entries of another server before this one's.
            return None
        if start_position is None or not same_server(
            start_position.identity, self.identity
        ):
            return None
        position = start_position.position
        if not self.skips(position):
            return None
        if position.included and position.position:
            return replace(position, position=position.position - 1)
        return position

    def _find_position(
        self, control: ControlConnection, info: ServerInfo
    ) -> StartPosition:
        self._passed = self.delivered_to = self._last_read = None
        self._first_start.forget_session()
        self.passed_to = None
        stored = self._start.stored(
            control, info, self.identity, self._positions, self._events.on_position_lost
        )
        stored = stored and self._sets.completed(stored)
        needs_set = self._config.source.gtid_on and not self._start.goes_to_end
        if stored is not None and needs_set:
            stored = reachable(control, info, stored, self._turn, self._await)
        elif stored is not None:
            stored = reachable_set(control, info, stored)
        position = self._start.find(
            control,
            info,
            self.sources.current,
            stored,
            read_before=servers_before(self.schemas, self.index, self._delivered),
            cursors=self._events.cursors(),
        )
        if self._start.is_at_end:
            # The delivered files are deleted; new ones may have the same names.
            self._delivered.forget()
        return position

    def stored(self) -> LogPosition | None:
        """Return the position after which reading would continue."""
        found = self._positions.latest(self._config.destination)
        return found and self._sets.completed(found)

    def _await(self, what: str) -> None:
        """Report what the session waits for before it can begin."""
        self.status.state = PumpState.WAITING
        self.status.failed(what)
        self._failures.warn(what)

    def _read(
        self, control: ControlConnection, info: ServerInfo, position: StartPosition
    ) -> None:
        """Read from a position until the session ends. Raises CanalError."""
        schemas, begin = self.schemas.begin(
            position,
            control,
            info,
            access=self._access,
            stored=self._positions.latest(self._config.destination),
            beginning=self._start,
            turn=self._turn,
        )
        self._read_as = self.identity
        self.unreadable.turn_to(self._access)
        reader = reader_of(
            self._source,
            self._read_as,
            position,
            begin,
            schemas=schemas,
            table_filter=self.table_filter,
            columns=self._columns,
            unreadable=self.unreadable,
        )
        self._sets.begin(reader, self._read_as, begin, info)
        truncated = self._outlet.begin()
        continues = self._delivered.begin(position, self._server, truncated=truncated)
        self.reads_after = None
        self.reads_after_set = begin.gtids if position.by_gtid else None
        if position.file and not position.by_gtid:
            self.reads_after = binlog_file_number(position.file), position.position - 1
        listed = [each.name for each in self._start.files.files]
        self._index_writer = session_writer(
            self.index, self._server, reader, position, listed
        )
        if truncated or not continues:
            self._outlet.reset()
            self._events.on_reset()
        stored = self._positions.latest(self._config.destination)
        self._redelivery = redelivery_of(self._config.destination, position, stored)
        self._events.on_session()
        self._reader = reader
        # A change that was made while the reader was built.
        reader.change_table_filter(self.table_filter)
        replica = self._replica.id_at(is_mariadb=info.is_mariadb)
        stream = self._switch.stream = stream_of(
            control.access, replica, begin, self._turn, self._patience
        )
        try:
            stream.open()
            reader.start(position.file, position.position)
            self.status.certificate_expires_at = stream.certificate_expires_at
            self._log_begin(info, position)
            self._first_start.begin_session(position, self._server_id, self._read_as)
            if position.is_end:
                reader.decoder.settle()
                self._first_start.note()
            rest = self._rest.wait
            at_end = reader.run(stream, self.deliver, self._idled, self._turn, rest)
        finally:
            self._reader = None
            self._count_received()
            self._received_before = self.status.received_bytes
            self._switch.stream = None
            stream.close()
            if self._index_writer is not None:
                self._index_writer.flush()
        if at_end and not self._turn.requested():
            raise ConnectionLost(
                f"{self._access.address}: the server closed the connection"
            )

    def _log_begin(self, info: ServerInfo, position: StartPosition) -> None:
        """Report that the source accepted the dump."""
        STARTS.end()  # reading needs none, and lasts
        self.status.reads()
        _log.info(
            "destination %s reads %s from %s", self._config.destination, info, position
        )
        self._checks.note_unlisted(self._start.unlisted, self._failures)
        self.status.warnings = self._checks.warnings

    def _idled(self) -> None:
        """Note that the source has nothing more at hand."""
        self._count_received()
        self.status.reached_end()
        events = self._reader.decoder.events if self._reader else 0
        if events > _OPENING_EVENTS:
            self._start.reads()
        self._sets.idle()
        if events:
            self._first_start.note()
        self._note_end()
        self._outlet.idle()
        self._events.on_idle()
        # What was too early to be stored when it passed may be due now.
        self._pass_to_schemas()
        self._checks.look_again(self._access, self._turn, self._failures)
        self.status.warnings = self._checks.warnings

    def _count_received(self) -> None:
        if (stream := self._switch.stream) is not None:
            self.status.received_bytes = self._received_before + stream.received_bytes

    def _note_end(self) -> None:
        """Advance past what follows the last transaction, such as new files.

        Not before all that was read is delivered.
        """
        reader = self._reader
        if reader is None or not reader.decoder.is_settled:
            return
        reached, before = self.reached, self.delivered_to
        if reached is None or (before is not None and reached <= before.order()):
            return
        if self._last_read is not None and not self._delivered.has(self._last_read):
            return
        position = end_position(reader, self._passed, self._server_id)
        self._sets.settled(position)
        # The events that open a dump have the time at which their file was created.
        has_read = reader.decoder.events > _OPENING_EVENTS
        read_ms = reader.decoder.last_event_time * 1000 if has_read else 0
        self.delivered_to = EntryPosition(
            position.journal_name, position.position, read_ms
        )
        self.status.delivered_at_ms = max(self.status.delivered_at_ms, read_ms)
        self._move(
            position if self._config.source.gtid_on else replace(position, gtid=None)
        )

    def deliver(self, spans: list[Span]) -> bool:
        """Deliver the spans of a chunk, without what was delivered before.

        The reader calls it on the pump's thread; false when a stop was requested.
        """
        self._rest.end()
        self._count_received()
        self.status.received()
        self._first_start.note()
        if self._index_writer is not None:
            self._index_writer.note(spans)
        self._sets.note(spans)
        spans = self._delivered.rest_of(spans)
        if not spans:
            return True
        self._last_read = spans[-1]
        for delivered in self._outlet.put(spans, self.stop):
            if not delivered:
                return False
            self._record_delivered(delivered)
        return True

    def _record_delivered(self, spans: list[Span]) -> None:
        """Record that spans are in the store.

        A new connection begins at the last end of a transaction or DDL among them;
        later records are distinguished by file and offset.
        """
        boundary = self._delivered.note(spans, self._server)
        self._advanced = self.has_delivered = True
        if self._redelivery is not None:
            self._redelivery.take(spans)
        if boundary is not None:
            block, index = boundary
            file, offset, timestamp, server_id, gtid, _ = block.position(index)
            self.status.delivered_at_ms = timestamp
            self._move(EntryPosition(file, offset, timestamp, server_id, gtid))
            end = block.end_offset(index)
            self.delivered_to = EntryPosition(block.file, end, timestamp)

    def _move(self, position: EntryPosition) -> None:
        """Have a new connection begin at a position: all before it is delivered."""
        self.status.position = str(position)
        self._passed = position
        self.passed_to = LogPosition(self._read_as, position)
        self.files.note(position)
        # First: the history may fail to store it, and by GTID a session that begins
        # before what was delivered delivers it again.
        self._positions.persist(self._config.destination, self.passed_to)
        self._pass_to_schemas()

    def _pass_to_schemas(self) -> None:
        if self._passed is not None:
            self.schemas.passed(self._passed)
