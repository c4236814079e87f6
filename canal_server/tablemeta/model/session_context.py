"""The session of a DDL statement as its event describes it, if it affects the result.

The default schema and the text are omitted if they are kept elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from canal_server.doors.sqltext import Dialect

REAL_AS_FLOAT: Final = 1 << 0
ANSI_QUOTES: Final = 1 << 2
ORACLE: Final = 1 << 9  # MariaDB
ORACLE_DIALECT_SINCE: Final = 100300  # MariaDB 10.3.0
MSSQL: Final = 1 << 10  # MariaDB
MAXDB: Final = 1 << 12  # MariaDB
ANSI: Final = 1 << 18
NO_TABLE_OPTIONS: Final = 1 << 14  # MariaDB
# MariaDB's modes for other servers' dialects: POSTGRESQL, ORACLE, MSSQL, DB2, MAXDB
DIALECTS: Final = 0b11111 << 8
NO_BACKSLASH_ESCAPES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Context:
    """A session as described by the QUERY event of its statement.

    `server_version` is 80401 for 8.4.1, 101119 for MariaDB 10.11.19; with 0, executable
    comments of every version count. Collations are names, None if the event has none.
    `error` is the error code of the event: not 0 for a statement that was executed in
    part. `restarted`: the server was restarted since the previous statement, and its
    sessions have ended.
    """

    schema: str = ""
    mariadb: bool = False
    server_version: int = 0
    sql_mode: int = 0
    charset_client: str | None = None
    collation_connection: str | None = None
    collation_server: str | None = None
    collation_database: str | None = None
    collation_utf8mb4: str | None = None
    explicit_timestamp: bool | None = None
    error: int = 0
    thread_id: int = 0
    restarted: bool = False

    @property
    def dialect(self) -> Dialect:
        """How the server parsed the text."""
        return Dialect(
            ansi_quotes=bool(self.sql_mode & ANSI_QUOTES),
            no_backslash_escapes=bool(self.sql_mode & NO_BACKSLASH_ESCAPES),
            mariadb=self.mariadb,
            server_version=self.server_version,
            brackets=self.mariadb and bool(self.sql_mode & MSSQL),
        )

    @property
    def oracle(self) -> bool:
        """Whether the text is in MariaDB's Oracle dialect, newer than the mode.

        An unknown version counts as a new one.
        """
        has_dialect = not 0 < self.server_version < ORACLE_DIALECT_SINCE
        return self.mariadb and has_dialect and bool(self.sql_mode & ORACLE)

    @property
    def leaves_options_out(self) -> bool:
        """Whether the server writes a CREATE TABLE without table options."""
        modes = ANSI | (NO_TABLE_OPTIONS | DIALECTS if self.mariadb else 0)
        return bool(self.sql_mode & modes)

    def to_json(self) -> str:
        """Return a short text with the differences from the defaults."""
        return json.dumps(
            {
                field.name: getattr(self, field.name)
                for field in fields(self)
                if getattr(self, field.name) != field.default
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the result of `to_json`; additions of later versions are ignored."""
        found: dict[str, Any] = json.loads(text) if text else {}
        names = {field.name for field in fields(cls)}
        return cls(**{name: each for name, each in found.items() if name in names})
