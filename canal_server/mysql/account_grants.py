"""The privileges of the account that is logged in, from SHOW GRANTS.

Only those in force: an active role counts, one that is merely granted does not. The
rows themselves are not kept, as those of a MariaDB contain the hash of the password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost, SourceError
from canal_server.mysql.server_answers import reads_answers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.mysql.control_connection import ControlConnection

ANY: Final = "*"
_NAME: Final = r"(?:\*|`(?:[^`]|``)*`)"
_ROW: Final = re.compile(
    rf"(?P<verb>GRANT|REVOKE) (?P<names>.+?) ON (?:TABLE )?(?P<schema>{_NAME})\."
    rf"(?P<table>{_NAME}) (?:TO|FROM) .*",
    re.DOTALL,
)
# Neither gives a privilege on a table: a role that is granted, the default role, an
# account that may be impersonated, and stored programs.
_OTHER: Final = re.compile(
    r"GRANT [`'\"]|SET DEFAULT ROLE |GRANT PROXY ON "
    r"|GRANT .+? ON (?:FUNCTION|PROCEDURE|PACKAGE|PACKAGE BODY|LIBRARY) ",
    re.DOTALL,
)
_SEPARATOR: Final = re.compile(r",\s*(?![^()]*\))")  # not between columns
_ALL: Final = frozenset({"ALL PRIVILEGES", "ALL"})


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges, in upper case, on a schema (a pattern of LIKE) or a table."""

    names: frozenset[str]
    schema: str = ANY
    table: str = ANY

    def has(self, name: str) -> bool:
        """Return whether it contains a privilege."""
        return name in self.names or bool(self.names & _ALL)

    def is_about(self, schema: str, table: str) -> bool:
        """Return whether it holds for a table."""
        if self.schema == ANY:
            return True
        if self.table != ANY:
            return (self.schema, self.table) == (schema, table)
        return bool(_pattern(self.schema).fullmatch(schema))


@dataclass(frozen=True, slots=True)
class Grants:
    """All privileges of an account; `revoked` are exceptions from global ones.

    Not `is_whole`: some row could not be read, so others may be there.
    """

    granted: tuple[Grant, ...]
    revoked: tuple[Grant, ...] = ()
    is_whole: bool = True

    def has_global(self, *names: str) -> bool:
        """Return whether one of these privileges is granted on everything."""
        return any(
            each.schema == ANY and each.has(name)
            for each in self.granted
            for name in names
        )

    def has(self, name: str, schema: str, table: str) -> bool:
        """Return whether a privilege is granted on a whole table."""
        is_revoked = any(
            each.has(name) and each.is_about(schema, table) for each in self.revoked
        )
        return any(
            each.has(name) and each.is_about(schema, table)
            for each in self.granted
            if not (is_revoked and each.schema == ANY)
        )

    def lacks(self, name: str, schema: str, table: str) -> bool:
        """Return whether a privilege on a table is certainly missing."""
        return self.is_whole and not self.has(name, schema, table)


@reads_answers("its grants")
def _rows(control: ControlConnection) -> list[str]:
    return [str(row[0]) for row in control.query("SHOW GRANTS")]


def read_grants(control: ControlConnection) -> Grants | None:
    """Return the privileges of the account, None if the server does not show them.

    Raises ConnectionLost.
    """
    try:
        return parse_grants(_rows(control))
    except ConnectionLost:
        raise
    except SourceError:
        return None


def parse_grants(rows: Iterable[str]) -> Grants:
    """Parse the rows of SHOW GRANTS."""
    granted: list[Grant] = []
    revoked: list[Grant] = []
    is_whole = True
    for row in rows:
        found = _ROW.fullmatch(row)
        if found is None:
            is_whole = is_whole and _OTHER.match(row) is not None
            continue
        grant = Grant(
            # One on some columns keeps their names, and so is not that on the table.
            frozenset(
                each.strip().upper() for each in _SEPARATOR.split(found["names"])
            ),
            _plain(found["schema"]),
            _plain(found["table"]),
        )
        (granted if found["verb"] == "GRANT" else revoked).append(grant)
    return Grants(tuple(granted), tuple(revoked), is_whole)


def _plain(name: str) -> str:
    return name if name == ANY else name[1:-1].replace("``", "`")


def _pattern(like: str) -> re.Pattern[str]:
    """Return a pattern of LIKE as a regular expression."""
    parts = re.findall(r"\\.|.", like, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return re.compile(
        "".join(wild.get(part) or re.escape(part[-1]) for part in parts), re.DOTALL
    )
