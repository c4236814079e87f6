"""Notes are found by the texts of errors and warnings."""

from __future__ import annotations

import pytest

from canal_server.messages.note_search import (
    ERRORS,
    classes_in,
    note_on_warning,
    notes_on_error,
)
from canal_server.messages.source_notes import SOURCE_WARNINGS


@pytest.mark.parametrize(
    ("error", "remedies"),
    [
        (
            "SourceRefused: db:3306: Access denied for user 'a'@'b' (error 1045)",
            ["Correct `canal.instance.dbUsername`"],
        ),
        ("ConnectionLost: cannot connect to db:3306: refused", ["Nothing if it"]),
        (
            "master1: ConnectionLost: cannot connect to a;"  # noqa: ISC004  # one text
            " master2: SourceRefused: binary logging is off",
            ["Nothing if it", "Set `log_bin`"],
        ),
        # The text is of another class, the parts are not in this order, or no text.
        ("TableMetaError: cannot connect to db:3306", []),
        ("SourceRefused: (error 1045) Access denied", []),
        ("RuntimeError('Access denied (error 1045)')", []),
        ("", []),
    ],
)
def test_errors(error: str, remedies: list[str]) -> None:
    """By class and by the parts of the text, of each source of a group."""
    found = [note.remedy for note in notes_on_error(error)]
    assert len(found) == len(remedies)
    for remedy, start in zip(found, remedies, strict=True):
        assert remedy.startswith(start)


def test_classes() -> None:
    """Those that have notes are known by name, each once."""
    text = "master1: DecodeError: x; master2: DecodeError: y; master3: ValueError: z"
    assert classes_in(text) == ["DecodeError"]


def test_every_note_is_found() -> None:
    """A text that has the fragments of a note leads to it."""
    for note in ERRORS:
        for fragment in note.fragments:
            text = f"{note.error}: x {fragment.replace('…', '7')} y"
            assert note in notes_on_error(text), fragment
    for note in SOURCE_WARNINGS:
        for fragment in note.fragments:
            found = note_on_warning(f"x {fragment.replace('…', '7')} y")
            assert found is not None, fragment
    assert note_on_warning("all is well") is None
