"""What ranged requests of clients do: subscriptions, and reading ranges.

Knows what serves them as a port only (`ports.RangeSource`). All methods are called by
the threads of connections, many at a time. An answer is sent as it grows: whoever
takes it slowly holds up nobody but itself.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError, ClientError, MetaStoreError
from canal_server.model.quoted import printable
from canal_server.model.ranges import RangeLimits, RangePlace
from canal_server.protocol import range_messages
from canal_server.protocol.packets import PacketType
from canal_server.protocol.range_messages import IN_USE, NOT_HERE, RangePosition
from canal_server.protocol.server_session import ACK_FRAME, REFUSED, error_frame
from canal_server.server.process_zone import zone_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from canal_server.ports import Instances, RangeSource, RunningInstance

    Send = Callable[[Sequence[bytes | memoryview]], None]

log = logging.getLogger(__name__)

WAIT_S_MAX: Final = 600.0  # of one head
# Of the status of a destination: what a client may want to know.
STATE_KEYS: Final = (
    "destination", "running", "life", "runs_on", "state", "error", "error_since_ms",
    "position", "position_ms", "lag", "blocked", "slowest_client", "clients",
    "connected", "rows",
)  # fmt: skip
CLAIMS_MAX: Final = 10_000  # subscriptions that are read by queries at a time


class RangedService:
    """Answers the ranged requests of all connections."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        # By destination and subscription: which query reads it, on which connection.
        self._claims: dict[tuple[str, str], tuple[str, Hashable]] = {}
        # By the same: on which connection it was made, with which it ends.
        self._temporary: dict[tuple[str, str], Hashable] = {}
        self._lock = threading.Lock()  # of both

    def answer(
        self,
        request: range_messages.RangeRequest,
        asker: Hashable,
        peer_fd: int | None,
        send: Send,
        cut: Callable[[], None] | None = None,
    ) -> None:
        """Carry a request out and send its answer; raises only what `send` raises.

        `asker` is the connection, of which `left` is told, and `peer_fd` its socket.
        `cut` ends the connection from another thread, also a `send` that waits.
        """
        try:
            if isinstance(request, range_messages.RangeStatus):
                send((self._state(request.destination),))
                return
            instance, source = self._source(request.destination)
            if isinstance(request, range_messages.RangeRead):
                _read(source, request, send, cut)
                return
            if isinstance(request, range_messages.RangeHead):
                self._claim(request, asker)
                reply = _head(source, request, peer_fd)
            elif (
                isinstance(request, range_messages.RangeSubscribe) and request.temporary
            ):
                reply = self._subscribe_temporarily(source, request, asker)
            else:
                reply = _answer(source, request)
            if self._instances.running(request.destination) is not instance:
                # It went meanwhile: what it says may be wrong by now.
                raise _not_here(request.destination)
        except ClientError as error:
            log.info("refused %s: %s", _told(request), error)
            reply = error_frame(error.code, str(error))
        except MetaStoreError as error:
            # Where cursors are kept cannot be had now; soon it may, or another server.
            log.warning("could not answer %s: %s", _told(request), error)
            reply = error_frame(NOT_HERE, str(error))
        except CanalError as error:
            log.warning("could not answer %s: %s", _told(request), error)
            reply = error_frame(REFUSED, str(error))
        send((reply,))

    def claims(self, destination: str) -> dict[str, str]:
        """Return which query reads each subscription that is being read."""
        with self._lock:
            return {
                name: query
                for (owner, name), (query, _) in self._claims.items()
                if owner == destination
            }

    def on_disconnect(self, asker: Hashable) -> None:
        """Take note that a connection ended: others may read what it read.

        Its temporary subscriptions end. Never raises.
        """
        if not (self._claims or self._temporary):  # ordinary clients need no lock
            return
        with self._lock:
            for key in [k for k, (_, who) in self._claims.items() if who is asker]:
                del self._claims[key]
            ended = [key for key, who in self._temporary.items() if who is asker]
        for destination, name in ended:
            self._end_temporary(destination, name)

    def _subscribe_temporarily(
        self,
        source: RangeSource,
        request: range_messages.RangeSubscribe,
        asker: Hashable,
    ) -> bytes:
        """Subscribe until the connection ends. Raises ClientError, CanalError.

        The connection's thread carries its requests out, and then takes note of its
        end: that cannot come amid this, however the client went.
        """
        key = request.destination, request.name
        with self._lock:
            is_known = key in self._temporary
            if self._temporary.setdefault(key, asker) is not asker:
                raise ClientError(
                    f"subscription {printable(request.name)} of"
                    f" {request.destination} is that of another connection until it"
                    " ends: take another name",
                    code=IN_USE,
                )
        try:
            return _answer(source, request)
        except BaseException:
            if not is_known:  # it may have been refused when it was there
                self._end_temporary(*key)
            raise

    def _end_temporary(self, destination: str, name: str) -> None:
        """End a temporary subscription where its destination still runs."""
        try:
            instance = self._instances.running(destination)
            if instance is not None and instance.ranges is not None:
                instance.ranges.end_temporary(name)
        except CanalError as error:  # it stops: the subscription is in memory only
            log.info(
                "temporary subscription %s of %s: %s", printable(name), destination,
                error,
            )  # fmt: skip
        with self._lock:
            self._temporary.pop((destination, name), None)

    def _state(self, destination: str) -> bytes:
        """Return what a destination does, also one that does not run here."""
        found = self._instances.status_of(destination)
        if found is None:
            raise ClientError(f"can't find destination:{printable(destination)}")
        told = {key: found[key] for key in STATE_KEYS if key in found}
        text = json.dumps(told, ensure_ascii=False)
        return range_messages.answer(
            PacketType.RANGE_STATE, range_messages.RangeState(text)
        )

    def _source(self, destination: str) -> tuple[RunningInstance, RangeSource]:
        instance = self._instances.running(destination)
        if instance is None:
            if not self._instances.is_configured(destination):
                raise ClientError(f"can't find destination:{printable(destination)}")
            instance = self._instances.start_lazy(destination)
        if instance is None:
            raise _not_here(destination)
        source = instance.ranges
        if source is None:
            raise ClientError(
                f"destination {destination} has no ranged reads: it merges several"
                " sources; read each of them as a destination of its own"
            )
        return instance, source

    def _claim(self, request: range_messages.RangeHead, asker: Hashable) -> None:
        """Make a subscription this query's. Raises ClientError if it is another's."""
        if not request.query:
            return
        key = request.destination, request.name
        with self._lock:
            query, who = self._claims.get(key, (request.query, asker))
            if query != request.query and who is not asker:
                raise ClientError(
                    f"subscription {printable(request.name)} of"
                    f" {request.destination} is read by another query, {query!r}: give"
                    " each query a subscription of its own, or end that one",
                    code=IN_USE,
                )
            if key not in self._claims and len(self._claims) >= CLAIMS_MAX:
                raise ClientError(
                    f"{CLAIMS_MAX} subscriptions are read already", code=NOT_HERE
                )
            self._claims[key] = request.query, asker


