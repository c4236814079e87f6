"""Operations on two GTID sets of one kind: MySQL's or MariaDB's, as the server has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet

if TYPE_CHECKING:
    from canal_server.mysql.flavour import ServerInfo

Gtids = GtidSet | MariaGtidSet


def parse(text: str, info: ServerInfo) -> Gtids:
    """Parse a set of the server's kind. Raises ValueError."""
    return (MariaGtidSet if info.is_mariadb else GtidSet).parse(text)


def parsed(text: str | None, info: ServerInfo) -> Gtids | None:
    """Parse a set that may come from another program, None when it is None.

    An empty text is the set of a server that has executed nothing yet.
    """
    try:
        return None if text is None else parse(text, info)
    except ValueError:
        return None


def contains(gtids: Gtids, other: Gtids) -> bool:
    """Return whether a set contains another one of its kind."""
    return gtids.contains(other)  # type: ignore[arg-type]


def subtract(gtids: Gtids, other: Gtids) -> Gtids:
    """Return the difference of two sets of one kind."""
    return gtids.subtract(other)  # type: ignore[arg-type]
