"""What the user of one connection may do, and what it may see of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.errors import ClientError
from canal_server.model.quoted import printable, quoted
from canal_server.protocol import range_messages, server_session
from canal_server.users.rights import Right, ShownColumns
from canal_server.users.shown_rows import redacted, redaction_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canal_server.model.batch import Batch
    from canal_server.model.identity import ClientIdentity
    from canal_server.server.session_audit import SessionAudit
    from canal_server.users.redaction import Redaction
    from canal_server.users.rights import ReadRule, User


DESTINATION_MAX = 100  # characters of one in the audit, which may not exist


class SessionRights:
    """The rights of the user who logged in on a connection; for its thread only.

    What a rule does not show is removed from the bytes that are about to be sent,
    whatever was subscribed to, and by whom.
    """

    def __init__(self, user: User, audit: SessionAudit | None = None) -> None:
        """Create for a user; `audit` notes what is read, unless it is None."""
        self.user = user
        self.audit = audit
        # By destination; None where all is shown.
        self._redactions: dict[str, Redaction | None] = {}

    # --- requests ---------------------------------------------------------------------

    def check(self, request: server_session.Request) -> None:
        """Raise ClientError for a request that the user may not make."""
        identity: ClientIdentity | None = getattr(request, "identity", None)
        if isinstance(request, server_session.Login):
            identity = request.subscribe
        if identity is not None:
            rule = self._read_rule(identity.destination)
            if not rule.allows_client(identity.client_id):
                raise self._refused(
                    f"use client id {identity.client_id} of", identity.destination
                )

    def check_ranged(self, request: range_messages.RangeRequest) -> None:
        """Raise ClientError for a ranged request that the user may not make."""
        destination = request.destination
        if isinstance(request, range_messages.RangeStatus):
            if not (
                self.user.may(Right.OBSERVE, destination)
                or self.user.may(Right.READ, destination)
            ):
                raise self._refused("observe", destination)
            return
        if not self.user.may(Right.RANGES, destination):
            raise self._refused("read ranges of", destination)
        name = getattr(request, "name", "")
        if name and not self._read_rule(destination).allows_subscription(name):
            raise self._refused(f"use subscription {printable(name)} of", destination)

    def completed(self, identity: ClientIdentity) -> ClientIdentity:
        """Return a client that subscribes; without a filter, with the user's tables."""
        rule = self._read_rule(identity.destination)
        if identity.filter or not rule.tables:
            return identity
        return type(identity)(identity.destination, identity.client_id, rule.tables)

    # --- answers ----------------------------------------------------------------------

    def redaction(self, destination: str) -> Redaction | None:
        """Return what removes from batches what is not shown, None if all is shown."""
        if destination not in self._redactions:
            rule = self._read_rule(destination)
            self._redactions[destination] = redaction_of(rule)
        return self._redactions[destination]

    def outgoing(
        self,
        identity: ClientIdentity,
        batch: Batch,
        filter_of: Callable[[ClientIdentity], str],
    ) -> Sequence[bytes | memoryview]:
        """Return the bytes of a batch as the user may see them, and note them.

        `filter_of` returns the filter of a subscribed client.
        """
        redaction = self.redaction(identity.destination)
        slices: Sequence[bytes | memoryview] = batch.slices
        if redaction is not None:
            slices = (redacted(redaction, slices),)
        if self.audit is not None:
            self.audit.on_batch(identity, batch, slices, filter_of)
        return slices

    def shown(self, destination: str) -> ShownColumns | None:
        """Return which columns of a destination are shown, None if all are."""
        rule = self._read_rule(destination)
        return ShownColumns(rule) if rule.is_limited else None

    def _read_rule(self, destination: str) -> ReadRule:
        rule = self.user.read_rule(destination)
        if rule is None:
            raise self._refused("read", destination)
        return rule

    def _refused(self, what: str, destination: str) -> ClientError:
        """Note that something is refused, and return the error."""
        if self.audit is not None:
            action = what.removesuffix(" of")
            self.audit.on_refusal(action, destination[:DESTINATION_MAX])
        return ClientError(
            f"user {quoted(self.user.name)} may not {what} destination"
            f" {printable(destination)}: rights are in the server's canal.users.file",
            code=server_session.REFUSED,
        )
