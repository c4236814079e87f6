"""Ranged reads of one destination: cursors, ends of batches, parts and entries.

::

    tail (memory) ── where it holds the whole range, and everything the filter selects
    RangeDump     ── else: the source's binlog, read again

Both return the same entries. Implements `ports.RangeSource`; its methods are called by
connection threads. Leaves out the wire (`canal_server.server.range_service`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import ClientError, StoreError
from canal_server.filters.client_filters import SIZE_MAX
from canal_server.filters.filter_union import FilterUnion
from canal_server.filters.left_out import left_out
from canal_server.messages import ranged_read_messages
from canal_server.model.quoted import quoted
from canal_server.model.ranges import Subscription
from canal_server.protocol.range_messages import ACKED, IN_USE, UNKNOWN_SUBSCRIPTION
from canal_server.ranges.range_access import RangeAccess
from canal_server.ranges.range_columns import TablesAt
from canal_server.ranges.range_heads import RangeHeads
from canal_server.ranges.range_parts import parts_of
from canal_server.ranges.range_source import check_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.config.schema import InstanceConfig
    from canal_server.core.table_ids import TableIds
    from canal_server.filters.filter_union import Verdicts
    from canal_server.filters.table_filters import TableFilter
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ranges import (
        EpochPosition,
        RangeEnds,
        RangeLimits,
        RangePart,
    )
    from canal_server.ports import Span, TablePredicate
    from canal_server.ranges.range_access import Live
    from canal_server.ranges.range_cursors import Subscriptions
    from canal_server.ranges.selection import RangeWalk

    Take = Callable[[Sequence[bytes | memoryview], int], None]

_log = logging.getLogger(__name__)

PIECE_BYTES: Final = 1 << 20  # of a reply, approximately


class RangedReads:
    """One destination's ranged reads; `change` receives their table filter, if any."""

    def __init__(
        self,
        config: InstanceConfig,
        subscriptions: Subscriptions,
        change: Callable[[TablePredicate | None], None],
    ) -> None:
        self._config = config
        self._subscriptions = subscriptions
        self._change = change
        self._union = FilterUnion(())
        self._lock = threading.Lock()  # one change of subscriptions at a time
        self._access = RangeAccess(config, subscriptions)
        self._heads = RangeHeads(self._access)
        self._tables = TablesAt(self._access)

    # --- the instance's side ----------------------------------------------------------

    def start(self) -> None:
        """Load what is stored. Raises MetaStoreError."""
        self._subscriptions.start(self._access.stop)
        self._apply_filters()
        for each in self._subscriptions.all():
            try:
                self._access.filter_of(each.filter)
            except ClientError as error:
                ranged_read_messages.SUBSCRIPTION_UNREADABLE.log(
                    _log, self._config.destination, each.name, error
                )

    def attach(self, live: Live) -> None:
        """Read from these stages from now on; they have not started yet."""
        self._access.attach(live)
        self._apply_filters()

    def request_stop(self) -> None:
        """End all reads and waits; returns at once."""
        self._access.request_stop()

    def stop(self) -> None:
        """Close the storage."""
        self._subscriptions.stop()

    def status(self) -> dict[str, object]:
        """Return the status for an operator, as plain values."""
        subscriptions = self._subscriptions.all()
        return {
            "subscriptions": {
                each.name: {
                    "position": str(each.cursor),
                    "acked_ms": each.acked_ms,
                    "temporary": each.temporary,
                    "unacked_s": self._unacked_s(each),
                }
                for each in subscriptions
            },
            "from_memory": self._access.answered["memory"],
            "from_binlog": self._access.answered["binlog"],
        }

    def _unacked_s(self, subscription: Subscription) -> float | None:
        """Return the time since the last ack, 0 if it has acked all; None: none yet."""
        if not subscription.acked_ms:
            return None
        live, cursor = self._access.stages(), subscription.cursor
        latest = live.pump.delivered_to
        is_same = self._access.epoch_of(live) in (None, cursor.epoch)
        if latest is not None and is_same and cursor.order()[1:] >= latest.order():
            return 0.0
        return max(0.0, time.time() - subscription.acked_ms / 1000)

    def _check_room(self, added: TableFilter) -> None:
        """Raise ClientError when all filters together would be too large."""
        others = sum(each.size for each in self._union.filters - {added})
        if others + added.size > SIZE_MAX:
            raise ClientError(
                f"filter {quoted(added.white)}: the filters of all subscriptions of"
                f" {self._config.destination} together are too large (limit"
                f" {SIZE_MAX}, {others} are in use, this one has {added.size});"
                " simplify it or remove unused subscriptions"
            )

    def _apply_filters(self, judged: Verdicts | None = None) -> None:
        """Pass the filter to the pump, and record what it reads while it is set."""
        table_filter = []
        for each in self._subscriptions.all():
            with contextlib.suppress(ClientError):  # reported at the start
                table_filter.append(self._access.filter_of(each.filter))
        self._access.stages().tail.enable(on=bool(table_filter))
        if table_filter:
            self._union = FilterUnion(table_filter, self._union, judged)
        self._change(self._union if table_filter else None)
        if not table_filter:
            self._access.replays.forget()
            self._tables.forget()

    # --- cursors ----------------------------------------------------------------------

    def subscribe(
        self, name: str, expression: str, start: str, *, temporary: bool = False
    ) -> tuple[Subscription, bool]:
        """Return the subscription with this filter, and whether it is new."""
        table_filter = self._access.filter_of(expression, probe=True)
        # On this thread, before others wait for it.
        judged = {table_filter: self._union.judged_by(table_filter)}
        found = self._subscriptions.find(name)
        if found is not None and found.temporary is not temporary:
            kind = "temporary" if found.temporary else "kept"
            raise ClientError(
                f"subscription {name} already exists, a {kind} one: choose another"
                " name",
                code=IN_USE,
            )
        if found is not None and found.filter == expression:
            return found, False
        with self._access.dump() as dump:
            if found is None:
                cursor = dump.with_set(dump.position_of(start))
                subscription = Subscription(
                    name, expression, cursor, temporary=temporary
                )
            else:
                subscription = replace(found, filter=expression)
            with self._lock:
                self._check_room(table_filter)
                self._access.suspend(name)
                self._subscriptions.put(subscription)
                self._heads.forget(name)
                self._apply_filters(judged)
                # What the source wrote up to now may have been read without it.
                self._access.admit(name, expression, dump.position_of("latest"))
        _log.info(
            "destination %s: subscription %s is at %s, filter %s",
            self._config.destination,
            name,
            subscription.cursor,
            quoted(expression),
        )
        return subscription, found is None

    def unsubscribe(self, name: str) -> None:
        """Delete a subscription."""
        with self._lock:
            if not self._subscriptions.remove(name):
                raise _unknown(name)
            self._heads.forget(name)
            self._access.forget(name)
            self._apply_filters()

    def end_temporary(self, name: str) -> None:
        """Delete a subscription if the name exists and it is temporary."""
        found = self._subscriptions.find(name)
        if found is not None and found.temporary:
            with contextlib.suppress(ClientError):  # an operator removed it meanwhile
                self.unsubscribe(name)

    def subscriptions(self) -> tuple[list[Subscription], int | None]:
        """Return all subscriptions, and the last epoch if there is one."""
        epoch = self._subscriptions.epoch()
        return self._subscriptions.all(), None if epoch is None else epoch.number

    def ack(self, name: str, position: EpochPosition) -> None:
        """Move a cursor forward, never back."""
        epoch = self._subscriptions.epoch()
        if epoch is not None and position.epoch > epoch.number:
            check_epoch(position, epoch)
        if not self._subscriptions.ack(name, position):
            raise _unknown(name)

    def locate(self, name: str, text: str) -> EpochPosition:
        """Return the boundary for a start; `acked` means the cursor."""
        if text == ACKED:
            return self._find(name).cursor
        with self._access.dump() as dump:
            found = dump.position_of(text)
            if not name:
                return found
            # The position of a stream, which may resume on another server. From the
            # cursor on, as reading its whole file takes seconds.
            subscription = self._subscriptions.find(name)
            since = None if subscription is None else subscription.cursor
            return dump.with_set(found, since)

    # --- ends, parts and entries ------------------------------------------------------

    def head(
        self,
        name: str,
        start: EpochPosition,
        limits: RangeLimits,
        wait_s: float,
        peer_fd: int | None = None,
    ) -> RangeEnds:
        """Return how far a range after `start` may go; waits for its first change."""
        start = _with_known_set(start, self._find(name))
        return self._heads.head(
            lambda: self._find(name), start, limits, wait_s, peer_fd
        )

    def plan(
        self,
        name: str,
        expression: str,
        start: EpochPosition,
        end: EpochPosition,
        parts: int,
    ) -> list[RangePart]:
        """Cut a range at events, into at most that many parts."""
        _check_order(start, end)
        subscription = self._find(name) if name else None
        if start == end:
            return []
        walk: RangeWalk | None = None
        if subscription is not None:
            expression = subscription.filter
            start = _with_known_set(start, subscription)
            if start.epoch == end.epoch:
                known = self._heads.known(subscription, start, end)
                if known is not None and self._access.is_now(end):
                    found = parts_of(start, end, *known, parts)
                    return self._access.with_sets(found)
                walk = self._cuts_in_memory(subscription, start, end)
        if walk is None:
            return self._parts_in_binlog(expression, start, end, parts)
        totals = walk.rows, walk.bytes
        found = parts_of(start, end, totals, walk.found_cuts(), parts)
        return self._access.with_sets(found)

    def _cuts_in_memory(
        self, subscription: Subscription, start: EpochPosition, end: EpochPosition
    ) -> RangeWalk | None:
        held = self._access.held(subscription, start, end)
        if held is None:
            return None
        walk = self._access.walk_of(subscription.filter, start, end, held[1])
        try:
            walk.walk(held[0])
        except StoreError:
            return None
        return walk

    def _parts_in_binlog(
        self, expression: str, start: EpochPosition, end: EpochPosition, parts: int
    ) -> list[RangePart]:
        """Return the parts of a range of any epoch; they end in the current one."""
        with self._access.dump() as dump:
            start, end = dump.range_of(start, end)
            first = self._access.mapped(dump, start)
            dump.check(end)
            if first.position.order() > end.order():
                return []
            table_filter = self._access.filter_of(expression)
            walk = dump.walk(table_filter, first.position, end, skips=first.skips)
        totals = walk.rows, walk.bytes
        if first.skips is not None:
            return parts_of(start, end, totals, (), 1)
        begin = replace(first.position, gtids=start.gtids)
        return parts_of(begin, end, totals, walk.found_cuts(), parts)

    def read(
        self,
        name: str,
        expression: str,
        start: EpochPosition,
        end: EpochPosition,
        take: Take,
        *,
        relays: bool = False,
        cut: Callable[[], None] | None = None,
    ) -> None:
        """Pass the entries of a range to `take`, piece by piece.

        `relays`: rows need not be rendered. `cut` ends a `take` on another thread.
        """
        _check_order(start, end)
        held = None
        if name:
            subscription = self._find(name)
            expression = subscription.filter
            start = _with_known_set(start, subscription)
        if name and start.epoch == end.epoch:
            held = self._access.held(subscription, start, end)

        def send(walk: RangeWalk) -> None:
            slices, size = walk.take()
            if size:
                with self._access.sending(cut):
                    take(slices, size)

        if held is not None and self._read_memory(held, expression, start, end, send):
            return
        with self._access.dump() as dump:
            first = self._access.mapped(dump, start)
            dump.check(end)
            if first.position.order() > end.order():
                return

            def deliver(walk: RangeWalk) -> bool:
                send(walk)
                return True

            table_filter = self._access.filter_of(expression)
            dump.walk(
                table_filter,
                first.position,
                end,
                take=deliver,
                picks=True,
                relays=relays,
                skips=first.skips,
            )

    def _read_memory(
        self,
        held: tuple[list[Span], TableIds],
        expression: str,
        start: EpochPosition,
        end: EpochPosition,
        send: Callable[[RangeWalk], None],
    ) -> bool:
        """Send what the tail holds; false when it failed before anything was sent."""
        spans, table_ids = held
        walk = self._access.walk_of(expression, start, end, table_ids, picks=True)
        spans.reverse()
        has_given = False
        # As many as dumps: each may hold a whole tail's memory.
        with self._access.slot():
            while spans and not walk.is_over:
                try:
                    walk.walk((spans.pop(),))
                except StoreError:
                    if has_given:
                        raise
                    return False
                if walk.size >= PIECE_BYTES:
                    has_given = True
                    send(walk)
            send(walk)
        return True

    def columns(
        self, schema: str, table: str, at: EpochPosition | None
    ) -> TableMeta | None:
        """Return a table's columns at a position, None for now.

        Returns None when the table does not exist.
        """
        if at is not None:
            return self._tables.find(schema, table, at)
        with self._access.dump() as dump:
            images, position = dump.images(None)
            return images.find(schema, table, position)

    def left_out(self, table: TableMeta) -> str:
        """Return what filters hide of a table from all readers; empty: nothing."""
        names = [column.name for column in table.columns]
        return left_out(self._config.filter, table.schema, table.table, names)

    # --- inside -----------------------------------------------------------------------

    def _find(self, name: str) -> Subscription:
        found = self._subscriptions.find(name)
        if found is None:
            raise _unknown(name)
        return found


def _with_known_set(
    position: EpochPosition, subscription: Subscription
) -> EpochPosition:
    """Return a position with the set of the subscription's cursor there, if any."""
    if position.gtids or position != subscription.cursor:
        return position
    return replace(position, gtids=subscription.cursor.gtids)


def _check_order(start: EpochPosition, end: EpochPosition) -> None:
    if end.order() < start.order():
        raise ClientError(f"invalid range: its end {end} is before its start {start}")


def _unknown(name: str) -> ClientError:
    return ClientError(
        f"there is no subscription {name}; subscribe first", code=UNKNOWN_SUBSCRIPTION
    )
