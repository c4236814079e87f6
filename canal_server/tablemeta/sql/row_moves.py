"""Clauses of an ALTER TABLE that remove or add rows as a side effect.

The binlog contains no row events for them. The consequences for a copy are left to the
caller.
"""

from __future__ import annotations

from typing import Final

from canal_server.doors.sqltext import Dialect, SqlReader, SqlTextError

_MOVES: Final = {
    ("DROP", "PARTITION"): "drops a partition with its rows",
    ("TRUNCATE", "PARTITION"): "empties a partition",
    ("EXCHANGE", "PARTITION"): "exchanges a partition with a table",
    ("REORGANIZE", "PARTITION"): "reorganizes partitions",
    ("CONVERT", "PARTITION"): "converts a partition to a table",
    ("CONVERT", "TABLE"): "converts a table to a partition",
    ("DISCARD", "TABLESPACE"): "discards the rows",
    ("DISCARD", "PARTITION"): "discards the rows of a partition",
    ("IMPORT", "TABLESPACE"): "imports rows",
    ("IMPORT", "PARTITION"): "imports rows",
    ("ALTER", "IGNORE"): "removes rows that are duplicates or invalid",
}


def move_of(sql: str) -> str:
    """Return how a statement moves rows as a side effect, "" if not. Never raises."""
    try:
        return word_and_move(sql, Dialect())[1]
    except SqlTextError:
        return ""


def word_and_move(sql: str, dialect: Dialect) -> tuple[str, str]:
    """Return the first word of a statement, and how it moves rows as a side effect.

    Raises SqlTextError if the text cannot be parsed.
    """
    reader = SqlReader(sql, dialect)
    while reader.accept("(") or reader.accept(";"):
        continue
    if reader.accept("SET", "STATEMENT") and reader.skip_to(("FOR",)):
        reader.next()
    word = reader.peek()
    if word != "ALTER":
        return word, ""
    while not reader.at_end():
        pair = reader.next(), reader.peek()
        if pair in _MOVES:
            return word, _MOVES[pair]
        if pair[0] == "(":
            reader.skip_to((")",))
    return word, ""
