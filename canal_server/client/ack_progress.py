"""What a program was given and has handled, and which message to ack by its policy.

Leaves out sending: who acks a message notes it here (`message_stream`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from canal_server.client.client_options import AckPolicy
    from canal_server.client.received_message import Message

NO_BATCH: Final = -1  # the id of a message that completes no batch


class AckProgress:
    """The messages that were handed out and not acked, by the ids of their batches."""

    def __init__(self, policy: AckPolicy, *, ends_transactions: bool) -> None:
        """`ends_transactions`: each message ends where a transaction ends."""
        self._policy = policy
        self._ends_transactions = ends_transactions
        self.iterates = False  # or the program sends requests one by one
        self.last: Message | None = None  # handed out and not acked
        self._at_hand: Message | None = None  # handed out and not handled
        self._handled_id: int | None = None  # handled and not acked, by a time
        self._previous_id = NO_BATCH  # of the message handled before
        self._acked_at = time.monotonic()
        self.is_abandoned = False  # an iteration ended with a message at hand
        self.will_repeat = False  # something that was handed out comes again

    def begin_iteration(self) -> None:
        """Note that an iteration begins; the one before may have ended amid a message.

        Then that is delivered again, unless the program acks by itself.
        """
        if self._at_hand is not None and self._policy != "manual":
            self.is_abandoned = True
        self._at_hand = None
        self.iterates = True

    def hand_out(self, message: Message) -> None:
        """Note that the program gets a message."""
        self.last = self._at_hand = message

    def forget(self, *, is_split: bool) -> None:
        """Note that what was handed out and not acked comes again.

        `is_split`: so does a batch of which a part was handed out.
        """
        if self.last is not None or is_split:
            self.will_repeat = True
        self.last = self._at_hand = self._handled_id = None
        self._previous_id = NO_BATCH
        self.is_abandoned = False

    def handle(self, message: Message) -> int | None:
        """Note that a message was handled; return what to ack now."""
        self._at_hand = None
        if self._policy == "manual" or self.last is not message:
            return None  # acked by the program, or it will be delivered again
        if self._policy == "transaction" and not self._ends_transactions:
            return self._handled_transactions(message)
        if isinstance(self._policy, str):
            return message.id
        if message.id != NO_BATCH:
            self._handled_id = message.id
        return self.due_id()

    def _handled_transactions(self, message: Message) -> int | None:
        """Return the newest message whose transactions were handled to their ends."""
        previous, self._previous_id = self._previous_id, message.id
        if message.ends_transaction:
            return message.id
        if previous != NO_BATCH and message.has_transaction_end:
            return previous
        return None

    @property
    def handled_id(self) -> int | None:
        """What was handled and waits for its ack."""
        return self._handled_id

    def due_id(self) -> int | None:
        """Return what to ack because its time has come."""
        if isinstance(self._policy, str):
            return None
        is_due = time.monotonic() - self._acked_at >= self._policy
        return self._handled_id if is_due else None

    def begin_ack(self, message_id: int) -> None:
        """Note that an ack is sent, of this message and all before it."""
        self._acked_at = time.monotonic()
        if self._handled_id is not None and self._handled_id <= message_id:
            self._handled_id = None

    def end_ack(self, message_id: int) -> None:
        """Note that it was sent."""
        # A part that completes no batch is not acked by an earlier batch.
        if self.last is not None and NO_BATCH < self.last.id <= message_id:
            self.last = self._at_hand = None
