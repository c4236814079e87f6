"""Which message a policy acks next."""

from __future__ import annotations

import pytest
from change_messages import Maker

from canal_server.client import Message
from canal_server.client.ack_progress import NO_BATCH, AckProgress
from canal_server.protocol.entry_messages import EntryType


def message(message_id: int, *parts: str) -> Message:
    """Return a message of a row and the begins and ends of transactions."""
    maker = Maker()
    kinds = {"begin": EntryType.TRANSACTIONBEGIN, "end": EntryType.TRANSACTIONEND}
    entries = [
        maker._entry(kinds[each], b"") if each in kinds else maker.insert({"id": 1})
        for each in parts
    ]
    return Message.of_entries(message_id, entries)


def handled(progress: AckProgress, *messages: Message) -> list[int | None]:
    """Hand out and handle messages; return what each has acked."""
    found = []
    for each in messages:
        progress.hand_out(each)
        found.append(progress.handle(each))
    return found


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("message", [1, 2, 3, 4]),
        # The second is acked once the end of its transaction was handled.
        ("transaction", [1, None, 2, 4]),
        ("manual", [None] * 4),
        (1000.0, [None] * 4),
    ],
)
def test_policies(policy, expected):
    """Messages are acked one by one, by transactions, by time, or not at all."""
    progress = AckProgress(policy, ends_transactions=False)
    messages = (
        message(1, "begin", "row", "end"),
        message(2, "begin", "row"),
        message(3, "row", "end", "begin", "row"),
        message(4, "row", "end"),
    )
    assert handled(progress, *messages) == expected
    assert progress.handled_id == (4 if policy == 1000.0 else None)


def test_what_was_delivered_before_a_reconnect():
    """It is acked by nobody, and comes again."""
    progress = AckProgress("message", ends_transactions=False)
    old = message(1, "row")
    progress.hand_out(old)
    progress.forget(is_split=False)
    assert progress.will_repeat
    assert progress.handle(old) is None


@pytest.mark.parametrize(
    ("policy", "is_abandoned"), [("message", True), ("manual", False)]
)
def test_an_iteration_that_ends_amid_a_message(policy, is_abandoned):
    """The next one has it delivered again, unless the program acks by itself."""
    progress = AckProgress(policy, ends_transactions=False)
    progress.begin_iteration()
    progress.hand_out(message(1, "row"))
    progress.begin_iteration()
    assert progress.is_abandoned is is_abandoned


def test_a_part_without_a_batch():
    """An ack of an earlier message leaves it at hand."""
    progress = AckProgress(1000.0, ends_transactions=True)
    handled(progress, message(1, "begin", "row", "end"))
    progress.hand_out(message(NO_BATCH, "begin", "row", "end"))
    progress.begin_ack(1)
    progress.end_ack(1)
    progress.begin_iteration()
    assert progress.is_abandoned
