"""Calls of the service that answers clients, and what its fake instances hold."""

from __future__ import annotations

from fix_server import (
    DESTINATION,
    FakeInstance,
    make_entry,
    offsets,
)

from canal_server.model.identity import ClientIdentity
from canal_server.protocol.entry_messages import EntryType
from canal_server.protocol.packets import Messages, Packet
from canal_server.protocol.protobuf import decode

WHO = ClientIdentity(DESTINATION, 1001)
OTHER = ClientIdentity(DESTINATION, 1002)
ELSEWHERE = ClientIdentity("nowhere", 1001)


def read(reply) -> tuple[int, list[int]]:
    """Return batch id and entry numbers of a reply to a get."""
    data = b"".join(reply)
    assert int.from_bytes(data[:4]) == len(data) - 4
    messages = decode(Messages, decode(Packet, data[4:]).body)
    return messages.batch_id, offsets(messages.messages)


def get(service, identity=WHO, size=100, timeout_s=0.0) -> tuple[int, list[int]]:
    """Return batch id and entry numbers."""
    return read(service.get(identity, size, timeout_s))


def put(instance: FakeInstance, *numbers: int) -> None:
    """Put entries with these numbers."""
    instance.store.append(*map(make_entry, numbers))


def put_ends(instance: FakeInstance, *numbers: int) -> None:
    """Put entries that a client may resume from."""
    ends = (make_entry(n, EntryType.TRANSACTIONEND) for n in numbers)
    instance.store.append(*ends)
