"""Carries out ranged requests of clients: subscriptions, and reading ranges.

The source of ranges is known as a port only (`ports.RangeSource`). All methods are
called by the threads of connections, many at a time. An answer is sent as it grows, so
that a slow reader delays only itself.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Final

from canal_server.core.row_count import count_rows
from canal_server.errors import CanalError, ClientError, MetaStoreError
from canal_server.messages import server_messages
from canal_server.model.quoted import printable
from canal_server.model.ranges import EpochPosition, RangeLimits
from canal_server.protocol import range_messages
from canal_server.protocol.packets import PacketType
from canal_server.protocol.range_messages import IN_USE, NOT_HERE, RangePosition
from canal_server.protocol.server_session import ACK_FRAME, REFUSED, error_frame
from canal_server.server.process_zone import zone_name
from canal_server.users.shown_rows import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from canal_server.ports import Instances, RangeSource, RunningInstance
    from canal_server.server.session_rights import SessionRights

    Send = Callable[[Sequence[bytes | memoryview]], None]

log = logging.getLogger(__name__)

WAIT_S_MAX: Final = 600.0  # for one head
# What a client may need of a destination's status.
STATE_KEYS: Final = (
    "destination", "running", "life", "runs_on", "state", "error", "error_since_ms",
    "position", "position_ms", "lag", "blocked", "slowest_client", "clients",
    "connected", "rows",
)  # fmt: skip
RIGHTS_KEY: Final = "canal.users.file"  # may leave columns out, too
CLAIMS_MAX: Final = 10_000  # subscriptions that queries read at a time


class RangedService:
    """Answers the ranged requests of all connections."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        # By destination and subscription: the query that reads it, and its connection.
        self._claims: dict[tuple[str, str], tuple[str, Hashable]] = {}
        # By the same: the connection that made it, and with which it ends.
        self._temporary: dict[tuple[str, str], Hashable] = {}
        self._lock = threading.Lock()  # of both

    def answer(
        self,
        request: range_messages.RangeRequest,
        asker: Hashable,
        peer_fd: int | None,
        send: Send,
        cut: Callable[[], None] | None = None,
        *,
        rights: SessionRights | None = None,
    ) -> None:
        """Carry a request out and send its answer; raises only what `send` raises.

        `asker` is the connection, for `on_disconnect`, and `peer_fd` its socket. `cut`
        ends the connection from another thread, even during a `send` that waits.
        `rights` are those of the connection's user; None: all.
        """
        try:
            if rights is not None:
                rights.check_ranged(request)
            if isinstance(request, range_messages.RangeStatus):
                send((self._state(request.destination),))
                return
            instance, source = self._source(request.destination)
            if isinstance(request, range_messages.RangeRead):
                _read(source, request, send, cut, rights)
                return
            if isinstance(request, range_messages.RangeHead):
                self._claim(request, asker)
                reply = _head(source, request, peer_fd)
            elif (
                isinstance(request, range_messages.RangeSubscribe) and request.temporary
            ):
                reply = self._subscribe_temporarily(source, request, asker)
            else:
                reply = _noted_answer(source, request, rights)
            if self._instances.running(request.destination) is not instance:
                # It stopped meanwhile: its answer may be wrong by now.
                raise _not_here(request.destination)
        except ClientError as error:
            log.info("refused %s: %s", _log_text(request), error)
            reply = error_frame(error.code, str(error))
        except MetaStoreError as error:
            # The storage of cursors fails now; it, or another server, may work soon.
            server_messages.REQUEST_FAILED.log(log, _log_text(request), error)
            reply = error_frame(NOT_HERE, str(error))
        except CanalError as error:
            server_messages.REQUEST_FAILED.log(log, _log_text(request), error)
            reply = error_frame(REFUSED, str(error))
        send((reply,))

    def claims(self, destination: str) -> dict[str, str]:
        """Return which query reads each subscription that is in use."""
        with self._lock:
            return {
                name: query
                for (owner, name), (query, _) in self._claims.items()
                if owner == destination
            }

    def on_disconnect(self, asker: Hashable) -> None:
        """Note that a connection ended: others may read its subscriptions.

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

        The connection's thread carries out its requests and then notes its end, so that
        the end cannot come during this, however the client disconnected.
        """
        key = request.destination, request.name
        with self._lock:
            is_known = key in self._temporary
            if self._temporary.setdefault(key, asker) is not asker:
                raise ClientError(
                    f"subscription {printable(request.name)} of"
                    f" {request.destination} belongs to another connection until that"
                    " ends: use another name",
                    code=IN_USE,
                )
        try:
            return _answer(source, request)
        except BaseException:
            if not is_known:  # a repeated request may be refused, the first one stays
                self._end_temporary(*key)
            raise

    def _end_temporary(self, destination: str, name: str) -> None:
        """End a temporary subscription if its destination still runs."""
        try:
            instance = self._instances.running(destination)
            if instance is not None and instance.ranges is not None:
                instance.ranges.end_temporary(name)
        except CanalError as error:  # stopping: the subscription is in memory only
            log.info(
                "temporary subscription %s of %s: %s", printable(name), destination,
                error,
            )  # fmt: skip
        with self._lock:
            self._temporary.pop((destination, name), None)

    def _state(self, destination: str) -> bytes:
        """Return the status of a destination, even if it does not run here."""
        found = self._instances.status_of(destination)
        if found is None:
            raise ClientError(f"can't find destination:{printable(destination)}")
        state = {key: found[key] for key in STATE_KEYS if key in found}
        text = json.dumps(state, ensure_ascii=False)
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
                " sources; configure a separate destination for each of them"
            )
        return instance, source

    def _claim(self, request: range_messages.RangeHead, asker: Hashable) -> None:
        """Claim a subscription for a query. Raises ClientError if another has it."""
        if not request.query:
            return
        key = request.destination, request.name
        with self._lock:
            query, who = self._claims.get(key, (request.query, asker))
            if query != request.query and who is not asker:
                raise ClientError(
                    f"subscription {printable(request.name)} of"
                    f" {request.destination} is read by another query, {query!r}: use"
                    " a separate subscription for each query, or end that one",
                    code=IN_USE,
                )
            if key not in self._claims and len(self._claims) >= CLAIMS_MAX:
                raise ClientError(
                    f"{CLAIMS_MAX} subscriptions are in use, the limit", code=NOT_HERE
                )
            self._claims[key] = request.query, asker


