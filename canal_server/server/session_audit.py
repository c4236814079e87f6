"""Notes for the audit what one connection reads and asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.core.row_count import count_rows
from canal_server.protocol import range_messages
from canal_server.users.audit_log import ReadSums

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.model.batch import Batch
    from canal_server.model.identity import ClientIdentity
    from canal_server.users.audit_log import AuditLog

# Ranged requests that are events, by their type.
_RANGED = {
    range_messages.RangeSubscribe: "range_subscribe",
    range_messages.RangeUnsubscribe: "range_unsubscribe",
}


class SessionAudit:
    """The notes of one session, from its log-in to its end; for its thread only."""

    def __init__(self, audit: AuditLog, user: str, address: str) -> None:
        self._audit = audit
        self._user, self._address = user, address
        self._sums = ReadSums(audit, user, address)
        # Of a log-in that subscribes, until it is complete.
        self._early: list[tuple[str, ClientIdentity]] | None = []

    def begin(self, *, certificate: bool) -> None:
        """Note the log-in."""
        how = "certificate" if certificate else "password"
        self.note("login", how=how if self._user else "anonymous")
        early, self._early = self._early or [], None
        for each in early:
            self.on_subscription(*each)

    def end(self) -> None:
        """Note what was read, and the end."""
        self._sums.flush()
        self.note("logout")

    def note(self, event: str, **more: Any) -> None:
        """Note an event of this session."""
        self._audit.note(event, self._user or None, self._address, **more)

    def on_subscription(self, event: str, identity: ClientIdentity) -> None:
        """Note that a client has subscribed, or unsubscribed."""
        if self._early is not None:
            self._early.append((event, identity))
            return
        more = {"filter": identity.filter} if event == "subscribe" else {}
        self.note(
            event,
            destination=identity.destination,
            client_id=identity.client_id,
            **more,
        )

    def on_refusal(self, action: str, destination: str) -> None:
        """Note that the user may not do something with a destination."""
        self._audit.note_refusal(self._user or None, self._address, action, destination)

    def on_batch(
        self,
        identity: ClientIdentity,
        batch: Batch,
        slices: Sequence[bytes | memoryview],
        filter_of: Callable[[ClientIdentity], str],
    ) -> None:
        """Note a batch that is about to be sent, as `slices`."""
        self._sums.add(
            identity,
            batch.start,
            batch.end,
            sum(map(count_rows, slices)),
            sum(map(len, slices)),
            filter_of,
        )

    def on_ranged(self, request: range_messages.RangeRequest) -> None:
        """Note a ranged request that was carried out, if it is an event."""
        event = _RANGED.get(type(request))
        if event is not None:
            self.note(
                event,
                destination=request.destination,
                subscription=getattr(request, "name", ""),
                filter=getattr(request, "filter", ""),
            )

    def on_range(
        self, request: range_messages.RangeRead, rows: int | None, size: int
    ) -> None:
        """Note a range that was read; `rows` is None where they were relayed."""
        self.note(
            "range_read",
            destination=request.destination,
            subscription=request.name,
            filter=request.filter,
            **{"from": str(request.start), "to": str(request.end)},
            rows=rows,
            bytes=size,
        )
