"""Unreadable answers of a server: one error that names the query."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from canal_server.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.mysql.control_connection import ControlConnection

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")

# What parsing raises for an answer with unexpected rows, columns or values.
_NO_ANSWER = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError)


@contextlib.contextmanager
def answer_about(what: str, address: object) -> Iterator[None]:
    """Parse a server's answer inside; SourceError when it is invalid."""
    try:
        yield
    except _NO_ANSWER as error:
        raise SourceError(
            f"{address}: the server's answer about {what} cannot be read:"
            f" {error!r:.200}"
        ) from error


def reads_answers(
    what: str,
) -> Callable[
    [Callable[Concatenate[ControlConnection, _Given], _Found]],
    Callable[Concatenate[ControlConnection, _Given], _Found],
]:
    """Make a function that queries a connection raise as `answer_about` does."""

    def decorated(
        function: Callable[Concatenate[ControlConnection, _Given], _Found],
    ) -> Callable[Concatenate[ControlConnection, _Given], _Found]:
        @functools.wraps(function)
        def guarded(
            connection: ControlConnection,
            /,
            *args: _Given.args,
            **named: _Given.kwargs,
        ) -> _Found:
            with answer_about(what, connection.access.address):
                return function(connection, *args, **named)

        return guarded

    return decorated
