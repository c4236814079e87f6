"""Classes of characters, whatever the case."""

from __future__ import annotations

import pytest

from canal_server.filters.characters import CLASSES, POSIX_CLASSES, CharacterClass


def test_both_cases():
    """A character belongs to a class when one of its cases does."""
    upper = CharacterClass(ranges=[("A", "C")])
    assert "b" in upper
    assert "B" in upper
    assert "d" not in upper
    assert "b" not in CharacterClass(negated=True, ranges=[("A", "C")])


def test_characters_whose_other_case_is_longer():
    """A character like the German sharp s is itself only."""
    assert "ß" in CharacterClass(ranges=[("ß", "ß")])
    assert "ß" not in CharacterClass(ranges=[("S", "S")])


@pytest.mark.parametrize("letter", "dws")
def test_opposites(letter):
    """An upper case letter is the class of all that the lower case one is not."""
    for character in "a1_ .-é表٣\t\n":
        assert (character in CLASSES[letter]) is not (
            character in CLASSES[letter.upper()]
        )


@pytest.mark.parametrize(
    ("name", "included", "others"),
    [
        ("alnum", "aé1", "_ ."),
        ("alpha", "aé", "1_"),
        ("blank", " \t", "\na"),
        ("cntrl", "\x01\n", "a "),
        ("digit", "09", "a."),
        ("graph", "a!", " \n"),
        ("lower", "a", "A1"),
        ("print", "a !", "\n"),
        ("punct", "!.~", "a1 "),
        ("space", " \n", "a"),
        ("upper", "A", "a1"),
        ("word", "a1_", ".-"),
        ("xdigit", "0aF", "gG"),
    ],
)
def test_posix_classes(name, included, others):
    """Each POSIX class contains its characters and no others."""
    assert all(POSIX_CLASSES[name](each) for each in included)
    assert not any(POSIX_CLASSES[name](each) for each in others)


def test_all_posix_classes_are_tested():
    """There are thirteen, those of the test above."""
    assert len(POSIX_CLASSES) == 13
