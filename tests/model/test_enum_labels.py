"""Labels of ENUM and SET in the text of a type."""

from __future__ import annotations

import pytest

from canal_server.model.enum_labels import labels_of


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("enum('a','b')", ("a", "b")),
        ("set('it''s','a,b','')", ("it's", "a,b", "")),
        (r"enum('back\\slash','line\nend')", ("back\\slash", "line\nend")),
        ("enum(x'0fc')", (b"\x00\xfc",)),
        ("ENUM('x') CHARACTER SET latin1", ("x",)),
        ("enum", ()),
    ],
)
def test_labels(text: str, labels: tuple[str | bytes, ...]) -> None:
    """Quotes and escapes are undone, in the order of the labels."""
    assert labels_of(text) == labels
