"""Every error that this package raises on purpose.

::

    CanalError
    ├── ConfigError               a setting cannot be used; exit status 2
    ├── PasswordError             the file or command of a password cannot be used
    ├── SourceError               the MySQL side; retried with back-off
    │   ├── ConnectionLost        the connection broke or fell silent
    │   ├── BinlogPurged          the requested position was purged; needs a person
    │   ├── SourceRefused         rights, settings or a kind of server; needs a person
    │   └── ArchiveError          an archived binlog file is damaged or incomplete
    ├── DecodeError               an event that cannot be read; stops the instance
    │   └── InsideTransaction     the start position is inside a transaction
    ├── TableMetaError            a table's columns cannot be known; stops the instance
    │   ├── TableMetaStoreError   the table history cannot be read or written
    │   └── UnknownTable          the table history does not have it; also NotFound
    ├── PositionError             no start position can be found
    ├── BoundaryIndexError        the index of boundaries cannot be used; not reported
    ├── MetaStoreError            stored cursors cannot be read or written
    ├── StoreError                the event store refuses a request
    │   └── EntryTooLarge         one row does not fit in a frame
    ├── ZooKeeperError            ZooKeeper refuses a request
    │   ├── ZooKeeperUnavailable  it is unreachable; a write may have happened or not
    │   │   └── NotConnected      there was no connection; no write happened
    │   ├── NodeExists            a node to be created exists already
    │   ├── NodeMissing           a node to be written or deleted does not exist
    │   ├── NodeNotEmpty          a node to be deleted has children
    │   └── VersionConflict       another client changed a node
    ├── LakeError                 a table of the lake cannot be read or written
    ├── LeaseLost                 the right to run an instance may be lost
    ├── ProtocolError             bytes from the peer break the wire protocol
    ├── TransactionTooLarge       a client cannot hold a whole transaction
    ├── RowMappingError           a row does not fit the class of a program
    ├── ClientError               answered to that client only, with a code
    │   ├── UnknownDestination    it is not configured; also NotFound
    │   └── UnknownSubscription   no client or reader has it; also NotFound
    └── NotFound                  what a request names does not exist

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

    `problems` holds one sentence each: file, key, value, remedy. `warnings` are the
    warnings that a valid configuration would have logged, such as an unknown key, which
    may be the reason why another one is missing.
    """

    def __init__(self, problems: list[str], warnings: Sequence[str] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.warnings = tuple(warnings)


class PasswordError(CanalError):
    """A password cannot be read; never has it in its text.

    `key` is the setting, `value` what it names (a file or a program), `problem` what is
    wrong with that, and the remedy.
    """

    def __init__(self, key: str, value: str, problem: str) -> None:
        super().__init__(f"{key} = {value}: {problem}")
        self.key = key
        self.value = value
        self.problem = problem


class SourceError(CanalError):
    """The MySQL server or the connection to it failed; a retry may help."""

    def __init__(self, message: str, *, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno  # MySQL's own number, if there is one


class ConnectionLost(SourceError):  # noqa: N818  # the field's own term
    """The connection to the source broke, or the source was silent for too long.

    `heard_s` is for how long the source sent data before it fell silent; None where
    silence was not the reason. `unreachable` says that no connection to the address was
    made yet, so that a retry costs little.
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
    """The source no longer has the requested position (error 1236)."""


class SourceRefused(SourceError):  # noqa: N818
    """The source refuses us, or its settings make capture impossible."""


class ArchiveError(SourceError):
    """A file of the archive of binlogs is damaged, incomplete, or of another binlog."""


class DecodeError(CanalError):
    """An event that cannot be decoded; `file` and `position` say where it begins.

    Code that does not know the event's position leaves them out; the reader of the
    stream adds them.
    """

    def __init__(self, message: str, *, file: str = "", position: int = 0) -> None:
        super().__init__(f"{message} (event at {file}:{position})" if file else message)
        self.file = file
        self.position = position


class InsideTransaction(DecodeError):  # noqa: N818
    """Rows of a transaction that began before the start position."""


class TableMetaError(CanalError):
    """The columns that a table had at a position cannot be determined."""


class TableMetaStoreError(TableMetaError):
    """The table history cannot be read or written."""


class PositionError(CanalError):
    """No start position can be found in the binlog."""


class BoundaryIndexError(CanalError):
    """The index of transaction boundaries cannot be read or written.

    It never leaves the index: what the index does not know is read from the source.
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
    """ZooKeeper is unreachable; a retry may help.

    Whether a write happened is not known.
    """


class NotConnected(ZooKeeperUnavailable):
    """There was no connection for the request, so that no write happened."""


class NodeExists(ZooKeeperError):  # noqa: N818
    """A node that was to be created exists already."""


class NodeMissing(ZooKeeperError):  # noqa: N818
    """A node that was to be written, or its parent, does not exist."""


class NodeNotEmpty(ZooKeeperError):  # noqa: N818
    """A node that was to be deleted has children."""


class VersionConflict(ZooKeeperError):  # noqa: N818
    """Another client changed a node, so that its version differs."""


class LakeError(CanalError):
    """A table of the mirror's lake cannot be read or written; it is unchanged."""


class LeaseLost(CanalError):  # noqa: N818
    """This server may no longer have the right to run an instance."""


class ProtocolError(CanalError):
    """The peer sent bytes that break the wire protocol."""


class TransactionTooLarge(CanalError):  # noqa: N818
    """A transaction exceeds the limit of a client; none of it was acked."""


class RowMappingError(CanalError):
    """A row does not fit the class that a program asked for."""


class ClientError(CanalError):
    """A refused request; the client receives the text and `code`."""

    def __init__(self, message: str, *, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


class NotFound(CanalError):  # noqa: N818
    """What a request names does not exist; what it asks for may be right otherwise."""


class UnknownDestination(ClientError, NotFound):  # noqa: N818
    """A destination is not configured on this server."""


class UnknownTable(TableMetaError, NotFound):  # noqa: N818
    """A table, or an expression for tables, that the table history does not have."""


class UnknownSubscription(ClientError, NotFound):  # noqa: N818
    """A destination has no subscription, of a client or ranged, with this name."""
