"""A client for Python programs: subscribe to a destination and receive its changes.

::

    from canal_server.client import CanalClient

    with CanalClient("127.0.0.1", 11111, "example") as client:
        client.subscribe()
        for message in client.messages():
            for change in message.changes():
                print(change.kind, change.table, change.before, change.after)

`message.entries` has the entries of the protocol, as the Java client shows them.

It works with this server and with canal's own server. It connects to one address and
does not reconnect by itself; clusters are not supported. Any package above `protocol`
may import it.
"""

from __future__ import annotations

from canal_server.client.canal import CanalClient, Message
from canal_server.client.change_reader import Change
from canal_server.errors import ClientError, ProtocolError
from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    EntryType,
    EventType,
    Header,
    Pair,
    RowChange,
    RowData,
    TransactionBegin,
    TransactionEnd,
)

__all__ = [
    "CanalClient",
    "Change",
    "ClientError",
    "Column",
    "Entry",
    "EntryType",
    "EventType",
    "Header",
    "Message",
    "Pair",
    "ProtocolError",
    "RowChange",
    "RowData",
    "TransactionBegin",
    "TransactionEnd",
]
