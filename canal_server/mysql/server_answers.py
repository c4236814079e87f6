"""Answers of a server that cannot be read: one error that says what was asked."""

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

# What reading an answer raises that has other rows, columns or values than asked for.
_NO_ANSWER = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError)


@contextlib.contextmanager
def answer_about(what: str, address: object) -> Iterator[None]:
    """Read an answer of the server inside; SourceError when it cannot be one."""
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
    """Have a function that asks over a connection raise as `answer_about` does."""

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
