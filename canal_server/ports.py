"""Protocols between the packages: contracts in prose, no code.

Whoever implements one of these is tested by the contract suite of that port.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from canal_server.core.blocks import Block
    from canal_server.core.table_ids import Names
    from canal_server.model.batch import Batch
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import (
        EntryPosition,
        LogPosition,
        PositionRange,
    )
    from canal_server.model.ranges import (
        RangeEnds,
        RangeLimits,
        RangePart,
        RangePlace,
        Subscription,
    )
    from canal_server.runtime.lifecycle import Stop

    # Records first <= i < stop of a block.
    Span = tuple[Block, int, int]

# Tells whether a client (or the instance) wants entries with these table names.
# Pure, bounded in time, and never raises.
TablePredicate = Callable[["Names"], bool]


class TableSchemas(Protocol):
    """Columns of tables as of where the pump reads. Called by the pump's thread."""

    def find(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Return the columns, None when the table is unknown to the server.

        `position` is where the rows lie. Raises SourceError when the server cannot
        be asked.
        """

    def refresh(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Look again at the source, past every cache; else as `find`.

        `position` is where the rows lie that contradict what is known.
        """

    def apply(self, statement: DdlStatement) -> None:
        """Apply a statement that may change tables; durable when it returns."""

    def passed(self, position: EntryPosition) -> None:
        """Take note that all before a place was read; cheap, called per chunk."""


class ByteSource(Protocol):
    """Where a reader's bytes come from."""

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int | None:
        """Wait for bytes; 0 at the end, None when stopped or the time is up."""

    def try_receive_into(self, buffer: memoryview) -> int | None:
        """Take what is at hand; None when nothing is, 0 at the end."""


class EventStore(Protocol):
    """The ring of one instance's entries and a cursor per client.

    `put`, `wake_getters` are the pump's; all others are called by the threads of
    connections. Sequences count entries from 0 and only grow.
    """

    def put(self, spans: Sequence[Span], stop: Stop) -> bool:
        """Append entries; waits for room until `stop`, false when stopped first.

        A sequence longer than the ring is taken in parts.
        """

    def wake_getters(self) -> None:
        """Say that the pump has nothing more at hand now: waiting gets may answer."""

    def subscribe(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        after: EntryPosition | Mapping[int, EntryPosition] | None,
    ) -> None:
        """Give a client a cursor, or its cursor another filter (None: all entries).

        A new cursor stands at the oldest entry that the ring holds; entries at or
        before `after` are not given out (but a BEGIN at it is, and so is every
        entry of a compressed transaction at it). In a group they are places of its
        sources, by number.
        """

    def unsubscribe(self, client_id: int) -> None:
        """Forget a client's cursor; what only it held is freed."""

    def get(
        self,
        client_id: int,
        batch_size: int,
        timeout_s: float | None,
        peer_fd: int | None = None,
    ) -> Batch | None:
        """Take the next entries, None when there are none in time.

        `timeout_s`: 0 does not wait, None waits without limit. Ends early with None
        when the peer of the socket `peer_fd` closes; then no entry is taken.
        Raises StoreError for a client without a cursor.
        """

    def ack(self, client_id: int, last_sequence: int) -> None:
        """Free a client's entries up to and including this sequence."""

    def rollback(self, client_id: int) -> None:
        """Put a client's get sequence back to its ack sequence."""

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return the boundary of transactions behind which the client's entries lie.

        That is an END or a statement outside of transactions. None when none was put
        so far.
        """

    def close(self) -> None:
        """Drop the content and end every waiting get and put."""


class Liveness(Protocol):
    """Which clients have been away for so long that entries need not wait for them.

    Called under the lock of a store, by any thread; nothing waits in it.
    """

    def is_evictable(self, client_id: int) -> bool:
        """Tell whether a client may be passed over now."""

    def evictable_in_s(self, client_ids: Collection[int]) -> float | None:
        """Return when all of these may be passed over, None: not foreseeable."""

    def evicted(self, client_id: int, table_filter: TablePredicate | None) -> None:
        """Take note that a client, which had this filter, has no cursor any more."""


class MetaManager(Protocol):
    """Subscriptions, cursors and open batches of one server, by destination.

    Thread-safe. Implementations differ in what outlives the process.
    """

    def start(self) -> None:
        """Load what is stored; may wait for where it is. Raises MetaStoreError."""

    def request_stop(self) -> None:
        """Let a start that waits end with an error; returns at once."""

    def stop(self) -> None:
        """Write what is not written yet and let go of files and threads.

        Raises MetaStoreError when it cannot be written.
        """

    def flush(self) -> None:
        """Write what is not written yet. Raises MetaStoreError."""

    def subscribe(self, identity: ClientIdentity) -> None:
        """Add the client or replace its filter."""

    def unsubscribe(self, identity: ClientIdentity) -> None:
        """Remove the client; its cursor and batches stay in memory."""

    def has_subscribed(self, identity: ClientIdentity) -> bool:
        """Tell whether the client is subscribed."""

    def subscriptions(self, destination: str) -> list[ClientIdentity]:
        """Return all clients of a destination, by client id."""

    def cursor(self, identity: ClientIdentity) -> LogPosition | None:
        """Return where the client has acked to."""

    def update_cursor(self, identity: ClientIdentity, position: LogPosition) -> None:
        """Move the client's cursor."""

    def places(self, identity: ClientIdentity) -> dict[int, LogPosition]:
        """Return where the client has acked to in each source of a group, by number."""

    def update_places(
        self, identity: ClientIdentity, places: Mapping[int, LogPosition]
    ) -> None:
        """Move these of the client's places; is called before the cursor is moved."""

    def add_batch(self, identity: ClientIdentity, positions: PositionRange) -> int:
        """Register a batch; returns its id: 1, 2, 3 … per client."""

    def remove_batch(
        self, identity: ClientIdentity, batch_id: int
    ) -> PositionRange | None:
        """Remove an open batch; None when the id is unknown.

        Raises ClientError when it is not the smallest open id.
        """

    def batches(self, identity: ClientIdentity) -> dict[int, PositionRange]:
        """Return the open batches, smallest id first."""

    def clear_batches(self, identity: ClientIdentity) -> None:
        """Forget all open batches."""


class LogPositionManager(Protocol):
    """Where the pump of a destination stands: one place to read and write.

    Any call but `request_stop` may raise MetaStoreError.
    """

    def start(self) -> None:
        """Get ready; may wait for where positions are stored."""

    def request_stop(self) -> None:
        """Let a start that waits end with an error; returns at once."""

    def stop(self) -> None:
        """Write what is not written yet and let go of files and threads."""

    def latest(self, destination: str) -> LogPosition | None:
        """Return the stored position, None when there is none."""

    def persist(self, destination: str, position: LogPosition) -> None:
        """Store a position; it is the end of a transaction or a DDL."""


class RangeSource(Protocol):
    """Ranges of one destination's changes, and the cursors of who reads them.

    Called by the threads of connections, many at a time. All raise ClientError, with
    the codes of `protocol.ranged`, and CanalError for what is not the client's fault.
    """

    def subscribe(
        self, name: str, expression: str, start: str, *, temporary: bool = False
    ) -> tuple[Subscription, bool]:
        """Return the subscription with this filter, and whether it is new.

        A `temporary` one is not stored; `end_temporary` ends it.
        """

    def unsubscribe(self, name: str) -> None:
        """Forget a subscription; durable when it returns."""

    def end_temporary(self, name: str) -> None:
        """Forget a subscription if there is one of this name, and it is temporary."""

    def subscriptions(self) -> tuple[list[Subscription], int | None]:
        """Return all subscriptions, and the last epoch if there is one."""

    def ack(self, name: str, place: RangePlace) -> None:
        """Move a cursor forward, never back; durable when it returns."""

    def head(
        self,
        name: str,
        start: RangePlace,
        limits: RangeLimits,
        wait_s: float,
        peer_fd: int | None = None,
    ) -> RangeEnds:
        """Return how far a range behind `start` may go; waits for its first change.

        The wait ends when the peer of the socket `peer_fd` closes.
        """

    def plan(
        self,
        name: str,
        expression: str,
        start: RangePlace,
        end: RangePlace,
        parts: int,
    ) -> list[RangePart]:
        """Cut a range at events, into so many parts at most; filtered as in `read`."""

    def locate(self, name: str, text: str) -> RangePlace:
        """Return the boundary that a start of `subscribe` means; changes nothing.

        `acked` is the cursor of the subscription `name`, `latest` the end of the
        source's binlog now, whether it was read or not.
        """

    def read(
        self,
        name: str,
        expression: str,
        start: RangePlace,
        end: RangePlace,
        take: Callable[[Sequence[bytes | memoryview], int], None],
        *,
        relays: bool = False,
        cut: Callable[[], None] | None = None,
    ) -> None:
        """Give the entries of a range to `take`, piece by piece, with each one's bytes.

        Without a name the filter is `expression`. `take` may wait and may raise.
        `relays`: rows may be given as the binlog has them, for others to render.
        `cut` is called, by another thread, to end a `take` that waits too long while
        others want to read.
        """

    def columns(
        self, schema: str, table: str, at: RangePlace | None
    ) -> TableMeta | None:
        """Return what a table is at a place, None: now; None when there is none."""

    def left_out(self, table: TableMeta) -> str:
        """Return what filters keep from all readers of a table; empty: nothing."""


class RunningInstance(Protocol):
    """One destination as the server sees it, while it runs here."""

    @property
    def destination(self) -> str:
        """Return the destination's name."""

    @property
    def store(self) -> EventStore:
        """Return the event store; another one once cursors were moved by hand."""

    def steady(self) -> AbstractContextManager[object]:
        """Keep the store and the clients' places as they are within a context.

        Whoever changes a client's place by what its store says does so in here.
        Nothing waits in it.
        """

    @property
    def meta(self) -> MetaManager:
        """Return the meta manager."""

    @property
    def ranges(self) -> RangeSource | None:
        """Return what serves ranged reads; None where there are none."""

    def log_position(self, position: EntryPosition) -> LogPosition:
        """Return the position with the identity of the source it came from."""

    def subscribed(self, identity: ClientIdentity) -> None:
        """Give the client's cursor its filter and tell the pump what is wanted.

        Called after the filter was checked by `check_filter`.
        """

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return where a client begins that has acked nothing; None: not known yet.

        When it is known, the instance itself gives it to clients without a cursor.
        """

    def resume_places(self, client_id: int) -> Mapping[int, LogPosition]:
        """Return the same for each source of a group that is known, by number."""

    def on_connect(self, client_id: int) -> None:
        """Note that a connection serves a client, until `on_disconnect`."""

    def on_disconnect(self, client_id: int) -> None:
        """Note that a connection that served a client ended."""

    def why_lost(self, client_id: int) -> str:
        """Return why a client can be given nothing, empty when it can.

        The source no longer has what comes behind its place; such a client has no
        cursor in the store.
        """

    def check_room(self, identity: ClientIdentity) -> None:
        """Raise ClientError when no further client may subscribe.

        Called while the instance is steady.
        """

    def why_refused(self, client_id: int) -> str:
        """Return why the stored filter of a client cannot be used, empty when it can.

        Such a client has no cursor in the store until it subscribes with another one.
        """

    def check_filter(self, expression: str) -> object:
        """Make a filter ready; raises ClientError when it cannot be used.

        What is returned is to be kept until the client is subscribed. May take long:
        to be called without a lock.
        """

    def unsubscribed(self, identity: ClientIdentity) -> None:
        """Take the client's wishes back."""


class Instances(Protocol):
    """The destinations of this server."""

    def is_configured(self, destination: str) -> bool:
        """Tell whether the destination is one of ours."""

    def running(self, destination: str) -> RunningInstance | None:
        """Return the instance when it runs here."""

    def start_lazy(self, destination: str) -> RunningInstance | None:
        """Start a configured instance that waits for its first client.

        Returns it when it then runs here, None when it does not.
        """

    def status_of(self, destination: str) -> Mapping[str, object] | None:
        """Return what a destination does, as values of JSON; None: it is none."""


class Lease(Protocol):
    """The right of this server to run one destination.

    One thread calls `open`; then `acquire`, `wait_until_lost` and `release` in turn,
    as often as it likes; then `close`. All others may be called by any thread.
    """

    @property
    def shared(self) -> bool:
        """Tell whether other servers may have it, so that it may be waited for."""

    @property
    def owner(self) -> str | None:
        """Return who is known to run the destination, as `address:port`."""

    def open(self, changed: Callable[[], None]) -> None:
        """Tell others that this server is there; returns at once.

        `changed` is called, by any thread, when `owner` may have changed.
        """

    def acquire(self, stop: Stop) -> bool:
        """Wait until it is held; false when a stop is asked for first."""

    def held(self) -> bool:
        """Tell whether it is held for certain at this moment.

        Cheap, as it is asked for each request. What was true may be false soon, and
        true again, also before `wait_until_lost` returns.
        """

    def wait_until_lost(self, stop: Stop) -> str:
        """Wait until it is lost, may be lost, or is to be given up.

        Returns why, empty when a stop was asked for.
        """

    def wake(self) -> None:
        """Have `acquire` and `wait_until_lost` look at their stop."""

    def release(self) -> None:
        """Give it up, if it is still there; what it allowed has ended."""

    def close(self) -> None:
        """Take back what `open` told."""
