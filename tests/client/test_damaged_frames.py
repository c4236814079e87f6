"""Damaged frames: whatever the bytes say, there are changes or a ProtocolError.

Memory is the matter: CANAL_SANITIZE=1 builds with a sanitizer, under which these run.
"""

from __future__ import annotations

import array
import contextlib
import json
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from damaged_entries import damaged, damaged_body, in_rounds
from fix_random import longer
from golden_form import DATA

from canal_server.client.batch_bounds import last_time_ms, transactions_end
from canal_server.client.change_reader import Change, ChangeReader
from canal_server.client.frame_reader import entries_of, open_messages
from canal_server.client.value_reader import ValueOptions
from canal_server.core.row_count import count_rows
from canal_server.errors import ProtocolError
from canal_server.protocol.packets import Messages, Packet, PacketType
from canal_server.protocol.protobuf import encode

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from damaged_entries import Recorded

WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
ATTRIBUTES = [name for name in dir(Change) if not name.startswith("_")]
OPTIONS = (
    ValueOptions(),
    ValueOptions(as_texts=True),
    ValueOptions(zone=ZoneInfo("Asia/Kolkata"), load_json=json.loads),
)


class Tally:
    """How much was read, and how often reading was refused."""

    def __init__(self) -> None:
        self.changes = self.values = self.refused = 0

    @contextlib.contextmanager
    def refusal(self) -> Iterator[None]:
        """Allow what is done to end with ProtocolError, and with no other error."""
        try:
            yield
        except ProtocolError:
            self.refused += 1

    def read_frame(self, reader: ChangeReader, frame: bytes) -> None:
        """Read a frame as a client does, and everything that it has."""
        data = memoryview(array.array("B", frame))  # ends where its memory ends
        with self.refusal():
            found = open_messages(data)
            if found is not None:
                _, start, stop = found
                assert 0 <= start <= stop <= len(data)
                self.read_body(reader, data[start:stop])

    def read_body(self, reader: ChangeReader, body: memoryview) -> None:
        """Look at everything of every change."""
        for count in (count_rows, entries_of, transactions_end, last_time_ms):
            with self.refusal():
                count(body)
        for change in reader.read(body):
            self.changes += 1
            for name in ATTRIBUTES:
                with self.refusal():
                    self.look(change, name)
            with self.refusal():
                repr(change)

    def look(self, change: Change, name: str) -> None:
        """Look at one attribute."""
        found = getattr(change, name)
        if isinstance(found, dict):
            repr(found)  # touches the memory of each value
            self.values += len(found)


def damaged_frame(rng: random.Random, entries: list[bytes]) -> bytes:
    """Return a frame of some of the entries, damaged inside, outside or not at all."""
    body = damaged_body(rng, entries)
    messages = encode(Messages(batch_id=rng.choice([1, -1, 2**63 - 1]))) + body
    frame = encode(Packet(type=PacketType.MESSAGES, body=messages))
    return damaged(rng, frame) if rng.random() < 0.1 else frame


@pytest.mark.timeout(longer(120), method="thread")  # ends also a hang in compiled code
def test_damaged(rng: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each frame is read or refused with ProtocolError, as are those that follow it."""
    tally = Tally()

    def read(own: random.Random, recorded: Recorded) -> None:
        reader = ChangeReader(own.choice(OPTIONS))
        for _ in range(own.randint(1, 3)):
            tally.read_frame(reader, damaged_frame(own, recorded[0]))

    rounds = longer(600)
    in_rounds(rng, rounds, tmp_path_factory, read, WORKLOADS)
    print(f"{rounds} rounds: {vars(tally)}")
    assert tally.values > tally.changes > rounds
    assert tally.refused > rounds // 10
