"""Every error that this package raises on purpose.

::

    CanalError
    ├── ConfigError               a setting cannot be used; exit status 2
    ├── SourceError               the MySQL side; retried with back-off
    │   ├── ConnectionLost        the link broke or fell silent
    │   ├── BinlogPurged          the wanted position is gone; needs a person
    │   └── SourceRefused         rights, settings or a kind of server; needs a person
    ├── DecodeError               an event that cannot be read; stops the instance
    │   └── InsideTransaction     the place to start from lies inside of a transaction
    ├── TableMetaError            a table's columns cannot be known; stops the instance
    │   └── TableMetaStoreError   the table history cannot be read or written
    ├── PositionError             no place to start from can be found
    ├── BoundaryIndexError        the index of boundaries cannot be used; never told
    ├── MetaStoreError            stored cursors cannot be read or written
    ├── StoreError                the event store refuses a request
    │   └── EntryTooLarge         one row does not fit in a frame
    ├── ZooKeeperError            ZooKeeper refuses a request
    │   ├── ZooKeeperUnavailable  it is out of reach; a write may have happened or not
    │   │   └── NotConnected      there was no connection; no write happened
    │   ├── NodeExists            a node to be created is there
    │   ├── NodeMissing           a node to be written or deleted is not there
    │   ├── NodeNotEmpty          a node to be deleted has others below it
    │   └── VersionConflict       a node was changed by somebody else
    ├── LakeError                 a table of the lake cannot be read or written
    ├── LeaseLost                 the right to run an instance may be gone
    ├── ProtocolError             bytes of the other side that break the wire protocol
    └── ClientError               answered to that client only, with a code

Messages are lower case without a full stop; they name the object, the value and,
where one is known, the remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class CanalError(Exception):
    """Root of all errors of this package."""


class ConfigError(CanalError):
    """One or several settings cannot be used.

    `problems` holds one sentence each: file, key, value, remedy. `warnings` are what
    would be warned of if they were mended, such as a key that is unknown: it may be the
    reason for one that is missing.
    """

    def __init__(self, problems: list[str], warnings: Sequence[str] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.warnings = tuple(warnings)


class SourceError(CanalError):
    """The MySQL server or the way to it failed; trying again may help."""

    def __init__(self, message: str, *, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno  # MySQL's own number, if there is one


class ConnectionLost(SourceError):  # noqa: N818  # the field's own term
    """The connection to the source broke, or nothing came for too long.

    `heard_s` is for how long the source had been heard before it fell silent; None
    where silence was not the reason. `unreachable` says that nobody answered at the
    address yet, so that trying again costs little.
    """

    def __init__(
        self,
        message: str,
        *,
        errno: int | None = None,
        heard_s: float | None = None,
        unreachable: bool = False,
    ) -> None:
        super().__init__(message, errno=errno)
        self.heard_s = heard_s
        self.unreachable = unreachable


class BinlogPurged(SourceError):  # noqa: N818
    """The source no longer has the wanted position (error 1236)."""


class SourceRefused(SourceError):  # noqa: N818
    """The source refuses us, or its settings make capture impossible."""


class DecodeError(CanalError):
    """An event that cannot be decoded; `file` and `position` say where it begins.

    What reads an event without knowing its place leaves them out; the reader of the
    stream adds them.
    """

    def __init__(self, message: str, *, file: str = "", position: int = 0) -> None:
        super().__init__(f"{message} (event at {file}:{position})" if file else message)
        self.file = file
        self.position = position


class InsideTransaction(DecodeError):  # noqa: N818
    """Rows of a transaction that began before the place to start from."""


class TableMetaError(CanalError):
    """The columns that a table had at a position cannot be told for certain."""


class TableMetaStoreError(TableMetaError):
    """The table history cannot be read or written."""


class PositionError(CanalError):
    """No place in the binlog can be found to start from."""


class BoundaryIndexError(CanalError):
    """The index of transaction boundaries cannot be read or written.

    It goes no further than the index: what it does not know is read from the source.
    """


class MetaStoreError(CanalError):
    """Stored subscriptions or cursors cannot be read or written."""


class StoreError(CanalError):
    """The event store refuses a request."""


class EntryTooLarge(StoreError):  # noqa: N818
    """One entry is larger than a frame of the protocol can be."""


class ZooKeeperError(CanalError):
    """ZooKeeper refuses a request."""


class ZooKeeperUnavailable(ZooKeeperError):  # noqa: N818
    """ZooKeeper is out of reach; trying again may help.

    Whether a write happened is not known.
    """


class NotConnected(ZooKeeperUnavailable):
    """There was no connection to ask by, so that no write happened."""


class NodeExists(ZooKeeperError):  # noqa: N818
    """A node that was to be created is there already."""


class NodeMissing(ZooKeeperError):  # noqa: N818
    """A node that was to be written, or the parent of one, is not there."""


class NodeNotEmpty(ZooKeeperError):  # noqa: N818
    """A node that was to be deleted has others below it."""


class VersionConflict(ZooKeeperError):  # noqa: N818
    """A node has another version: somebody else wrote it."""


class LakeError(CanalError):
    """A table of the mirror's lake cannot be read or written; it is as it was."""


class LeaseLost(CanalError):  # noqa: N818
    """This server may no longer have the right to run an instance."""


class ProtocolError(CanalError):
    """The other side sent bytes that are not of this protocol."""


class ClientError(CanalError):
    """A request that is refused; answered to its client with `code`."""

    def __init__(self, message: str, *, code: int = 400) -> None:
        super().__init__(message)
        self.code = code