# --------------------------------------------------------------------------------
# Requests
# --------------------------------------------------------------------------------


def _noted_answer(
    source: RangeSource,
    request: range_messages.RangeRequest,
    rights: SessionRights | None,
) -> bytes:
    answer = _answer(source, request, rights)
    if rights is not None and rights.audit is not None:
        rights.audit.on_ranged(request)
    return answer


def _answer(
    source: RangeSource,
    request: range_messages.RangeRequest,
    rights: SessionRights | None = None,
) -> bytes:
    match request:
        case range_messages.RangeSubscribe(_, name, expression, start, temporary):
            found, created = source.subscribe(
                name, expression, start or "latest", temporary=temporary
            )
            subscribed = range_messages.RangeSubscribed(
                _wire_position(found.cursor), created, found.filter
            )
            return range_messages.answer(PacketType.RANGE_SUBSCRIBED, subscribed)
        case range_messages.RangePlan():
            return _plan(source, request)
        case range_messages.RangeAck(_, name, position):
            source.ack(name, _epoch_position(position))
            return ACK_FRAME
        case range_messages.RangeSchema():
            return _schema(source, request, rights)
        case range_messages.RangeUnsubscribe(_, name):
            source.unsubscribe(name)
            return ACK_FRAME
        case range_messages.RangeLocate(_, name, text):
            located = _wire_position(source.locate(name, text or "latest"))
            return range_messages.answer(
                PacketType.RANGE_POSITION, range_messages.RangeFound(located)
            )
    raise AssertionError(f"{request!r} is answered elsewhere")


