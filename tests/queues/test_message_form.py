"""What the form of messages asks of batches."""

from __future__ import annotations

import pytest

from canal_server.config.schema import MessageLayout
from canal_server.queues.message_form import MessageForm


@pytest.mark.parametrize(
    ("layout", "has_headers", "expected"),
    [
        (MessageLayout.CANAL_JSON, False, False),
        (MessageLayout.CANAL_JSON, True, True),
        (MessageLayout.MAXWELL, False, True),
        (MessageLayout.DEBEZIUM, False, False),
        (MessageLayout.DEBEZIUM_AVRO, False, False),
        (MessageLayout.CLOUDEVENTS, False, True),
    ],
)
def test_whole_transactions(
    layout: MessageLayout, has_headers: bool, expected: bool
) -> None:
    """Numbers of transactions need their ends, ids of CloudEvents all equal changes."""
    form = MessageForm(
        flat=True, raw=True, drops_markers=False, has_headers=has_headers, layout=layout
    )
    assert form.needs_transactions == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (MessageForm(flat=True, raw=True, drops_markers=False), "canal-json"),
        (MessageForm(flat=False, raw=True, drops_markers=False), "protobuf"),
        (
            MessageForm(
                flat=True, raw=True, drops_markers=False, has_keys=True,
                has_tombstones=True, has_headers=True, layout=MessageLayout.MAXWELL,
            ),
            "maxwell, with keys, with tombstones, with headers",
        ),
    ],
)  # fmt: skip
def test_as_text(form: MessageForm, expected: str) -> None:
    """The log of a start names it."""
    assert str(form) == expected
