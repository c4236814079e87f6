"""Sentences about settings that cannot be used."""

from __future__ import annotations

import pytest

from canal_server.config.problems import HIDDEN, SHOWN_CHARACTERS_MAX, Problems
from canal_server.errors import ConfigError


def texts_of(problems: Problems) -> list[str]:
    """Return the sentences that are raised."""
    with pytest.raises(ConfigError) as caught:
        problems.raise_if_any()
    return caught.value.problems


def test_none():
    """Without a problem nothing is raised."""
    Problems().raise_if_any()


def test_in_their_order_and_once():
    """Two instances that share an invalid key report it once."""
    problems = Problems()
    problems.add("a", "k", "1", "wrong")
    problems.add_file("b", "cannot be read")
    problems.add("a", "k", "1", "wrong")
    assert texts_of(problems) == ["a: k = 1: wrong", "b: cannot be read"]


def test_a_secret_is_hidden():
    """Its text is hidden; that it is empty is not."""
    problems = Problems()
    problems.add("a", "k", "geheim", "wrong", secret=True)
    problems.add("a", "k", "", "wrong", secret=True)
    assert texts_of(problems) == [f"a: k = {HIDDEN}: wrong", "a: k = : wrong"]


def test_a_text_that_would_spoil_the_log():
    """It fits into one line of bounded length and holds nothing unprintable."""
    problems = Problems()
    problems.add("a", "k", "x\n\x1b[31m" + "y" * 1000, "wrong")
    (sentence,) = texts_of(problems)
    assert sentence.startswith("a: k = x??[31myyy")
    assert sentence.endswith("y…: wrong")
    assert len(sentence) == len("a: k = : wrong") + SHOWN_CHARACTERS_MAX
