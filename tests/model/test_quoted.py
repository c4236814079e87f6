"""Foreign text in the log: as it was written, on one line, bounded."""

from __future__ import annotations

import pytest

from canal_server.model.quoted import SHOWN_MAX, quoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "''"),
        (r"shop\..*,crm\.person", r"'shop\..*,crm\.person'"),
        ("Größe's", "'Größe's'"),
        ("a\nb\tc\x1b[31m\u2028", r"'a\nb\tc\x1b[31m\u2028'"),
        ("x" * SHOWN_MAX, f"'{'x' * SHOWN_MAX}'"),
        ("x" * SHOWN_MAX + "yz", f"'{'x' * SHOWN_MAX}…'"),
    ],
)
def test_quoted(text: str, shown: str) -> None:
    """Backslashes stay single; unprintable characters do not reach a terminal."""
    assert quoted(text) == shown
