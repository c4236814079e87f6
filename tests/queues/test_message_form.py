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
