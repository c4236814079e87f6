"""What is sent again after a failure: what the broker has not confirmed.

A batch stays as it is until its ack, so that the same messages are made of it again, in
the same order. Of each partition, those before the first one that failed are left out;
from there on all are sent, as what was confirmed after it would be out of order. So
they are of the batches that follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from canal_server.queues.producers.queue_producer import Sending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from canal_server.queues.producers.queue_producer import Message, Partition
    from canal_server.server.local_client import Fetched


class OpenBatch(NamedTuple):
    """A batch whose messages were handed over, or are about to be.

    `slices` are its entries in the ring. `confirmed` counts the messages of partitions
    that the broker has from earlier sendings.
    """

    batch_id: int
    sending: Sending
    slices: tuple[memoryview, ...]
    confirmed: Mapping[Partition, int]

    @classmethod
    def of(cls, fetched: Fetched) -> Self:
        """Return a batch of which nothing was sent."""
        return cls(fetched.batch_id, Sending(), fetched.slices, {})


def to_send_again(window: Iterable[OpenBatch]) -> Iterator[OpenBatch]:
    """Yield batches as they are to be sent again, after no answer is awaited.

    What was not answered counts as not confirmed.
    """
    stopped: set[Partition] = set()
    is_known = True
    for each in window:
        is_known = is_known and not each.sending.pending
        confirmed: dict[Partition, int] = {}
        if is_known:
            confirmed.update(each.confirmed)
            for partition, count in each.sending.confirmed_first().items():
                confirmed[partition] = confirmed.get(partition, 0) + count
            for partition in stopped:
                confirmed.pop(partition, None)
            stopped.update(each.sending.stopped)
        yield each._replace(sending=Sending(), confirmed=confirmed)


def unconfirmed(
    messages: Sequence[Message], confirmed: Mapping[Partition, int]
) -> list[Message]:
    """Return the messages of a batch without those that were confirmed."""
    counts = dict(confirmed)
    found = []
    for message in messages:
        if counts.get(message[:2], 0) > 0:
            counts[message[:2]] -= 1
        else:
            found.append(message)
    return found
