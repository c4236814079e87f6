"""Entries that are damaged at random, from recorded ones of many types."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from golden_form import decode_fields, load_workload, raw_entries_of

from canal_server.protocol.entry_messages import decode_entry, encode
from canal_server.protocol.protobuf import varint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    # Entries, and the columns of their tables in the end, by name.
    Recorded = tuple[list[bytes], dict[tuple[str, str], dict[str, Any]]]

WORKLOADS = (
    "ev_image",
    "ev_txn",
    "maria_types",
    "types_num",
    "types_time",
    "types_str",
)
LIES = [
    b"\0", b"\x7f", b"\x80", b"\xff", b"\xff" * 9 + b"\x01", b"\xff" * 10,
    b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\x12",
    b"\x62", b"\x0a", b"\x42", b"\x52",
]  # fmt: skip


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with some of them changed, put in or taken out."""
    body = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        if not body:
            break
        at = rng.randrange(len(body))
        choice = rng.random()
        if choice < 0.4:
            body[at] ^= 1 << rng.randrange(8)
        elif choice < 0.7:
            lie = rng.choice(LIES)
            body[at : at + len(lie)] = lie
        elif choice < 0.8:
            body[at:at] = rng.choice(
                [rng.choice(LIES), rng.randbytes(rng.randrange(9))]
            )
        elif choice < 0.95:
            del body[at : at + rng.choice([1, 2, rng.randrange(1, 40)])]
        else:
            del body[at:]
    return bytes(body)


def damaged_entry(rng: random.Random, raw: bytes) -> bytes:
    """Return an entry that is damaged somewhere, or only in what it holds."""
    if rng.random() < 0.5:
        return damaged(rng, raw)
    entry = decode_entry(raw)
    return encode(replace(entry, store_value=damaged(rng, entry.store_value)))


def damaged_body(rng: random.Random, entries: list[bytes]) -> bytes:
    """Return some of the entries, a few of them damaged."""
    first = rng.randrange(len(entries))
    part = entries[first : first + rng.choice([3, 10, 40])]
    body = bytearray()
    for raw in part:
        content = damaged_entry(rng, raw) if rng.random() < 0.1 else raw
        body += b"\x12" + varint(len(content)) + content
    return damaged(rng, bytes(body)) if rng.random() < 0.1 else bytes(body)


def in_rounds(
    rng: random.Random,
    rounds: int,
    folders: pytest.TempPathFactory,
    read: Callable[[random.Random, Recorded], None],
    names: Sequence[str] = WORKLOADS,
) -> None:
    """Have one of the recordings read in each round; an error names its seed."""

    @cache
    def recorded(name: str) -> Recorded:
        workload = load_workload(name)
        fields = decode_fields(workload, folders.mktemp(name))
        return list(raw_entries_of(fields)), workload.last_columns()

    for number in range(rounds):
        seed = rng.getrandbits(64)
        own = random.Random(seed)
        name = own.choice(names)
        try:
            read(own, recorded(name))
        except BaseException as error:
            error.add_note(f"round {number}: {name}, seed {seed}")
            raise
