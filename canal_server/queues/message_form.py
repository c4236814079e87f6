"""The form of a destination's messages, as its settings and those of the server ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.queues.flat_messages import FlatMessages
from canal_server.queues.packet_messages import PacketMessages

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig, QueueConfig
    from canal_server.queues.routing import Router

    # Of a batch: its id, its entries as in Messages, the time in ms. What is made of
    # it: topic, partition, bytes.
    Encode = Callable[[int, bytes, int], list[tuple[str, int, bytes]]]


@dataclass(frozen=True, slots=True)
class MessageForm:
    """What messages look like; where they go is left to `routing`."""

    flat: bool  # JSON, not protobuf
    raw: bool  # batches keep their ids if they stay whole
    drops_markers: bool  # begins and ends of transactions

    @classmethod
    def of(cls, instance: InstanceConfig, queue: QueueConfig) -> MessageForm:
        """Return the form that the settings of a destination ask for."""
        return cls(
            queue.flat, instance.store.raw_entry, instance.filter.transaction_entry
        )

    def encoder(self, router: Router) -> Encode:
        """Return what makes the messages; it is for one thread at a time.

        As in the original, begins and ends are left out where batches are not whole.
        """
        if self.flat:
            return FlatMessages(router).convert
        whole = router.keeps_batches
        return PacketMessages(
            router,
            has_batch_id=whole and self.raw,
            has_markers=whole and not self.drops_markers,
        ).convert
