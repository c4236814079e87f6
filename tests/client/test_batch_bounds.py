"""Where transactions end in a body, in every order in which servers send entries."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from client_entries import row, statement, transaction
from fix_random import longer
from golden_form import DATA, decode_fields, load_workload

from canal_server.client.batch_bounds import last_time_ms, transactions_end
from canal_server.client.change_reader import ChangeReader
from canal_server.client.frame_reader import entries_of
from canal_server.client.received_message import Message
from canal_server.client.value_reader import ValueOptions
from canal_server.errors import ProtocolError
from canal_server.protocol.entry_messages import EntryType, decode_entry, encode
from canal_server.protocol.protobuf import varint

if TYPE_CHECKING:
    from canal_server.client.change_reader import Change

BEGIN, *ROWS, END = transaction(1, 2)
DDL = statement(9, "ALTER TABLE orders ADD total INT")
HEARTBEAT = encode(replace(decode_entry(BEGIN), entry_type=EntryType.HEARTBEAT))
WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))


def fields(*entries: bytes) -> bytes:
    """Return a body of Messages of entries."""
    return b"".join(b"\x12" + varint(len(each)) + each for each in entries)


@pytest.mark.parametrize(
    ("entries", "ended", "is_open"),
    [
        ([], 0, False),
        ([BEGIN, *ROWS, END], 4, False),
        ([*ROWS, END], 3, False),
        ([END], 1, False),
        ([DDL], 1, False),
        ([HEARTBEAT], 1, False),
        ([BEGIN, *ROWS, END, HEARTBEAT], 5, False),
        ([BEGIN, *ROWS, END, DDL, BEGIN], 5, True),
        ([BEGIN, *ROWS, END, row(5)], 4, True),
        ([BEGIN, *ROWS], 0, True),
        ([BEGIN, *ROWS, HEARTBEAT], 0, True),
        ([row(5)], 0, True),
    ],
)
def test_ends(entries: list[bytes], ended: int, *, is_open: bool) -> None:
    """The bytes up to the last end are counted, and an open transaction is noticed."""
    body = fields(*entries)
    assert transactions_end(body) == (len(fields(*entries[:ended])), is_open)
    assert transactions_end(bytearray(body)) == transactions_end(memoryview(body))
    assert Message.of_entries(1, map(decode_entry, entries)).ends_transaction != is_open


def test_open_before() -> None:
    """What continues a transaction of an earlier body does not end one by itself."""
    assert transactions_end(b"", True) == (0, True)
    assert transactions_end(fields(HEARTBEAT), True) == (0, True)
    assert transactions_end(fields(*ROWS, END), True) == (
        len(fields(*ROWS, END)),
        False,
    )


@pytest.mark.parametrize("name", WORKLOADS)
def test_recorded(name: str, tmp_path, rng) -> None:
    """However recorded entries are cut, the ends are those that changes show."""
    entries = entries_of(decode_fields(load_workload(name), tmp_path))
    for _ in range(longer(20)):
        cut = rng.randint(0, len(entries))
        body, rest = fields(*entries[:cut]), fields(*entries[cut:])
        end, is_open = transactions_end(body)
        assert is_open or end == len(body)

        reader = ChangeReader(ValueOptions(as_texts=True))
        before, after = list(reader.read(body)), list(reader.read(rest))
        if before and after and before[-1].transaction == after[0].transaction:
            assert is_open
        numbers = [each.transaction for each in reader_of(body[:end])]
        later = [each.transaction for each in reader_of(body[:end], body[end:] + rest)]
        assert not numbers or not later or later[0] > numbers[-1]


def reader_of(*bodies: bytes) -> list[Change]:
    """Return the changes of the last of some bodies."""
    reader = ChangeReader(ValueOptions(as_texts=True))
    return [list(reader.read(each)) for each in bodies][-1]


def test_time_of_the_last_entry() -> None:
    """The time is that of the last entry, also of one without rows."""
    assert last_time_ms(b"") == 0
    for count in range(1, 5):
        entries = [BEGIN, *ROWS, END][:count]
        expected = decode_entry(entries[-1]).header.execute_time
        assert last_time_ms(fields(*entries)) == expected


def test_malformed() -> None:
    """A body that ends in the middle of an entry is refused, wherever it ends."""
    body = fields(BEGIN, *ROWS, END)
    starts = set(
        itertools.accumulate(len(fields(each)) for each in (BEGIN, *ROWS, END))
    )
    for n in set(range(1, len(body))) - starts:
        with pytest.raises(ProtocolError):
            transactions_end(body[:n])
        with pytest.raises(ProtocolError):
            last_time_ms(body[:n])
