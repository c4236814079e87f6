"""Every warning and error of the log has a name, a meaning, and fitting arguments."""

from __future__ import annotations

import ast
import io
import logging
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from canal_server.cli.start import log_to
from canal_server.messages import daemon_messages
from canal_server.messages.message import Message
from canal_server.messages.message_areas import (
    MIRROR_AREAS,
    SERVER_AREAS,
    Area,
    all_messages,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "canal_server"
TABLES = PACKAGE / "messages"
AREAS = SERVER_AREAS + MIRROR_AREAS
LOGGERS = {"log", "_log", "logger", "_logger"}
LOUD = {"warning", "warn", "error", "exception", "critical", "fatal"}
PLACEHOLDER = re.compile(r"%(?:\.\d+)?[sdrf]")


class Call(NamedTuple):
    """A call of a method of a logger or of a message."""

    where: str
    target: str  # the name before the method: a logger, or a table and a constant
    method: str
    node: ast.Call


@cache
def trees() -> dict[str, ast.Module]:
    """Return the modules of the package but for the tables, by their paths in it."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
        if TABLES not in path.parents
    }


def calls() -> Iterator[Call]:
    """Yield the calls of methods in all modules that are to log by the tables."""
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                target = ast.unparse(node.func.value)
                yield Call(f"{name}:{node.lineno}", target, node.func.attr, node)


def constants() -> dict[str, Message]:
    """Return the messages by `table.CONSTANT`."""
    return {
        f"{area.table.__name__.rpartition('.')[2]}.{constant}": message
        for area in AREAS
        for constant, message in area.messages().items()
    }


def test_names() -> None:
    """A name is that of the constant, in kebab case, and stands once."""
    for constant, message in constants().items():
        expected = constant.partition(".")[2].lower().replace("_", "-")
        assert message.name == expected
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", message.name), message.name
    assert len(all_messages()) == len(constants())


def test_names_that_occur_twice() -> None:
    """Two messages of one name are an error."""
    with pytest.raises(ValueError, match="two messages have the name"):
        all_messages((*AREAS, Area("again", daemon_messages)))


def test_all_tables_are_collected() -> None:
    """Each module with messages is an area."""
    tables = {path.stem for path in TABLES.rglob("*_messages.py")}
    assert tables == {area.table.__name__.rpartition(".")[2] for area in AREAS}


@pytest.mark.parametrize("name", sorted(all_messages()))
def test_texts(name: str) -> None:
    """A message has a level, a text for one line, and a meaning."""
    message = all_messages()[name]
    assert message.level in (logging.WARNING, logging.ERROR)
    assert message.text == message.text.strip()
    assert "\n" not in message.text
    assert not message.text.endswith(".")
    assert re.match(r"[A-Z`]|canal-server ", message.meaning)
    for each in (message.meaning, message.remedy):
        assert not each or each.endswith("."), each


def test_nothing_is_logged_past_the_tables() -> None:
    """Loggers themselves are asked for INFO and DEBUG alone."""
    past = [
        each.where
        for each in calls()
        if each.target in LOGGERS and each.method in {*LOUD, "log"}
    ]
    assert past == []


def test_arguments_fit() -> None:
    """A message is logged with as many values as its text has placeholders."""
    known = constants()
    used = Counter[str]()
    for each in calls():
        if each.target not in known or each.method != "log":
            continue
        used[each.target] += 1
        logger, *values = each.node.args
        assert ast.unparse(logger) in LOGGERS, each.where
        placeholders = PLACEHOLDER.findall(known[each.target].text)
        assert len(values) == len(placeholders), each.where
        assert not any(isinstance(value, ast.Starred) for value in values), each.where
    assert all(text.count("%") == len(PLACEHOLDER.findall(text)) for text in texts())
    assert known.keys() == used.keys(), "some are logged nowhere"


def texts() -> list[str]:
    """Return the texts of all messages."""
    return [each.text for each in all_messages().values()]


def test_messages_are_used_by_their_tables() -> None:
    """A message is named as `table.CONSTANT` and logged there, so that tests see it."""
    known = constants()
    for name, tree in trees().items():
        logged = {
            id(node.func.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "log"
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in known:
                assert id(node) in logged, f"{name}:{node.lineno}"


def lines_of(message: Message, *args: object, level: int | None = None) -> list[str]:
    """Return what the log shows of a message."""
    logger, output = logging.getLogger("messages.test"), io.StringIO()
    root = logging.getLogger()
    handler, before = logging.StreamHandler(output), root.level
    log_to("info", handler)
    try:
        message.log(logger, *args, level=level)
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
    return output.getvalue().splitlines()


MESSAGE = Message("a-name", logging.WARNING, "cannot open %s", "It cannot.")


def test_a_line_ends_with_the_name() -> None:
    """What was in the line before stays; the name follows it."""
    (line,) = lines_of(MESSAGE, "door")
    assert line.endswith(" WARNING [MainThread] cannot open door [a-name]")


def test_less_than_a_warning_has_no_name() -> None:
    """A caller for whom it is no warning logs it as plain information."""
    (line,) = lines_of(MESSAGE, "door", level=logging.INFO)
    assert line.endswith("] cannot open door")


def test_the_logged_place_is_the_callers(caplog: pytest.LogCaptureFixture) -> None:
    """The record names who logged: by that, messages of clients are limited."""
    MESSAGE.log(logging.getLogger("messages.test"), "door")
    (record,) = caplog.records
    assert record.pathname == __file__
    assert record.funcName == "test_the_logged_place_is_the_callers"


def test_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """An error that is being handled is logged with its traceback."""
    try:
        {"window": 1}["door"]
    except KeyError:
        MESSAGE.log(logging.getLogger("messages.test"), "door", exc_info=True)
    assert "KeyError: 'door'" in caplog.text
