"""The SQL statements for rows of the Java server's two tables and our own tables."""

# ruff: noqa: S608  # names of tables and columns are ours, values are parameters
from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from canal_server.tablemeta.storage.mysql_server import escaped_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.login_session import Row
    from canal_server.tablemeta.storage.mysql_server import HistoryServer

    Order = tuple[int, int]
    # Position, note, and the columns of this kind of row.
    NewRow = tuple[EntryPosition, str, Sequence[str]]

VERSION: Final = 1

HISTORY: Final = "meta_history"
SNAPSHOT: Final = "meta_snapshot"

ASIDE: Final = 0  # the segment id of rows that belong to none
_ROWS_AT_ONCE: Final = 200
_BYTES_AT_ONCE: Final = 256 * 1024  # per INSERT

# Beyond all server ids: for rows whose position another segment needs.
_DISPLACED: Final = "CAST(-1000 - CAST(id AS SIGNED) AS CHAR)"

_CREATED_MS: Final = (
    "1000 * UNIX_TIMESTAMP(CONVERT_TZ(m.gmt_create, @@global.time_zone, '+00:00'))"
)

_COLUMNS: Final = {
    HISTORY: ("use_schema", "sql_schema", "sql_table", "sql_text", "sql_type"),
    SNAPSHOT: ("data",),
}

# Names, types and keys of the first two are those of the Java server, including the
# typo.
_ORIGINAL: Final = """CREATE TABLE IF NOT EXISTS {name} (
    id bigint unsigned NOT NULL AUTO_INCREMENT,
    gmt_create datetime NOT NULL,
    gmt_modified datetime NOT NULL,
    destination varchar(128) DEFAULT NULL,
    binlog_file varchar(64) DEFAULT NULL,
    binlog_offest bigint DEFAULT NULL,
    binlog_master_id varchar(64) DEFAULT NULL,
    binlog_timestamp bigint DEFAULT NULL,
    {columns}
    extra text DEFAULT NULL,
    PRIMARY KEY (id),
    UNIQUE KEY binlog_file_offest
        (destination, binlog_master_id, binlog_file, binlog_offest),
    KEY destination (destination),
    KEY destination_timestamp (destination, binlog_timestamp),
    KEY gmt_modified (gmt_modified)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb3"""

TABLES: Final = {
    HISTORY: _ORIGINAL.format(
        name=HISTORY,
        columns="""use_schema varchar(1024) DEFAULT NULL,
    sql_schema varchar(1024) DEFAULT NULL,
    sql_table varchar(1024) DEFAULT NULL,
    sql_text longtext DEFAULT NULL,
    sql_type varchar(256) DEFAULT NULL,""",
    ),
    SNAPSHOT: _ORIGINAL.format(name=SNAPSHOT, columns="data longtext DEFAULT NULL,"),
    "canal_server_stretch": f"""CREATE TABLE IF NOT EXISTS canal_server_stretch (
    id bigint unsigned NOT NULL AUTO_INCREMENT,
    destination varchar(128) NOT NULL,
    token char(32) NOT NULL,
    source varchar(255) NOT NULL,
    traits text NOT NULL,
    first longtext NOT NULL,
    last longtext NOT NULL,
    created_ms bigint NOT NULL,
    written bigint unsigned NOT NULL,
    PRIMARY KEY (id),
    UNIQUE KEY token (token),
    KEY destination_written (destination, written)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
    COMMENT='table history of canal-server, version {VERSION}'""",
    "canal_server_place": """CREATE TABLE IF NOT EXISTS canal_server_place (
    kind varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    row_id bigint unsigned NOT NULL,
    stretch bigint unsigned NOT NULL,
    file_number bigint unsigned NOT NULL,
    start bigint unsigned NOT NULL,
    note longtext NOT NULL,
    PRIMARY KEY (kind, row_id),
    UNIQUE KEY place (stretch, kind, file_number, start)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin""",
}


