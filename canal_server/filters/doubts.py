"""Pieces of a filter that cannot match any table.

Filters of clients may contain them, as they have for years; a person who types one gets
an error. Pieces that match only improbable names: `table_filters.doubtful_pieces`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from canal_server.filters.patterns import (
    ANY,
    END,
    JOIN,
    LITERAL,
    LOOP,
    ONE_OF,
    SPLIT,
    Instruction,
    compile_piece,
)

if TYPE_CHECKING:
    from canal_server.filters.characters import CharacterClass

# How much of `schema.table` was read: nothing, part of the schema, the dot, the table.
_NOTHING, _SCHEMA, _DOT, _TABLE, _NO_NAME = range(5)
_AFTER_DOT: Final = {
    _NOTHING: _NO_NAME, _SCHEMA: _DOT, _DOT: _TABLE, _TABLE: _TABLE, _NO_NAME: _NO_NAME
}  # fmt: skip
_AFTER_OTHER: Final = {
    _NOTHING: _SCHEMA, _SCHEMA: _SCHEMA, _DOT: _TABLE, _TABLE: _TABLE,
    _NO_NAME: _NO_NAME,
}  # fmt: skip


def names_no_table(piece: str) -> bool:
    """Return whether no text like `schema.table` can match; false if unsure.

    Conditions and look-aheads count as fulfilled. Raises ValueError if the piece is not
    a regular expression.
    """
    program = compile_piece(piece)
    seen: set[tuple[int, int]] = set()
    todo = [(0, _NOTHING)]
    while todo:
        at, read = todo.pop()
        if read == _NO_NAME or (at, read) in seen:
            continue
        if program[at][0] == END and read == _TABLE:
            return False
        seen.add((at, read))
        todo += _steps(at, read, program[at])
    return True


def _steps(at: int, read: int, instruction: Instruction) -> list[tuple[int, int]]:
    """Return the next instructions, and how much of a name is read there."""
    operation, argument, other = instruction
    if operation == END:
        return []
    if operation == SPLIT:
        return [(cast("int", argument), read), (other, read)]
    if operation in (LOOP, JOIN):
        return [(cast("int", argument), read)]
    if operation == LITERAL:
        for character in cast("str", argument):
            read = (_AFTER_DOT if character == "." else _AFTER_OTHER)[read]
    elif operation == ANY or (
        operation == ONE_OF and "." in cast("CharacterClass", argument)
    ):
        return [(at + 1, _AFTER_DOT[read]), (at + 1, _AFTER_OTHER[read])]
    elif operation == ONE_OF:
        read = _AFTER_OTHER[read]
    return [(at + 1, read)]
