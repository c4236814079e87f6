"""What a client receives at once: some entries, as bytes until they are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from canal_server.client.batch_bounds import last_time_ms, transactions_end
from canal_server.client.frame_reader import entries_of
from canal_server.client.readers import Readers
from canal_server.core.row_count import count_rows
from canal_server.protocol.entry_messages import Entry, decode_entry, encode
from canal_server.protocol.protobuf import varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from canal_server.client.arrow_tables import ArrowBatch, Updates
    from canal_server.client.change_reader import Change


class Message:
    """The result of a get: changes in the order of the binlog, often none.

    Pass `id` to `ack`; it is -1 if there are no entries. A message may begin or end
    inside a transaction, unless the client was made with `whole_transactions`. What it
    holds is decoded when it is looked at.
    """

    __slots__ = ("_body", "_entries", "_readers", "id")

    def __init__(
        self, message_id: int, body: bytes | memoryview, readers: Readers
    ) -> None:
        """Be made by a client only."""
        self.id = message_id
        self._body = body
        self._readers = readers
        self._entries: tuple[Entry, ...] | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries as the protocol has them. Raises ProtocolError."""
        if self._entries is None:
            self._entries = tuple(map(decode_entry, entries_of(self._body)))
        return self._entries

    @property
    def rows(self) -> int:
        """How many rows the message has; their values are not decoded."""
        return count_rows(self._body)

    @property
    def body(self) -> bytes | memoryview:
        """The bytes of the entries, each as field 2 of the protocol's Messages."""
        return self._body

    @property
    def ends_transaction(self) -> bool:
        """Whether the last transaction of the message ends in it."""
        return not transactions_end(self._body)[1]

    @property
    def has_transaction_end(self) -> bool:
        """Whether a transaction ends in the message."""
        return transactions_end(self._body)[0] > 0

    @property
    def commit_time_ms(self) -> int:
        """When the source executed the last entry, in ms since 1970; 0 if empty."""
        return last_time_ms(self._body)

    def changes(self) -> Iterator[Change]:
        """Iterate over the rows and statements, once.

        Raises ProtocolError, also while iterating, for malformed data.
        """
        return self._readers.changes.read(self._body)

    def to_arrow(
        self, updates: Updates = "postimage"
    ) -> dict[tuple[str, str], pa.Table]:
        """Return the rows as a `pyarrow.Table` for each schema and table.

        Needs the extra `canal-server[arrow]`. The columns of the table are followed by
        `_change_type`, `_commit_timestamp`, `_position` and, for the order, `_seq` and
        `_row`. Statements are not rows. If the columns of a table change in the
        message, its table has the columns of all versions.

        Args:
            updates: what an update yields: "postimage" a row with the new values,
                "both" two rows, the old and the new values, "envelope" a row with the
                columns `before` and `after`, which are structs

        """
        from canal_server.client.arrow_tables import tables_of  # noqa: PLC0415  # extra

        return tables_of(self.arrow_batches(updates))

    def arrow_batches(self, updates: Updates = "postimage") -> list[ArrowBatch]:
        """Return the rows as record batches, of which a table may have several.

        Raises ProtocolError for malformed data; otherwise as `to_arrow`.
        """
        return self._readers.arrow(updates).read(self._body)

    def rewind(self) -> None:
        """Prepare for reading this message again, before later ones."""
        self._readers.reset()

    @classmethod
    def of_entries(cls, message_id: int, entries: Iterable[Entry]) -> Self:
        """Return a message made of entries, for tests of programs."""
        fields = (encode(each) for each in entries)
        body = b"".join(b"\x12" + varint(len(each)) + each for each in fields)
        return cls(message_id, memoryview(body), Readers())

    def __bool__(self) -> bool:
        return bool(self._body)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Message)
            and self.id == other.id
            and self._body == other._body
        )

    def __hash__(self) -> int:
        return hash((self.id, bytes(self._body)))

    def __repr__(self) -> str:
        return f"<message {self.id}, {len(self._body)} bytes>"
