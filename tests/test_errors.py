"""The tree of errors: as it is drawn, and what each carries."""

from __future__ import annotations

import inspect
import re

import pytest

from canal_server import errors
from canal_server.errors import (
    CanalError,
    ClientError,
    ConfigError,
    DecodeError,
    SourceError,
    SourceRefused,
)


def drawn() -> dict[str, str]:
    """Return the parent of each error in the picture."""
    parents: dict[str, str] = {}
    path = ["CanalError"]
    found = re.findall(r"^ {4}([│ ]*)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE)
    for indent, name in found:
        depth = len(indent) // 4 + 1
        parents[name] = path[depth - 1]
        path[depth:] = [name]
    return parents


def test_the_picture_is_the_tree() -> None:
    """Each class is drawn under the one that it inherits from, and no other."""
    classes = {
        name: found.__bases__[0].__name__
        for name, found in inspect.getmembers(errors, inspect.isclass)
        if issubclass(found, Exception) and found is not CanalError
    }
    assert drawn() == classes


def test_the_root() -> None:
    """All can be caught at once, and nothing of Python's own with them."""
    assert CanalError.__base__ is Exception


def test_problems() -> None:
    """A wrong configuration shows all of its problems, one a line."""
    error = ConfigError(["a: x = 1: wrong", "b: missing"])
    assert str(error) == "a: x = 1: wrong\nb: missing"
    assert error.problems == ["a: x = 1: wrong", "b: missing"]


@pytest.mark.parametrize("kind", [SourceError, SourceRefused])
def test_numbers_of_the_source(kind: type[SourceError]) -> None:
    """MySQL's number is carried where there is one."""
    assert kind("no").errno is None
    assert kind("no", errno=1045).errno == 1045


def test_the_position_of_an_event() -> None:
    """It is in the message as soon as it is known."""
    assert str(DecodeError("short")) == "short"
    error = DecodeError("short", file="bin.000001", position=4)
    assert str(error) == "short (event at bin.000001:4)"
    assert (error.file, error.position) == ("bin.000001", 4)


def test_codes_for_clients() -> None:
    """A refusal is a client's fault unless it says otherwise."""
    assert ClientError("no").code == 400
    assert ClientError("no", code=401).code == 401
