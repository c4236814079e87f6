"""The numbers of canal's entry protocol (EntryProtocol.proto)."""

from __future__ import annotations

from enum import IntEnum


class EntryType(IntEnum):
    """What an entry is."""

    TRANSACTIONBEGIN = 1
    ROWDATA = 2
    TRANSACTIONEND = 3
    HEARTBEAT = 4
    GTIDLOG = 5


class EventType(IntEnum):
    """What a ROWDATA entry reports."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    CREATE = 4
    ALTER = 5
    ERASE = 6
    QUERY = 7
    TRUNCATE = 8
    RENAME = 9
    CINDEX = 10
    DINDEX = 11
    GTID = 12
    XACOMMIT = 13
    XAROLLBACK = 14
    MHEARTBEAT = 15


DDL_TYPES = frozenset(
    {
        EventType.CREATE,
        EventType.ALTER,
        EventType.ERASE,
        EventType.TRUNCATE,
        EventType.RENAME,
        EventType.CINDEX,
        EventType.DINDEX,
    }
)
