"""GTID sets of which both are of one kind: MySQL's or MariaDB's, as the server is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet

if TYPE_CHECKING:
    from canal_server.mysql.flavour import ServerInfo

Gtids = GtidSet | MariaGtidSet


def parse(text: str, info: ServerInfo) -> Gtids:
    """Return a set of a server's kind. Raises ValueError."""
    return (MariaGtidSet if info.is_mariadb else GtidSet).parse(text)


def parsed(text: str | None, info: ServerInfo) -> Gtids | None:
    """Return a set that somebody else may have written, None if there is none.

    An empty text is the set of a server that has executed nothing yet.
    """
    try:
        return None if text is None else parse(text, info)
    except ValueError:
        return None


def contains(gtids: Gtids, other: Gtids) -> bool:
    """Tell whether a set has all of another one of its kind."""
    return gtids.contains(other)  # type: ignore[arg-type]


def subtract(gtids: Gtids, other: Gtids) -> Gtids:
    """Return what another set of its kind lacks of a set."""
    return gtids.subtract(other)  # type: ignore[arg-type]
