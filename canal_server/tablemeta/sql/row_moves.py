"""Parts of an ALTER TABLE that take rows away, or bring some, without a word of it.

The binlog has no rows of them. Leaves out what follows from it for a copy.
"""

from __future__ import annotations

from typing import Final

from canal_server.doors.sqltext import Dialect, SqlReader, SqlTextError

_MOVES: Final = {
    ("DROP", "PARTITION"): "drops a partition with its rows",
    ("TRUNCATE", "PARTITION"): "empties a partition",
    ("EXCHANGE", "PARTITION"): "exchanges a partition with a table",
    ("REORGANIZE", "PARTITION"): "makes other partitions",
    ("CONVERT", "PARTITION"): "makes a table of a partition",
    ("CONVERT", "TABLE"): "makes a partition of a table",
    ("DISCARD", "TABLESPACE"): "discards the rows",
    ("DISCARD", "PARTITION"): "discards the rows of a partition",
    ("IMPORT", "TABLESPACE"): "imports rows",
    ("IMPORT", "PARTITION"): "imports rows",
    ("ALTER", "IGNORE"): "takes away rows that do not fit",
}


def move_of(sql: str) -> str:
    """Return how a statement moves rows by the way, "" for no way. Never raises."""
    try:
        return word_and_move(sql, Dialect())[1]
    except SqlTextError:
        return ""


def word_and_move(sql: str, dialect: Dialect) -> tuple[str, str]:
    """Return the first word of a statement, and how it moves rows by the way, if so.

    Raises SqlTextError for a text that cannot be read.
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