class Rows:
    """The rows of one destination; methods that write need a transaction."""

    def __init__(self, server: HistoryServer, destination: str) -> None:
        self._server = server
        self._destination = destination

    # --- reading ----------------------------------------------------------------------

    def page(
        self, segment: int, begins: Order, ends: Order | None, count: int
    ) -> list[Row]:
        """Return order, row id, note and columns of the next statements.

        The id is None if the row was deleted.
        """
        where, values = "", []
        if ends is not None:
            where = " AND (p.file_number < %s OR p.file_number = %s AND p.start < %s)"
            values = [ends[0], *ends]
        return self._server.query(
            "SELECT p.file_number, p.start, m.id, p.note, m.use_schema, m.sql_schema,"
            " m.sql_table, m.sql_text, m.sql_type"
            " FROM canal_server_place p LEFT JOIN meta_history m ON m.id = p.row_id"
            " WHERE p.stretch = %s AND p.kind = %s AND p.file_number >= %s"
            f" AND (p.file_number > %s OR p.start >= %s){where}"
            " ORDER BY p.file_number, p.start LIMIT %s",
            (segment, HISTORY, begins[0], *begins, *values, count),
        )

    def snapshot(self, segment: int, at: Order | None) -> tuple[str, str] | None:
        """Return note and data of the newest snapshot at or before a position."""
        where, values = "", []
        if at is not None:
            where = " AND (p.file_number < %s OR p.file_number = %s AND p.start <= %s)"
            values = [at[0], *at]
        rows = self._server.query(
            "SELECT p.note, m.data FROM canal_server_place p"
            " JOIN meta_snapshot m ON m.id = p.row_id"
            f" WHERE p.stretch = %s AND p.kind = %s{where}"
            " ORDER BY p.file_number DESC, p.start DESC LIMIT 1",
            (segment, SNAPSHOT, *values),
        )
        return (rows[0][0], rows[0][1] or "") if rows else None

    def notes(self, kind: str, segment: int) -> list[str]:
        """Return the notes of all existing rows of a segment."""
        rows = self._server.query(
            f"SELECT p.note FROM canal_server_place p JOIN {kind} m"
            " ON m.id = p.row_id WHERE p.stretch = %s AND p.kind = %s",
            (segment, kind),
        )
        return [note for (note,) in rows]

    # --- writing ----------------------------------------------------------------------

    def put(self, kind: str, segment: int, rows: Sequence[NewRow]) -> int:
        """Add the rows of positions that are new to the segment; returns how many."""
        added = 0
        for part in _parts(rows):
            # Of several rows for one position, the first counts.
            new = {row[0].order(): row for row in reversed(part)}
            for known in self._known(kind, segment, list(new)):
                del new[known]
            if new:
                self._insert(kind, segment, list(new.values()))
            added += len(new)
        return added

    def delete(
        self,
        kind: str,
        segment: int,
        *,
        before: Order | None = None,
        at: Order | None = None,
    ) -> int:
        """Delete rows, all or those before or at a position; returns how many."""
        where, values = "p.stretch = %s AND p.kind = %s", [segment, kind]
        if before is not None:
            where += " AND (p.file_number < %s OR p.file_number = %s AND p.start < %s)"
            values += [before[0], *before]
        if at is not None:
            where += " AND p.file_number = %s AND p.start = %s"
            values += at
        ((count,),) = self._server.query(
            f"SELECT COUNT(*) FROM canal_server_place p WHERE {where}",
            values,
        )
        if count:
            self._server.query(
                f"DELETE p, m FROM canal_server_place p LEFT JOIN {kind} m"
                f" ON m.id = p.row_id WHERE {where}",
                values,
            )
        return int(count)

    def assign(
        self, kind: str, segment: int, positions: Iterable[tuple[int, Order, str]]
    ) -> None:
        """Store where rows, given by their ids, belong."""
        rest = iter(positions)
        while part := list(islice(rest, _ROWS_AT_ONCE)):
            self._server.query(
                "INSERT INTO canal_server_place"
                " (kind, row_id, stretch, file_number, start, note) VALUES "
                + ", ".join(["(%s, %s, %s, %s, %s, %s)"] * len(part)),
                [
                    value
                    for row_id, order, note in part
                    for value in (kind, row_id, segment, *order, note)
                ],
            )

    def _known(self, kind: str, segment: int, orders: Sequence[Order]) -> list[Order]:
        marks = ", ".join(["(%s, %s)"] * len(orders))
        rows = self._server.query(
            "SELECT file_number, start FROM canal_server_place"
            " WHERE stretch = %s AND kind = %s AND file_number BETWEEN %s AND %s"
            f" AND (file_number, start) IN ({marks})",
            (
                segment,
                kind,
                min(orders)[0],
                max(orders)[0],
                *(number for order in orders for number in order),
            ),
        )
        return [(int(file_number), int(start)) for file_number, start in rows]

    def _insert(self, kind: str, segment: int, rows: Sequence[NewRow]) -> None:
        keys = [_key(position) for position, _, _ in rows]
        marks = ", ".join(["(%s, %s, %s)"] * len(keys))
        of_keys = (
            "destination = %s AND (binlog_master_id, binlog_file, binlog_offest)"
            f" IN ({marks})"
        )
        values = (self._destination, *(value for key in keys for value in key))
        # Rows of the Java server for these positions contain no more than ours.
        self._server.query(
            f"DELETE m, p FROM {kind} m LEFT JOIN canal_server_place p"
            f" ON p.kind = '{kind}' AND p.row_id = m.id"
            f" WHERE {of_keys} AND COALESCE(p.stretch, {ASIDE}) = {ASIDE}",
            values,
        )
        self._server.query(
            f"UPDATE {kind} SET binlog_master_id = {_DISPLACED} WHERE {of_keys}",
            values,
        )
        columns = _COLUMNS[kind]
        one = f"(NOW(), NOW(), {', '.join(['%s'] * (5 + len(columns)))})"
        self._server.query(
            f"INSERT INTO {kind} (gmt_create, gmt_modified, destination,"
            " binlog_master_id, binlog_file, binlog_offest, binlog_timestamp,"
            f" {', '.join(columns)}) VALUES {', '.join([one] * len(rows))}",
            [
                value
                for (position, _, own), key in zip(rows, keys, strict=True)
                for value in (
                    self._destination,
                    *key,
                    position.timestamp or 0,
                    *own,
                )
            ],
        )
        found = self._server.query(
            "SELECT binlog_master_id, binlog_file, binlog_offest, id"
            f" FROM {kind} WHERE {of_keys}",
            values,
        )
        ids = {
            (master, file, int(offset)): int(id_) for master, file, offset, id_ in found
        }
        self.assign(
            kind,
            segment,
            [
                (ids[key], position.order(), note)
                for (position, note, _), key in zip(rows, keys, strict=True)
            ],
        )

    # --- rows of the Java server
    # -------------------------------------------------------

    def foreign_statements(self) -> list[Row]:
        """Return id, position and columns of Java's statements without a position."""
        return self._foreign(
            HISTORY,
            "COALESCE(m.use_schema, ''), m.sql_text, COALESCE(m.sql_type, ''),"
            " COALESCE(m.sql_schema, ''), COALESCE(m.sql_table, '')",
        )

    def foreign_snapshots(self) -> list[Row]:
        """Return id, position and creation time of Java's snapshots without one."""
        # Its rows have times in the server's zone, ours are in UTC.
        return self._foreign(SNAPSHOT, f"COALESCE({_CREATED_MS}, 0)")

    def data(self, snapshot_id: int) -> str:
        """Return the content of a snapshot."""
        rows = self._server.query(
            "SELECT data FROM meta_snapshot WHERE id = %s", (snapshot_id,)
        )
        return str(rows[0][0] or "") if rows else ""

    def leave_aside(self) -> None:
        """Ignore the rows of the Java server without a position from now on."""
        for kind in (HISTORY, SNAPSHOT):
            self.assign(
                kind,
                ASIDE,
                (
                    (int(row[0]), (0, int(row[0])), "{}")
                    for row in self._foreign(kind, "NULL")
                ),
            )

    def _foreign(self, kind: str, columns: str) -> list[Row]:
        # Destination names are case-sensitive, the Java server's columns are not.
        return self._server.query(
            "SELECT m.id, m.binlog_file, m.binlog_offest, m.binlog_master_id,"
            f" m.binlog_timestamp, {columns} FROM {kind} m"
            " LEFT JOIN canal_server_place p ON p.kind = %s AND p.row_id = m.id"
            " WHERE m.destination = %s AND p.row_id IS NULL"
            " AND CAST(m.destination AS BINARY) = CAST(%s AS BINARY) ORDER BY m.id",
            (kind, self._destination, self._destination),
        )


def _key(position: EntryPosition) -> tuple[str, str, int]:
    server_id = -1 if position.server_id is None else position.server_id
    return str(server_id), position.journal_name or "", position.position or 0


def _parts(rows: Sequence[NewRow]) -> Iterator[list[NewRow]]:
    """Split into parts of a bounded number of rows and bytes, at least one row each."""
    part: list[NewRow] = []
    size = 0
    for row in rows:
        row_size = sum(map(escaped_bytes, (row[1], *row[2])))
        if part and (len(part) == _ROWS_AT_ONCE or size + row_size > _BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(row)
        size += row_size
    if part:
        yield part
