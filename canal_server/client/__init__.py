"""A client for Python programs: subscribe to a destination and receive its changes.

::

    from canal_server.client import CanalClient

    with CanalClient("127.0.0.1", 11111, "example") as client:
        for change in client:
            print(change.kind, change.table, change.before, change.after)

`AsyncCanalClient` is the same for asyncio. Both reconnect by themselves, find the
server of a cluster, and work with this server and with canal's own. Any package above
`protocol` may import this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from canal_server.client.canal import CanalClient
from canal_server.client.change_reader import Change
from canal_server.client.received_message import Message
from canal_server.errors import (
    ClientError,
    ProtocolError,
    RowMappingError,
    TransactionTooLarge,
)
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

if TYPE_CHECKING:
    from canal_server.client.async_client import AsyncCanalClient
    from canal_server.client.row_mapping import MappedChange, RowMapper

__all__ = [
    "AsyncCanalClient",
    "CanalClient",
    "Change",
    "ClientError",
    "Column",
    "Entry",
    "EntryType",
    "EventType",
    "Header",
    "MappedChange",
    "Message",
    "Pair",
    "ProtocolError",
    "RowChange",
    "RowData",
    "RowMapper",
    "RowMappingError",
    "TransactionBegin",
    "TransactionEnd",
    "TransactionTooLarge",
]


# What not every program needs, and takes a while to load, such as asyncio.
_LOADED_ON_DEMAND = {
    "AsyncCanalClient": "async_client",
    "MappedChange": "row_mapping",
    "RowMapper": "row_mapping",
}


def __getattr__(name: str) -> object:
    """Load what a program asks for."""
    module = _LOADED_ON_DEMAND.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
