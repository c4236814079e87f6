"""From the text of a JSON document that SELECT gives to the one that entries have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from canal_server.arrow.json_restyle import restyled

if TYPE_CHECKING:
    import random

TEXTS = [
    ("[]", "[]"),
    ('{"a": 1, "b": [true, null]}', '{"a": 1, "b": [true, null]}'),
    ("-18446744073709551615", "-18446744073709551615"),
    ("1.0", "1.0"),
    ("-0.0", "-0.0"),
    ("1e20", "1.0E20"),
    ("1e-7", "1.0E-7"),
    ("0.001", "0.001"),
    ("0.0001", "1.0E-4"),
    ("12345678.5", "1.23456785E7"),
    ("1.50", "1.50"),  # none but a DECIMAL is written so
    ("1.00", "1.0"),
    ("0.1000000000", "0.100000000"),
    ("0.0000000000", "0.000000000"),
    ("123456789012345678.25", "123456789012345678.25"),
    ("12345678901234567.0", "12345678901234567.0"),
    ("1234567890123456.5", "1.2345678901234565E15"),
    ("0.000000000000001", "1.0E-15"),
    ("-0.0000000000000001", "-0.0000000000000001"),
    (r'"\b\f\n\r\t\"\\"', r'"\u0008\u000c\n\r\t\"\\"'),
    (r'"\u0001\u001F\/\u00fc"', r'"\u0001\u001f/ü"'),
    ('"\x7f\x80\xa0ü¡"', r'"\u007f\u0080\u00a0ü¡"'),
    ('{"1.5e3": "1.50"}', '{"1.5e3": "1.50"}'),
]


@pytest.mark.parametrize(("text", "styled"), TEXTS)
def test_texts(text: str, styled: str) -> None:
    """Each text becomes that of entries, as they are written there."""
    assert restyled(text.encode()) == styled


@pytest.mark.parametrize("text", ['"\\', '"\\u00', '"\\u00g0"', "1.5.5", "--.5"])
def test_malformed(text: str) -> None:
    """Invalid JSON is refused, never read past its end."""
    with pytest.raises(ValueError, match="malformed"):
        restyled(text.encode())


def test_any_bytes(rng: random.Random) -> None:
    """Whatever the bytes are, there is a text or a ValueError."""
    letters = b'"\\u01.5eE-{}[],: \x7f\xc2\x85\xff'
    for _ in range(20_000):
        data = bytes(rng.choices(letters, k=rng.randrange(12)))
        try:
            restyled(data)
        except (ValueError, UnicodeDecodeError):
            continue


def test_means_the_same(rng: random.Random) -> None:
    """Documents of Python's own mean the same before and after."""
    for _ in range(300):
        numbers = [rng.uniform(-1e9, 1e9), 10.0 ** rng.randint(-300, 300)]
        text = chr(rng.randrange(0x3000)) + '"\\'
        document = [*numbers, rng.getrandbits(70), text]
        for ascii_only in (True, False):
            shown = json.dumps(document, ensure_ascii=ascii_only)
            assert json.loads(restyled(shown.encode())) == document
