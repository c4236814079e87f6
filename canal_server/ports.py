"""Protocols between the packages: contracts in prose, no code.

Each implementation passes the contract suite of its port.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from canal_server.core.blocks import Block
    from canal_server.model.batch import Batch
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ddl_statement import DdlStatement, FilteredNames
    from canal_server.model.identity import ClientIdentity
    from canal_server.model.lease_problem import LeaseProblem
    from canal_server.model.positions import (
        EntryPosition,
        LogPosition,
        PositionRange,
    )
    from canal_server.model.ranges import (
        EpochPosition,
        RangeEnds,
        RangeLimits,
        RangePart,
        Subscription,
    )
    from canal_server.runtime.lifecycle import Stop

    # Records first <= i < stop of a block.
    Span = tuple[Block, int, int]

# Whether a client (or the instance) receives entries with these table names.
# Pure, bounded in time, and never raises.
TablePredicate = Callable[["FilteredNames"], bool]


class TableSchemas(Protocol):
    """Columns of tables at the pump's position. Called by the pump's thread."""

    def find(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Return the columns, None when the table is unknown to the server.

        `position` is where the rows were read. Raises SourceError when the server
        cannot be asked.
        """

    def refresh(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Ask the source again, bypassing every cache; otherwise as `find`.

        `position` is where rows were read that contradict the known columns.
        """

    def apply(self, statement: DdlStatement) -> None:
        """Apply a statement that may change tables; durable when it returns."""

    def passed(self, position: EntryPosition) -> None:
        """Note that the source was read up to a position; cheap, called per chunk."""


class ByteSource(Protocol):
    """Where a reader's bytes come from."""

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int | None:
        """Wait for bytes; 0 at the end, None when stopped or timed out."""

    def try_receive_into(self, buffer: memoryview) -> int | None:
        """Read without waiting; None when no data is available, 0 at the end."""


class EventStore(Protocol):
    """The ring of one instance's entries and a cursor per client.

    The pump calls `put` and `wake_getters`; the threads of connections call all others.
    Sequences count entries from 0 and only grow.
    """

    def put(self, spans: Sequence[Span], stop: Stop) -> bool:
        """Append entries; waits for room until `stop`, false when stopped first.

        Spans that are larger than the ring are appended in parts.
        """

    def wake_getters(self) -> None:
        """Report that the pump has no more data for now: waiting gets may answer."""

    def subscribe(
        self,
        client_id: int,
        table_filter: TablePredicate | None,
        after: EntryPosition | Mapping[int, EntryPosition] | None,
    ) -> None:
        """Give a client a cursor, or its cursor another filter (None: all entries).

        A new cursor starts at the oldest entry in the ring. Entries at or before
        `after`
        are not delivered, except a BEGIN at it and every entry of a compressed
        transaction at it. In a group, `after` maps the number of each source to a
        position there.
        """

    def unsubscribe(self, client_id: int) -> None:
        """Forget a client's cursor and free what only it retained."""

    def get(
        self,
        client_id: int,
        batch_size: int,
        timeout_s: float | None,
        peer_fd: int | None = None,
        *,
        whole: bool = False,
    ) -> Batch | None:
        """Fetch the next entries, None when there are none in time.

        `timeout_s`: 0 does not wait, None waits without limit. Returns None early when
        the peer of the socket `peer_fd` disconnects; then no entry is fetched. `whole`:
        the last entry ends a transaction, or none of them does. Raises StoreError for a
        client without a cursor.
        """

    def ack(self, client_id: int, last_sequence: int) -> None:
        """Free a client's entries up to and including this sequence."""

    def rollback(self, client_id: int) -> None:
        """Reset a client's get sequence to its ack sequence."""

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return the transaction boundary after which the client's entries come.

        That is an END or a statement outside of transactions. None when none was put
        so far.
        """

    def close(self) -> None:
        """Drop the content and end every waiting get and put."""


class Liveness(Protocol):
    """Which clients were disconnected for so long that entries need not wait for them.

    Called under the lock of a store, by any thread; must not block.
    """

    def is_evictable(self, client_id: int) -> bool:
        """Return whether a client may be evicted now."""

    def evictable_in_s(self, client_ids: Collection[int]) -> float | None:
        """Return the seconds until all of these may be evicted, None: not known."""

    def evicted(self, client_id: int, table_filter: TablePredicate | None) -> None:
        """Note that a client, which had this filter, lost its cursor."""


class MetaManager(Protocol):
    """Subscriptions, cursors and open batches of one server, by destination.

    Thread-safe. Implementations differ in what outlives the process.
    """

    def start(self) -> None:
        """Load what is stored; may wait for the storage. Raises MetaStoreError."""

    def request_stop(self) -> None:
        """Make a waiting start fail; returns at once."""

    def stop(self) -> None:
        """Write pending changes and release files and threads.

        Raises MetaStoreError when they cannot be written.
        """

    def flush(self) -> None:
        """Write pending changes. Raises MetaStoreError."""

    def subscribe(self, identity: ClientIdentity) -> None:
        """Add the client or replace its filter."""

    def unsubscribe(self, identity: ClientIdentity) -> None:
        """Remove the client; its cursor and batches stay in memory."""

    def has_subscribed(self, identity: ClientIdentity) -> bool:
        """Return whether the client is subscribed."""

    def subscriptions(self, destination: str) -> list[ClientIdentity]:
        """Return all clients of a destination, by client id."""

    def cursor(self, identity: ClientIdentity) -> LogPosition | None:
        """Return the position up to which the client has acked."""

    def update_cursor(self, identity: ClientIdentity, position: LogPosition) -> None:
        """Move the client's cursor."""

    def source_positions(self, identity: ClientIdentity) -> dict[int, LogPosition]:
        """Return the client's acked position in each source of a group, by number."""

    def update_source_positions(
        self, identity: ClientIdentity, positions: Mapping[int, LogPosition]
    ) -> None:
        """Move these positions of the client; called before the cursor is moved."""

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
    """The position of the pump of a destination, in storage.

    Any call but `request_stop` may raise MetaStoreError.
    """

    def start(self) -> None:
        """Prepare; may wait for the storage."""

    def request_stop(self) -> None:
        """Make a waiting start fail; returns at once."""

    def stop(self) -> None:
        """Write pending changes and release files and threads."""

    def latest(self, destination: str) -> LogPosition | None:
        """Return the stored position, None when there is none."""

    def persist(self, destination: str, position: LogPosition) -> None:
        """Store a position; it is the end of a transaction or a DDL."""


class RangeSource(Protocol):
    """Ranges of one destination's changes, and the cursors of their readers.

    Called by the threads of connections, many at a time. All raise ClientError, with
    the codes of `protocol.range_messages`, and CanalError for what is not the client's
    fault.
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

    def ack(self, name: str, position: EpochPosition) -> None:
        """Move a cursor forward, never back; durable when it returns."""

    def head(
        self,
        name: str,
        start: EpochPosition,
        limits: RangeLimits,
        wait_s: float,
        peer_fd: int | None = None,
    ) -> RangeEnds:
        """Return how far a range after `start` may go; waits for its first change.

        The wait ends when the peer of the socket `peer_fd` disconnects.
        """

    def plan(
        self,
        name: str,
        expression: str,
        start: EpochPosition,
        end: EpochPosition,
        parts: int,
    ) -> list[RangePart]:
        """Cut a range at events, into at most `parts` parts; filtered as in `read`."""

    def locate(self, name: str, text: str) -> EpochPosition:
        """Return the boundary that a start of `subscribe` stands for; changes nothing.

        `acked` is the cursor of the subscription `name`, `latest` the current end of
        the source's binlog, whether it was read or not.
        """

    def read(
        self,
        name: str,
        expression: str,
        start: EpochPosition,
        end: EpochPosition,
        take: Callable[[Sequence[bytes | memoryview], int], None],
        *,
        relays: bool = False,
        cut: Callable[[], None] | None = None,
    ) -> None:
        """Pass the entries of a range to `take`, with the bytes of each.

        Without a name, the filter is `expression`. `take` may wait and may raise. With
        `relays`, rows may be passed as the binlog has them, for the receiver to decode.
        Another thread calls `cut` to end a `take` that waits too long while others want
        to read.
        """

    def columns(
        self, schema: str, table: str, at: EpochPosition | None
    ) -> TableMeta | None:
        """Return a table's columns at a position, None: now; None when unknown."""

    def left_out(self, table: TableMeta) -> str:
        """Return what the filters hide of a table from all readers; empty: nothing."""


class RunningInstance(Protocol):
    """One destination as the server sees it, while it runs here."""

    @property
    def destination(self) -> str:
        """Return the destination's name."""

    @property
    def store(self) -> EventStore:
        """Return the event store; replaced when cursors are moved by hand."""

    def steady(self) -> AbstractContextManager[object]:
        """Keep the store and the clients' positions unchanged within a context.

        Code that changes a client's position based on its store does so in here. It
        must not block.
        """

    @property
    def meta(self) -> MetaManager:
        """Return the meta manager."""

    @property
    def ranges(self) -> RangeSource | None:
        """Return the server of ranged reads; None when they are not available."""

    def log_position(self, position: EntryPosition) -> LogPosition:
        """Return the position with the identity of its source."""

    def subscribed(self, identity: ClientIdentity) -> None:
        """Give the client's cursor its filter and pass the filter on to the pump.

        Called after the filter was checked by `check_filter`.
        """

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return where a client begins that has acked nothing; None: not known yet.

        Once it is known, the instance itself assigns it to clients without a cursor.
        """

    def resume_source_positions(self, client_id: int) -> Mapping[int, LogPosition]:
        """Return the same for each source of a group where it is known, by number."""

    def on_connect(self, client_id: int, user: str = "") -> None:
        """Note that a connection serves a client, until `on_disconnect`.

        `user`: what it is, if it is within this process.
        """

    def on_disconnect(self, client_id: int) -> None:
        """Note that a connection that served a client ended."""

    def why_lost(self, client_id: int) -> str:
        """Return why a client can receive nothing, empty when it can.

        The source has purged what comes after the client's position; such a client has
        no cursor in the store.
        """

    def check_subscription_limit(self, identity: ClientIdentity) -> None:
        """Raise ClientError when no further client may subscribe.

        Called while the instance is steady.
        """

    def why_refused(self, client_id: int) -> str:
        """Return why the stored filter of a client cannot be used, empty when it can.

        Such a client has no cursor in the store until it subscribes with another one.
        """

    def check_filter(self, expression: str) -> object:
        """Compile a filter; raises ClientError when it is invalid.

        The caller keeps the result until the client is subscribed, and holds no lock,
        because this may take long.
        """

    def unsubscribed(self, identity: ClientIdentity) -> None:
        """Remove the client's cursor and filter."""


class Instances(Protocol):
    """The destinations of this server."""

    def is_configured(self, destination: str) -> bool:
        """Return whether the destination is configured on this server."""

    def running(self, destination: str) -> RunningInstance | None:
        """Return the instance if it runs here."""

    def start_lazy(self, destination: str) -> RunningInstance | None:
        """Start a configured instance that waits for its first client.

        Returns the instance if it then runs here.
        """

    def status_of(self, destination: str) -> Mapping[str, object] | None:
        """Return a destination's status as JSON values; None: not configured."""


class Lease(Protocol):
    """The right of this server to run one destination.

    One thread calls `open`; then `acquire`, `wait_until_lost` and `release` in turn,
    any number of times; then `close`. Any thread may call the others.
    """

    @property
    def shared(self) -> bool:
        """Return whether other servers compete for it, so that one may wait."""

    @property
    def owner(self) -> str | None:
        """Return the server that is known to run the destination, as `address:port`."""

    def status(self) -> dict[str, object] | None:
        """Return what an operator asks, as JSON values; None if nobody competes."""

    def problem(self) -> LeaseProblem | None:
        """Return why no server may be able to acquire it; None: nothing is wrong.

        Not a short interruption, during which whoever holds it keeps it. While it is
        reported, `owner` may be out of date.
        """

    def open(self, changed: Callable[[], None]) -> None:
        """Announce this server to others; returns at once.

        `changed` is called, by any thread, when `owner` may have changed.
        """

    def acquire(self, stop: Stop) -> bool:
        """Wait until it is held; false when a stop is requested first."""

    def held(self) -> bool:
        """Return whether the lease is certainly held at this moment.

        Cheap, because each request asks. The answer may change at any time, also back
        to true, even before `wait_until_lost` returns.
        """

    def wait_until_lost(self, stop: Stop) -> str:
        """Wait until it is lost, may be lost, or the operator orders to step down.

        Returns the reason, empty when a stop was requested.
        """

    def wake(self) -> None:
        """Make `acquire` and `wait_until_lost` check their stop."""

    def release(self) -> None:
        """Release it if it is still held; what it allowed has ended."""

    def close(self) -> None:
        """Withdraw what `open` announced."""