def _head(
    source: RangeSource, request: range_messages.RangeHead, peer_fd: int | None
) -> bytes:
    start = _epoch_position(request.start)
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
        _wire_position(found.end),
        found.rows,
        found.bytes,
        _wire_position(found.latest),
        found.latest_ms,
    )
    return range_messages.answer(PacketType.RANGE_ENDS, ends)


def _plan(source: RangeSource, request: range_messages.RangePlan) -> bytes:
    ends = _epoch_position(request.start), _epoch_position(request.end)
    found = source.plan(request.name, request.filter, *ends, request.parts)
    parts = tuple(
        range_messages.RangePart(
            _wire_position(part.start),
            _wire_position(part.end),
            part.rows,
            part.bytes,
            RangePosition() if part.commit is None else _wire_position(part.commit),
            part.commit_ms,
        )
        for part in found
    )
    return range_messages.answer(
        PacketType.RANGE_PARTS, range_messages.RangeParts(parts)
    )


def _read(
    source: RangeSource,
    request: range_messages.RangeRead,
    send: Send,
    cut: Callable[[], None] | None,
    rights: SessionRights | None,
) -> None:
    redaction = None if rights is None else rights.redaction(request.destination)
    audit = None if rights is None else rights.audit
    number = sent_bytes = rows = 0

    def take(slices: Sequence[bytes | memoryview], size: int) -> None:
        nonlocal number, sent_bytes, rows
        if redaction is not None:
            slices = (redacted(redaction, slices),)
            size = len(slices[0])
            if not size:
                return
        number += 1
        sent_bytes += size
        if audit is not None and not relays:
            rows += sum(map(count_rows, slices))
        send((range_messages.piece_header(number, size), *slices))

    ends = _epoch_position(request.start), _epoch_position(request.end)
    # Rows as the binlog has them cannot be redacted; who asks for them may get entries.
    relays = request.wire == range_messages.Wire.BINLOG and redaction is None
    source.read(request.name, request.filter, *ends, take, relays=relays, cut=cut)
    if audit is not None:
        audit.on_range(request, None if relays else rows, sent_bytes)
    send((range_messages.LAST_FRAME,))


def _schema(
    source: RangeSource,
    request: range_messages.RangeSchema,
    rights: SessionRights | None,
) -> bytes:
    at = _epoch_position(request.at) if request.at.journal else None
    meta = source.columns(request.schema, request.table, at)
    shown = None if rights is None else rights.shown(request.destination)
    if shown is not None and not shown.shows(request.schema, request.table):
        meta = None
    columns = tuple(
        range_messages.RangeColumn(
            each.name,
            each.mysql_type,
            each.is_key,
            each.nullable,
            each.charset or "",
            each.generated,
        )
        for each in (meta.columns if meta is not None else ())
        if shown is None or shown.has(request.schema, request.table, each.name)
    )
    left_out = "" if meta is None else source.left_out(meta)
    if meta is not None and len(columns) < len(meta.columns):
        hidden = f"columns ({RIGHTS_KEY})"
        left_out = f"{left_out}, {hidden}" if left_out else hidden
    table = range_messages.RangeTable(meta is not None, columns, zone_name(), left_out)
    return range_messages.answer(PacketType.RANGE_TABLE, table)


def _epoch_position(position: RangePosition) -> EpochPosition:
    return EpochPosition(
        position.epoch,
        position.journal,
        position.position,
        position.begin,
        position.gtids,
    )


def _wire_position(position: EpochPosition) -> RangePosition:
    return RangePosition(
        position.epoch,
        position.journal,
        position.position,
        position.begin,
        position.gtids,
    )


def _not_here(destination: str) -> ClientError:
    return ClientError(
        f"destination {printable(destination)} does not run on this server",
        code=NOT_HERE,
    )


def _log_text(request: range_messages.RangeRequest) -> str:
    """Return a request as text for the log."""
    name = getattr(request, "name", "")
    of = f" of subscription {printable(name)}" if name else ""
    return f"a {type(request).__name__}{of} of {printable(request.destination)}"