# --------------------------------------------------------------------------------
# Requests
# --------------------------------------------------------------------------------


def _answer(source: RangeSource, request: range_messages.RangeRequest) -> bytes:
    match request:
        case range_messages.RangeSubscribe(_, name, expression, start, temporary):
            found, created = source.subscribe(
                name, expression, start or "latest", temporary=temporary
            )
            subscribed = range_messages.RangeSubscribed(
                _position(found.cursor), created, found.filter
            )
            return range_messages.answer(PacketType.RANGE_SUBSCRIBED, subscribed)
        case range_messages.RangePlan():
            return _plan(source, request)
        case range_messages.RangeAck(_, name, position):
            source.ack(name, _place(position))
            return ACK_FRAME
        case range_messages.RangeSchema():
            return _schema(source, request)
        case range_messages.RangeUnsubscribe(_, name):
            source.unsubscribe(name)
            return ACK_FRAME
        case range_messages.RangeLocate(_, name, place):
            found_place = _position(source.locate(name, place or "latest"))
            return range_messages.answer(
                PacketType.RANGE_PLACE, range_messages.RangeFound(found_place)
            )
    raise AssertionError(f"{request!r} is answered elsewhere")


def _head(
    source: RangeSource, request: range_messages.RangeHead, peer_fd: int | None
) -> bytes:
    start = _place(request.start)
    if request.ack:
        source.ack(request.name, start)
    found = source.head(
        request.name,
        start,
        RangeLimits(request.max_rows, request.max_bytes),
        min(request.wait_ms / 1000, WAIT_S_MAX),
        peer_fd,
    )
    ends = range_messages.RangeEnds(
        _position(found.end),
        found.rows,
        found.bytes,
        _position(found.latest),
        found.latest_ms,
    )
    return range_messages.answer(PacketType.RANGE_ENDS, ends)


def _plan(source: RangeSource, request: range_messages.RangePlan) -> bytes:
    ends = _place(request.start), _place(request.end)
    found = source.plan(request.name, request.filter, *ends, request.parts)
    told = tuple(
        range_messages.RangePart(
            _position(part.start),
            _position(part.end),
            part.rows,
            part.bytes,
            RangePosition() if part.commit is None else _position(part.commit),
            part.commit_ms,
        )
        for part in found
    )
    return range_messages.answer(
        PacketType.RANGE_PARTS, range_messages.RangeParts(told)
    )


def _read(
    source: RangeSource,
    request: range_messages.RangeRead,
    send: Send,
    cut: Callable[[], None] | None,
) -> None:
    number = 0

    def take(slices: Sequence[bytes | memoryview], size: int) -> None:
        nonlocal number
        number += 1
        send((range_messages.piece_header(number, size), *slices))

    ends = _place(request.start), _place(request.end)
    relays = request.wire == range_messages.Wire.BINLOG
    source.read(request.name, request.filter, *ends, take, relays=relays, cut=cut)
    send((range_messages.LAST_FRAME,))


def _schema(source: RangeSource, request: range_messages.RangeSchema) -> bytes:
    at = _place(request.at) if request.at.journal else None
    meta = source.columns(request.schema, request.table, at)
    columns = tuple(
        range_messages.RangeColumn(
            each.name,
            each.mysql_type,
            each.is_key,
            each.nullable,
            each.charset or "",
        )
        for each in (meta.columns if meta is not None else ())
    )
    left_out = "" if meta is None else source.left_out(meta)
    table = range_messages.RangeTable(meta is not None, columns, zone_name(), left_out)
    return range_messages.answer(PacketType.RANGE_TABLE, table)


def _place(position: RangePosition) -> RangePlace:
    return RangePlace(
        position.epoch,
        position.journal,
        position.position,
        position.begin,
        position.gtids,
    )


def _position(place: RangePlace) -> RangePosition:
    return RangePosition(
        place.epoch, place.journal, place.position, place.begin, place.gtids
    )


def _not_here(destination: str) -> ClientError:
    return ClientError(
        f"destination {printable(destination)} does not run on this server",
        code=NOT_HERE,
    )


def _told(request: range_messages.RangeRequest) -> str:
    """Return a request for the log."""
    name = getattr(request, "name", "")
    of = f" of subscription {printable(name)}" if name else ""
    return f"a {type(request).__name__}{of} of {printable(request.destination)}"
