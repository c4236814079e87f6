"""A client for Python programs: subscribe to a destination and receive its changes.

::

    from canal_server.client import CanalClient, EntryType

    with CanalClient("127.0.0.1", 11111, "example") as client:
        client.subscribe()
        for message in client.messages():
            for entry in message.entries:
                if entry.entry_type == EntryType.ROWDATA:
                    print(entry.header.table_name, entry.row_change())

It works with this server and with canal's own server. It connects to one address and
does not reconnect by itself; clusters are not supported. Any package above `protocol`
may import it.
"""

from __future__ import annotations

from canal_server.client.canal import CanalClient, Message
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
