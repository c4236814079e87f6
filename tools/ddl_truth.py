"""What a server says of its tables: their columns, keys and CREATE texts.

Leaves out views, sequences and the server's own schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pymysql

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN_SCHEMAS: Final = ("mysql", "sys", "information_schema", "performance_schema")
_HIDDEN_KINDS: Final = frozenset({"VIEW", "SYSTEM VIEW", "SEQUENCE"})
_ELSEWHERE: Final = f"NOT IN {OWN_SCHEMAS}"

# name, type, nullable, position in the primary key, character set, flags
Column = list[Any]
Tables = dict[tuple[str, str], list[Column]]  # by schema and name
Changes = dict[str, dict[str, Any]]  # schema -> table -> columns and text, or None


class Observer:
    """Looks at all tables of a server; remembers what it saw last."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection
        self.seen: Tables = {}

    def changes(self) -> Changes:
        """Return what differs from the last look; None stands for a table that went.

        Raises pymysql's errors when the server does not answer.
        """
        now = self.look()
        found: Changes = {}
        for schema, table in self.seen.keys() - now.keys():
            found.setdefault(schema, {})[table] = None
        for (schema, table), columns in now.items():
            if self.seen.get((schema, table)) != columns:
                found.setdefault(schema, {})[table] = {
                    "columns": columns,
                    "create": self._create_text(schema, table),
                }
        self.seen = now
        return {name: dict(sorted(found[name].items())) for name in sorted(found)}

    def look(self) -> Tables:
        """Return the columns of all tables."""
        kinds = self._rows(
            "SELECT table_schema, table_name, table_type FROM "
            f"information_schema.tables WHERE table_schema {_ELSEWHERE}"
        )
        hidden = {(row[0], row[1]) for row in kinds if row[2] in _HIDDEN_KINDS}
        keys = {
            tuple(row[:3]): row[3]
            for row in self._rows(
                "SELECT table_schema, table_name, column_name, seq_in_index FROM "
                "information_schema.statistics WHERE index_name = 'PRIMARY' AND "
                f"table_schema {_ELSEWHERE}"
            )
        }
        found: Tables = {}
        for row in self._rows(
            "SELECT table_schema, table_name, column_name, column_type, is_nullable, "
            "character_set_name, extra FROM information_schema.columns WHERE "
            f"table_schema {_ELSEWHERE} "
            "ORDER BY table_schema, table_name, ordinal_position"
        ):
            schema, table, name, kind, nullable, charset, extra = row
            if (schema, table) not in hidden:
                found.setdefault((schema, table), []).append(
                    [
                        name,
                        kind,
                        int(nullable == "YES"),
                        int(keys.get((schema, table, name), 0)),
                        # As MySQL names it since 8.0.29.
                        "utf8mb3" if charset == "utf8" else charset,
                        _flags(extra),
                    ]
                )
        return found

    def _create_text(self, schema: str, table: str) -> str:
        try:
            rows = self._rows(f"SHOW CREATE TABLE {_name(schema)}.{_name(table)}")
        except pymysql.err.MySQLError:
            return ""  # a table that is damaged has columns, and no text
        return str(rows[0][1])

    def _rows(self, query: str) -> Sequence[Sequence[Any]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows


def _flags(extra: str) -> str:
    """Return G for generated, I for invisible, A for auto_increment."""
    words = extra.upper()
    generated = "GENERATED" in words.replace("DEFAULT_GENERATED", "")
    return (
        ("G" if generated else "")
        + ("I" if "INVISIBLE" in words else "")
        + ("A" if "AUTO_INCREMENT" in words else "")
    )


def _name(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"
