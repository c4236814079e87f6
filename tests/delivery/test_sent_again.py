"""What is sent again of batches: everything from the first failure of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.delivery.sent_again import OpenBatch, to_send_again, unconfirmed
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    Sending,
)

if TYPE_CHECKING:
    import random

    from canal_server.errors import CanalError
    from canal_server.queues.producers.queue_producer import Message

A, B = ("a", 0), ("b", 1)
NOT_NOW = BrokerUnavailableError("not now")
REFUSED = MessageRefusedError("a", 1, "is too large")


def messages(text: str) -> list[Message]:
    """Return a message for each letter, to the topic of that name."""
    return [(*(A if each == "a" else B), b"x") for each in text]


def sent(text: str, answers: list[CanalError | None]) -> OpenBatch:
    """Return a batch with messages that were answered so, or not at all."""
    sending = Sending()
    handed = messages(text)
    for each in handed:
        sending.note(each[:2], 1)
    for message, answer in zip(handed, answers, strict=False):
        sending.answered(message, answer)
    return OpenBatch(1, sending, (), {})


def confirmed_of(*window: OpenBatch) -> list[dict[tuple[str, int], int]]:
    """Return how many messages are left out of each batch, by partition."""
    return [
        {key: count for key, count in each.confirmed.items() if count}
        for each in to_send_again(window)
    ]


def test_what_was_confirmed_before_a_failure() -> None:
    """It is left out; what follows the failure in its partition is not."""
    batch = sent("abab", [None, None, NOT_NOW, None])
    assert confirmed_of(batch) == [{A: 1, B: 2}]
    batch = sent("aab", [NOT_NOW, None, None])
    assert confirmed_of(batch) == [{B: 1}]
    batch = sent("aab", [REFUSED, None, None])
    assert confirmed_of(batch) == [{B: 1}]


def test_later_batches() -> None:
    """After a failure, nothing of its partition is left out of them."""
    failed, later = sent("ab", [NOT_NOW, None]), sent("ab", [None, None])
    assert confirmed_of(failed, later) == [{B: 1}, {B: 1}]


def test_no_answer() -> None:
    """It counts as none of the messages, here and in what follows."""
    first, silent = sent("ab", [None, None]), sent("ab", [None])
    assert confirmed_of(first, silent, first) == [{A: 1, B: 1}, {}, {}]


def test_another_failure() -> None:
    """What was confirmed in earlier tries stays left out."""
    batch = sent("b", [None])._replace(confirmed={A: 2, B: 1})
    assert confirmed_of(batch) == [{A: 2, B: 2}]
    batch = sent("b", [NOT_NOW])._replace(confirmed={A: 2, B: 1})
    assert confirmed_of(batch) == [{A: 2, B: 1}]


def test_what_is_not_confirmed_of_a_batch() -> None:
    """The first messages of partitions are left out, and the others keep order."""
    all_of_it: list[Message] = [
        ("a", 0, b"1"), ("b", 1, b"2"), ("a", 0, b"3"), ("b", 1, b"4"), ("a", 1, b"5"),
    ]  # fmt: skip
    assert unconfirmed(all_of_it, {A: 1, B: 2}) == [all_of_it[2], all_of_it[4]]
    assert unconfirmed(all_of_it, {}) == all_of_it


def test_tries_at_random(rng: random.Random) -> None:
    """However often it fails, each partition gets all, the last time in order."""
    for _ in range(100):
        count = rng.randint(1, 20)
        batches = [
            [(*rng.choice([A, B]), b"%d" % (each * 100 + number)) for number in range(
                rng.randint(0, 4)
            )] for each in range(count)
        ]  # fmt: skip
        window = [OpenBatch(each, Sending(), (), {}) for each in range(count)]
        kept: list[Message] = []
        failing = 0.3
        while True:
            handed_over = rng.randint(0, count) if failing else count
            for each in window[:handed_over]:
                left = unconfirmed(batches[each.batch_id], each.confirmed)
                for message in left:
                    each.sending.note(message[:2], 1)
                for message in left:
                    fails = rng.random() < failing
                    each.sending.answered(message, NOT_NOW if fails else None)
                    kept += [] if fails else [message]
            if not failing:
                break
            window = list(to_send_again(window))
            failing = rng.choice([0.3, 0.1, 0])
        for partition in (A, B):
            expected = [
                each for batch in batches for each in batch if each[:2] == partition
            ]
            found = [each for each in kept if each[:2] == partition]
            last_times = list(dict.fromkeys(reversed(found)))
            assert last_times == expected[::-1]
