"""The rows of the segments of one destination's history in MySQL."""

# ruff: noqa: S608  # names of tables and columns are ours, values are parameters
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.tablemeta.storage.history_storage import BinlogSegment
from canal_server.tablemeta.storage.storage_text import (
    position_from_text,
    position_to_text,
    traits_from_text,
    traits_to_text,
)

if TYPE_CHECKING:
    from canal_server.mysql.login_session import Row
    from canal_server.tablemeta.storage.mysql_server import HistoryServer

_COLUMNS: Final = "id, source, traits, first, last, created_ms"


class MysqlSegments:
    """The segments of one destination; methods that write need a transaction."""

    def __init__(self, server: HistoryServer, destination: str) -> None:
        self._server = server
        self._destination = destination

    def all(self) -> list[BinlogSegment]:
        """Return all segments, the one that was written last at the end."""
        return [
            self._segment(row)
            for row in self._server.query(
                f"SELECT {_COLUMNS} FROM canal_server_stretch"
                " WHERE destination = %s ORDER BY written",
                (self._destination,),
            )
        ]

    def locked(self, segment_id: int) -> BinlogSegment:
        """Return a segment, locked until the transaction ends."""
        rows = self._server.query(
            f"SELECT {_COLUMNS} FROM canal_server_stretch"
            " WHERE id = %s AND destination = %s FOR UPDATE",
            (segment_id, self._destination),
        )
        if not rows:
            raise self._server.error(
                f"has no segment {segment_id} of {self._destination}"
            )
        return self._segment(rows[0])

    def id_of(self, token: str) -> int | None:
        """Return the id of the segment that was added with a token."""
        rows = self._server.query(
            "SELECT id FROM canal_server_stretch WHERE token = %s", (token,)
        )
        return int(rows[0][0]) if rows else None

    def add(self, segment: BinlogSegment, token: str) -> BinlogSegment:
        """Add a segment, identified by a token; returns it with its id."""
        self._server.query(
            "INSERT INTO canal_server_stretch (destination, token, source, traits,"
            " first, last, created_ms, written) VALUES (%s, %s, '', '', '', '', 0, 0)",
            (self._destination, token),
        )
        ((identity,),) = self._server.query("SELECT LAST_INSERT_ID()")
        started = replace(segment, id=int(identity))
        self.update(started)
        return started

    def update(self, segment: BinlogSegment, *, written: bool = True) -> None:
        """Write a segment; `written` makes it the one that was written last."""
        order: Row = ()
        if written:
            order = self._server.query(
                "SELECT MAX(written) + 1 FROM canal_server_stretch"
                " WHERE destination = %s",
                (self._destination,),
            )[0]
        self._server.query(
            "UPDATE canal_server_stretch SET source = %s, traits = %s, first = %s,"
            f" last = %s, created_ms = %s{', written = %s' if written else ''}"
            " WHERE id = %s",
            (
                segment.source,
                traits_to_text(segment.traits),
                position_to_text(segment.first),
                position_to_text(segment.last),
                segment.created_ms,
                *order,
                segment.id,
            ),
        )

    def delete(self, segment_id: int) -> None:
        """Delete a segment, but not its content."""
        self._server.query(
            "DELETE FROM canal_server_stretch WHERE id = %s", (segment_id,)
        )

    def _segment(self, row: Row) -> BinlogSegment:
        identity, source, traits, first, last, created_ms = row
        try:
            return BinlogSegment(
                int(identity),
                source,
                traits_from_text(traits),
                position_from_text(first),
                position_from_text(last),
                int(created_ms),
            )
        except (ValueError, TypeError) as error:
            raise self._server.error(
                f"has an invalid segment {identity} of {self._destination} ({error});"
                " its row in canal_server_stretch was changed: delete that row to start"
                " a new history"
            ) from error
