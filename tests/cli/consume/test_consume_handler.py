"""From the texts of options to a handler, and errors that say what is wrong."""

from __future__ import annotations

import importlib
import sys
import textwrap
from typing import Any

import pytest

from canal_server.cli.consume.consume_handler import READY, load_handler, settings_of
from canal_server.client.handlers.json_lines_file import JsonLines
from canal_server.client.handlers.sql_upsert import SqlUpsert
from canal_server.client.handlers.webhook import Webhook
from canal_server.errors import ConfigError

SECRET = "pa55word"
MODULE = """
from pathlib import Path
from typing import Literal

def handle(change):
    pass

class Plain:
    def handle(self, change):
        pass

made = Plain()
number = 7

class Typed:
    def __init__(self, path: Path, count: int = 1, share: float = 0.5, *,
                 safe: bool = False, kind: Literal["a", "b"] = "a",
                 name: str | None = None, free=None):
        self.values = path, count, share, safe, kind, name, free
        if name == "bad":
            raise ValueError("name: expected another")

    def handle(self, change):
        pass

class Nothing:
    pass
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """Have a module of a user in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import json\n\nx = json.nothing\n")
    (tmp_path / "needy.py").write_text("import module_that_nobody_has\n")
    importlib.invalidate_caches()
    yield
    for name in ("mine", "broken", "needy"):
        sys.modules.pop(name, None)


def problems(spec, **settings):
    """Return what is wrong with a handler."""
    with pytest.raises(ConfigError) as caught:
        load_handler(spec, settings)
    return caught.value.problems


def test_what_a_user_has():
    """A function, an object and a class of the current folder are handlers."""
    mine = importlib.import_module
    function = load_handler("mine:handle", {})
    assert function is mine("mine").handle
    assert load_handler("mine:made", {}) is mine("mine").made
    assert isinstance(load_handler("mine:Plain", {}), mine("mine").Plain)
    assert load_handler("mine:made.handle", {}) == mine("mine").made.handle


def test_settings_have_the_types_of_parameters():
    """Texts become what the class asks for; without a type they stay texts."""
    made: Any = load_handler(
        "mine:Typed",
        {"path": "a/b", "count": "7", "share": "1e-3", "safe": "yes", "kind": "b",
         "name": "x", "free": "8"},
    )  # fmt: skip
    path, *others = made.values
    assert str(path) == "a/b"
    assert others == [7, 0.001, True, "b", "x", "8"]


@pytest.mark.parametrize(
    ("settings", "problem_text"),
    [
        ({}, ["--set path=…: mine:Typed requires it"]),
        (
            {"path": "x", "count": SECRET, "safe": SECRET, "share": "", "kind": SECRET},
            [
                "--set count: expected an integer",
                "--set kind: expected a or b",
                "--set safe: expected true or false",
                "--set share: expected a number",
            ],
        ),
        (
            {"path": "x", "speed": SECRET},
            [
                (
                    "--set speed: mine:Typed has no such setting; it has path, count,"
                    " share, safe, kind, name, free"
                )
            ],
        ),
        ({"path": "x", "share": "nan"}, ["--set share: expected a number"]),
        (
            {"path": "x", "clock": "3"},
            [
                (
                    "--set clock: mine:Typed has no such setting; it has path, count,"
                    " share, safe, kind, name, free"
                )
            ],
        ),
        (
            {"path": "x", "name": "bad"},
            ["--handler mine:Typed: name: expected another"],
        ),
    ],
)
def test_wrong_settings(settings, problem_text):
    """All problems are named at once, without values."""
    assert problems("mine:Typed", **settings) == problem_text


@pytest.mark.parametrize(
    ("spec", "problem_text"),
    [
        ("mine", "--handler 'mine': expected module:name, or one of json-lines, "),
        ("mine:", "--handler 'mine:': expected module:name"),
        (":x", "--handler ':x': expected module:name"),
        ("mine:none", "--handler mine:none: mine has no 'none'"),
        ("mine:Plain.none", "--handler mine:Plain.none: Plain has no 'none'"),
        (
            "mine:number",
            "--handler mine:number: 7 is not a handler: expected a function",
        ),
        ("mine:Nothing", "--handler mine:Nothing: <mine.Nothing object at"),
        ("none:x", "--handler none:x: there is no module none in "),
        ("none.deep:x", "--handler none.deep:x: there is no module none in "),
        (
            "needy:x",
            "--handler needy:x: needy needs module_that_nobody_has, which is not in",
        ),
        (
            "broken:x",
            "--handler broken:x: broken cannot be imported: AttributeError: module 'js",
        ),
    ],
)
def test_wrong_names(spec, problem_text):
    """The error says which part of the name is wrong."""
    (problem,) = problems(spec)
    assert problem.startswith(problem_text)
    assert problem.endswith("broken.py:3)") or spec != "broken:x"


def test_a_function_has_no_settings():
    """Settings for a function would be lost: an error."""
    assert problems("mine:handle", a="b") == [
        "--set: mine:handle is not a class, so it has no settings; name a class"
    ]


@pytest.mark.parametrize(
    ("name", "settings", "kind"),
    [
        ("json-lines", {"path": "x.jsonl", "rotate_bytes": "1000"}, JsonLines),
        ("sql", {"url": "sqlite://", "create": "true"}, SqlUpsert),
        ("webhook", {"url": "https://h/x", "secret": SECRET}, Webhook),
    ],
)
def test_ready_handlers(name, settings, kind):
    """They have short names, and take all their settings."""
    assert isinstance(load_handler(name, settings), kind)


@pytest.mark.parametrize("name", READY)
def test_ready_handlers_say_what_they_need(name):
    """Without settings, the error names the ones that are required."""
    (problem,) = problems(name)
    required = {"json-lines": "path", "kafka": "servers", "parquet": "folder"}.get(
        name, "url"
    )
    assert problem == f"--set {required}=…: {name} requires it"


def test_a_secret_of_a_ready_handler():
    """A URL that is wrong is not shown."""
    (problem,) = problems("sql", url=f"nothing://u:{SECRET}@h")
    assert problem == "--handler sql: SQLAlchemy does not support nothing://"


def test_settings():
    """They come from the command line and from variables, but not from both."""
    assert settings_of(["a=b=c", "d="], ["e=X"], {"X": "y"}) == {
        "a": "b=c", "d": "", "e": "y"
    }  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        settings_of(["a", "=b", "c=1", "c=2"], ["e=Y", "c=X", "f"], {"X": SECRET})
    assert (
        caught.value.problems
        == textwrap.dedent(
            """\
        --set 'a': expected KEY=…
        --set '': expected KEY=…
        --set c: the setting is given twice
        --set-env e: the environment variable Y is not set
        --set-env c: the setting is given twice
        --set-env 'f': expected KEY=…"""
        ).splitlines()
    )
