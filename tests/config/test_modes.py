"""Which destinations there are; what is refused as a whole is in `test_load`."""

from __future__ import annotations

import pytest

from canal_server.config.modes import (
    DESTINATION_CHARACTERS_MAX,
    DESTINATIONS_MAX,
    INSTANCE_FILE,
    destinations,
    is_lazy,
    wiring_of,
)
from canal_server.config.problems import Problems
from canal_server.config.properties import Properties
from canal_server.config.schema import Wiring
from canal_server.config.substitution import Lookup
from canal_server.errors import ConfigError


def lookup_of(settings: dict[str, str]) -> Lookup:
    """Return a lookup in one file with these settings."""
    return Lookup({}, [Properties("canal.properties", settings)])


def names_and_problems(settings, folder):
    """Return the destinations of settings, and what is said against them."""
    problems = Problems()
    names = destinations(lookup_of(settings), "canal.properties", folder, problems)
    try:
        problems.raise_if_any()
    except ConfigError as error:
        return names, error.problems
    return names, []


@pytest.mark.parametrize("count", [DESTINATIONS_MAX, DESTINATIONS_MAX + 1])
def test_an_expression_has_a_limit(tmp_path, count):
    """So many names are expanded and not one more."""
    settings = {"canal.destinations.expr": f"e{{1-{count}}}"}
    names, problems = names_and_problems(settings, tmp_path)
    assert len(names) == (count if count == DESTINATIONS_MAX else 0)
    assert bool(problems) == (count > DESTINATIONS_MAX)


@pytest.mark.parametrize(
    "name",
    [".", "..", "a/b", "a\\b", "a b", "a\0b", "a\u200bb", "x" * 101],
    ids=["self", "parent", "slash", "backslash", "blank", "zero", "unseen", "long"],
)
def test_names_that_cannot_be(tmp_path, name):
    """Names that are invalid as a folder or in the protocol are refused."""
    settings = {"canal.destinations": f"good,{name}"}
    names, problems = names_and_problems(settings, tmp_path)
    assert names == ["good"]
    assert "invalid name" in problems[0]


def test_names_that_can_be(tmp_path):
    """Any printable characters do, up to the limit."""
    name = "数据-1." + "x" * (DESTINATION_CHARACTERS_MAX - 5)
    assert len(name) == DESTINATION_CHARACTERS_MAX
    found = names_and_problems({"canal.destinations": name}, tmp_path)
    assert found == ([name], [])


def test_scanned_folders(tmp_path):
    """Folders with an instance file count, but the one of Spring files never."""
    for name in ("b", "a", "spring", "SPRING", "no name", "empty"):
        (tmp_path / name).mkdir()
        if name != "empty":
            (tmp_path / name / INSTANCE_FILE).touch()
    (tmp_path / "file").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    # Links in a circle are like no file: what others there are is found.
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "empty" / INSTANCE_FILE).symlink_to(INSTANCE_FILE)
    found = names_and_problems({"canal.auto.scan": "true"}, tmp_path)
    assert found == (["a", "b", "linked"], [])


def test_a_folder_that_cannot_be_listed(tmp_path):
    """It is a separate problem, reported with the folder."""
    missing = tmp_path / "none"
    settings = {"canal.destinations": "a", "canal.auto.scan": "true"}
    names, (problem,) = names_and_problems(settings, missing)
    assert names == ["a"]
    assert problem == f"{missing}: cannot list the folder: No such file or directory"


@pytest.mark.parametrize(
    ("text", "wiring"),
    [
        ("classpath:spring/memory-instance.xml", Wiring.MEMORY),
        ("memory-instance.xml", Wiring.MEMORY),
        ("file:/opt/canal/conf/spring/file-instance.xml", Wiring.FILE),
        ("classpath:spring/default-instance.xml", Wiring.ZOOKEEPER),
    ],
)
def test_wirings(text, wiring):
    """The file's name decides, wherever it is said to lie."""
    lookup = lookup_of({"canal.instance.global.spring.xml": text})
    assert wiring_of(lookup, "a", Problems()) is wiring


def test_a_destinations_own_mode():
    """It goes before the one for all; without any, files keep the cursors."""
    lookup = lookup_of(
        {
            "canal.instance.global.lazy": "true",
            "canal.instance.a.lazy": "false",
            "canal.instance.a.spring.xml": "memory-instance.xml",
        }
    )
    problems = Problems()
    assert [is_lazy(lookup, name, problems) for name in "ab"] == [False, True]
    assert [wiring_of(lookup, name, problems) for name in "ab"] == [
        Wiring.MEMORY,
        Wiring.FILE,
    ]
    problems.raise_if_any()
