"""What is sent in answer to a request: frames, or parts of one; nothing for an ack.

A batch is registered before it is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from canal_server.errors import StoreError
from canal_server.model.positions import PositionRange
from canal_server.protocol.framing import EMPTY_FRAME, messages_header
from canal_server.protocol.server_session import ACK_FRAME, error_frame

if TYPE_CHECKING:
    from canal_server.model.batch import Batch
    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import RunningInstance
    from canal_server.server.session_rights import SessionRights

log = logging.getLogger(__name__)

Reply: TypeAlias = Sequence[bytes | memoryview]

ACCEPTED: Final[Reply] = (ACK_FRAME,)
EMPTY: Final[Reply] = (EMPTY_FRAME,)  # a batch without entries
NOTHING: Final[Reply] = ()


class Refusal(tuple[bytes]):  # noqa: SLOT001  # a tuple cannot have slots
    """A reply that refuses a request; `unlogged` is the reason if no log has it yet."""

    code = 0
    unlogged = ""

    @classmethod
    def of(cls, code: int, message: str, *, is_logged: bool = False) -> Refusal:
        """Return the reply with a code and a text."""
        found = cls((error_frame(code, message),))
        found.code = code
        found.unlogged = "" if is_logged else message
        return found


def registered(
    instance: RunningInstance,
    identity: ClientIdentity,
    batch: Batch,
) -> int:
    """Register a batch and return its id. Requires the identity's lock."""
    at = instance.log_position
    batch_id = instance.meta.add_batch(
        identity,
        PositionRange(
            at(batch.start),
            at(batch.end),
            None if batch.ack is None else at(batch.ack),
            batch.last_sequence,
            {
                source: at(position)
                for source, position in batch.source_positions.items()
            },
        ),
    )
    if log.isEnabledFor(logging.DEBUG):
        log.debug(
            "client %d of %s: batch %d of %d bytes, up to %s",
            identity.client_id,
            identity.destination,
            batch_id,
            batch.size,
            batch.end,
            extra={"batch": batch_id, "position": str(batch.end)},
        )
    return batch_id


def reply_of(
    instance: RunningInstance,
    identity: ClientIdentity,
    batch_id: int,
    batch: Batch,
    rights: SessionRights | None,
) -> Reply:
    """Return a registered batch as a reply, as `rights` show it."""
    try:
        if rights is None:
            return (messages_header(batch_id, batch.size), *batch.slices)

        def filter_of(one: ClientIdentity) -> str:
            known = instance.meta.subscriptions(one.destination)
            return next((each.filter for each in known if each == one), "")

        slices = rights.outgoing(identity, batch, filter_of)
        return (messages_header(batch_id, sum(map(len, slices))), *slices)
    except ValueError as error:  # the batch stays open: a rollback redelivers it
        raise StoreError(f"{error}; ask for fewer entries") from error
