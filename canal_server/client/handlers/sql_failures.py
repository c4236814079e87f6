"""Errors of databases as what a consumer does about them. Needs SQLAlchemy."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from canal_server.client.handlers.handler import Rejected, RetryLater
from canal_server.errors import CanalError
from canal_server.model.quoted import LINE_MAX, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

# The start of an SQLSTATE: no connection, rollback (deadlock), out of resources,
# shut down, error of the system.
_PASSING_STATES: Final = ("08", "40", "53", "57", "58")
# Of MySQL: too many connections, shut down, lock wait timeout, deadlock, read-only,
# no connection, lost connection.
_PASSING_NUMBERS: Final = frozenset(
    {1040, 1053, 1205, 1213, 1290, 1836, 2002, 2003, 2006, 2013}
)
_REFUSED: Final = (
    sa.exc.IntegrityError,
    sa.exc.DataError,
    sa.exc.ProgrammingError,
    sa.exc.NotSupportedError,
)


@contextlib.contextmanager
def failures(target: str, *, connecting: bool = False) -> Iterator[None]:
    """Raise errors of a database as RetryLater, Rejected or, unclear ones, CanalError.

    Every failure to connect is passing: the database may be starting.
    """
    try:
        yield
    except sa.exc.DBAPIError as error:
        text = f"{target}: {_reason(error)}"
        if connecting or error.connection_invalidated or _is_passing(error):
            raise RetryLater(text) from error
        if isinstance(error, _REFUSED) or _code_of(error) is not None:
            raise Rejected(text) from error
        raise CanalError(text) from error
    except sa.exc.StatementError as error:  # a value that its column cannot have
        raise Rejected(f"{target}: {_reason(error)}") from error


def _is_passing(error: sa.exc.DBAPIError) -> bool:
    code = _code_of(error)
    if isinstance(code, str):
        return code.startswith(_PASSING_STATES)
    if code is not None:
        return code in _PASSING_NUMBERS
    return "is locked" in str(error.orig)  # SQLite


def _code_of(error: sa.exc.DBAPIError) -> str | int | None:
    """Return the SQLSTATE of an error, or its number as those of MySQL have it."""
    state = getattr(error.orig, "sqlstate", None)
    if isinstance(state, str):
        return state
    first = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return first if isinstance(first, int) else None


def _reason(error: sa.exc.StatementError) -> str:
    """Return the database's own text, without the statement and its values."""
    lines = str(error.orig).strip().splitlines()
    return printable(" ".join(filter(None, map(str.strip, lines))), LINE_MAX)
