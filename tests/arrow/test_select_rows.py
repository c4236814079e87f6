"""The answer to a SELECT, byte by byte, as columns of Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from canal_server.arrow.select_rows import ResultColumns
from canal_server.core.byte_buffer import Feed
from canal_server.decoder.text.charset_text import charset
from canal_server.errors import DecodeError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

FIELDS = [
    ("n", "int32", 0, 0, "plain", "int", None),
    ("t", "text", 0, 0, "text", "varchar(9)", charset("latin1")),
    ("f", "double", 0, 0, "floating", "double", None),
    ("e", "text", 0, 0, "labels", "enum('x','y')", None),
]
EOF = b"\xfe\x00\x00\x02\x00"
ROWS = [
    (b"1", b"\xe9", b"1e3", b"2"),
    (None, None, None, None),
    (b"-7", b"", b"0", b"0"),
]


def packets(payloads: Iterable[bytes]) -> bytes:
    """Return payloads as packets with their numbers from 1 on."""
    return b"".join(
        len(payload).to_bytes(3, "little") + bytes([number & 255]) + payload
        for number, payload in enumerate(payloads, 1)
    )


def row(values: Iterable[bytes | None]) -> bytes:
    """Return a row's payload."""
    return b"".join(b"\xfb" if v is None else bytes([len(v)]) + v for v in values)


def definition(collation: int = 63) -> bytes:
    """Return the definition of a column."""
    names = b"".join(
        bytes([len(n)]) + n for n in (b"def", b"s", b"t", b"t", b"n", b"n")
    )
    return (
        names
        + b"\x0c"
        + collation.to_bytes(2, "little")
        + b"\x09\0\0\0\xfd"
        + b"\0" * 5
    )


def answer(
    rows: Iterable[Iterable[bytes | None]] = ROWS,
    end: bytes = EOF,
    text: bytes = definition(8),
) -> bytes:
    """Return an answer of the fields above; `text` is the definition of their text."""
    head = [b"\x04", definition(), text, definition(), definition(), EOF]
    return packets([*head, *map(row, rows), end])


def read_all(columns: ResultColumns, data: bytes, step: int) -> list[Any]:
    """Feed the bytes in steps; return the columns of each batch."""
    feed, received = Feed(64), []
    for start in range(0, len(data), step):
        piece = data[start : start + step]
        with feed.space(len(piece)) as space:
            space[: len(piece)] = piece
        feed.filled(len(piece))
        columns.read(feed)
        while columns.full:
            received.append(columns.take())
            columns.read(feed)
    if columns.rows:
        received.append(columns.take())
    return received


def lengths(received: list[Any]) -> list[int]:
    """Return the lengths of the batches' first columns."""
    return [batch[0][0] for batch in received]


@pytest.mark.parametrize("step", [1, 3, 7, 10_000])
def test_in_pieces(step: int) -> None:
    """However the bytes come, the rows are the same."""
    columns = ResultColumns(FIELDS)
    (received,) = read_all(columns, answer(), step)
    assert columns.done
    numbers, texts, is_evictable, labels = received
    assert numbers[:2] == (3, 1)
    assert bytes(numbers[2][2]) == b"\1\0\0\0\0\0\0\0\xf9\xff\xff\xff"
    assert bytes(texts[2][2]) == "é".encode()
    assert bytes(labels[2][2]) == b"y"
    assert bytes(is_evictable[2][2])[:8] == b"\0\0\0\0\0\x40\x8f\x40"


def test_limits() -> None:
    """A batch ends when it has enough rows, or enough bytes."""
    by_rows = ResultColumns(FIELDS, rows_max=2)
    assert lengths(read_all(by_rows, answer(ROWS * 3), 10_000)) == [2] * 4 + [1]
    by_bytes = ResultColumns(FIELDS, bytes_max=1)
    assert lengths(read_all(by_bytes, answer(ROWS), 10_000)) == [1] * 3


def test_refusals() -> None:
    """An error packet ends the answer wherever it comes, and is kept."""
    refusal = b"\xff\x28\x04#42000no"
    for data in (packets([refusal]), answer(end=refusal)):
        columns = ResultColumns(FIELDS)
        read_all(columns, data, 10_000)
        assert columns.refusal == refusal
        assert not columns.done


MALFORMED = {
    "an OK": packets([b"\x00\x00\x00\x02\x00\x00\x00"]),
    "other columns": packets([b"\x03"]),
    "a file": packets([b"\xfbname"]),
    "a number": answer()[:3] + b"\x02" + answer()[4:],
    "a short row": answer([(b"1", b"2", b"3")]),
    "a long row": answer([(b"1", b"2", b"3", b"1", b"5")]),
    "something after": answer() + packets([EOF]),
    "a value": answer([(b"x", b"", b"0", b"0")]),
    "a label": answer([(b"1", b"", b"0", b"3")]),
    "too large": answer([(b"2147483648", b"", b"0", b"0")]),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    """An invalid answer is a DecodeError."""
    with pytest.raises(DecodeError):
        read_all(ResultColumns(FIELDS), MALFORMED[name], 10_000)


def test_another_character_set() -> None:
    """A text that comes in another one is refused; of one, all collations will do."""
    for collation in (5, 47, 1024 + 47, 800, 60_000):
        (received,) = read_all(
            ResultColumns(FIELDS), answer(text=definition(collation)), 50
        )
        assert bytes(received[1][2][2]) == "é".encode()
    others = ((255, "utf8mb4"), (33, "utf8mb3"), (2048, "utf8mb3"), (63, "binary"))
    for collation, name in others:
        data = answer(text=definition(collation))
        with pytest.raises(DecodeError, match=f"is {name}, not latin1: the column was"):
            read_all(ResultColumns(FIELDS), data, 50)


def test_row_that_is_too_large() -> None:
    """A row of more bytes than allowed is refused, not gathered."""
    data = answer([])[: -len(EOF) - 4]
    data += b"\xff\xff\xff\x07" + b"\xfa" * 0xFFFFFF
    with pytest.raises(DecodeError, match="more than 1000 bytes"):
        read_all(ResultColumns(FIELDS, row_bytes_max=1000), data, 1 << 20)


def test_damaged_bytes(rng: random.Random) -> None:
    """Whatever happens to the bytes, there are rows, a refusal or a DecodeError."""
    whole = answer(ROWS * 3)
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(
                [0, 1, 0xFA, 0xFB, 0xFC, 0xFE, 0xFF]
            )
        columns = ResultColumns(FIELDS)
        try:
            read_all(columns, bytes(data[: rng.randint(1, len(data))]), 40)
        except DecodeError:
            continue
