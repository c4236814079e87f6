"""The items of an ALTER TABLE, in the classes of canal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.model.ddl_statement import Stale, Statement
from canal_server.model.entry import EventType

if TYPE_CHECKING:
    from canal_server.model.ddl_statement import TableName
    from canal_server.tablemeta.sql.words import Words

_KEYS: Final = frozenset(("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "PRIMARY"))
_CONSTRAINTS: Final = frozenset(("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"))
_WAITS: Final = frozenset(("WAIT", "NOWAIT"))

# First words of items that change a table other than by a key or a name.
_CHANGES: Final = frozenset(
    (
        *("MODIFY", "CHANGE", "ALTER", "ORDER", "CONVERT", "FORCE", "ALGORITHM"),
        *("LOCK", "ENABLE", "DISABLE", "DISCARD", "IMPORT", "COALESCE", "REORGANIZE"),
        *("TRUNCATE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR"),
        *("WITH", "WITHOUT"),
    )
)
# Items that are lists themselves: the text after their commas is not an item.
_LISTS: Final = frozenset(("ORDER", "REORGANIZE"))


def alter_items(words: Words, table: TableName, stale: Stale) -> list[Statement]:
    """Parse the text after the table name into one statement per item.

    All table options together are one ALTER, which comes first. Partitions, foreign
    keys and checks produce none. Raises NoNameError.
    """
    found: list[Statement] = []
    options = False
    in_list = False
    while not words.at_end():
        first = words.peek()
        if first in _ITEMS:
            words.next()
            in_list = first in _LISTS or words.peek() == "PARTITION"
            found += _ITEMS[first](words, table, stale)
        elif not in_list or words.peek(1) == "=":
            options = True
        words.skip_to((",",))
        words.accept(",")
    return [Statement(EventType.ALTER, *table), *found] if options else found


def _add(words: Words, table: TableName, _stale: Stale) -> list[Statement]:
    if words.accept("CONSTRAINT"):
        # The name may be omitted, or be a quoted word such as UNIQUE.
        if words.peek() not in _CONSTRAINTS:
            words.skip_if_exists()
            words.next()
        kind = words.peek()
    else:
        kind = words.peek()
    if kind == "VECTOR" and words.peek(1) in _KEYS:
        kind = "INDEX"
    if kind in _KEYS:
        return [Statement(EventType.CINDEX, *table)]
    if kind in ("FOREIGN", "CHECK"):
        return []
    return [Statement(EventType.ALTER, *table)]


def _drop(words: Words, table: TableName, _stale: Stale) -> list[Statement]:
    if words.peek() in ("INDEX", "KEY", "CONSTRAINT", "FOREIGN"):
        return [Statement(EventType.DINDEX, *table)]
    return [Statement(EventType.ALTER, *table)]


def _rename(words: Words, table: TableName, stale: Stale) -> list[Statement]:
    if words.peek() in ("COLUMN", "INDEX", "KEY"):
        return [Statement(EventType.ALTER, *table)]
    words.accept_any(("TO", "AS", "="))
    new = words.table()
    stale.tables.add(new)
    return [Statement(EventType.RENAME, *new, *table)]


def _convert(words: Words, table: TableName, stale: Stale) -> list[Statement]:
    # MariaDB: CONVERT PARTITION p TO TABLE other, CONVERT TABLE other TO PARTITION p
    if words.peek() not in ("PARTITION", "TABLE"):
        return [Statement(EventType.ALTER, *table)]
    beside = _table_beside(words)
    if beside is not None:
        stale.tables.add(beside)
    return [Statement(EventType.ALTER, *table, beside=beside)]


def _exchange(words: Words, table: TableName, _stale: Stale) -> list[Statement]:
    # EXCHANGE PARTITION p WITH TABLE other: both keep their columns
    return [Statement(EventType.ALTER, *table, beside=_table_beside(words))]


def _table_beside(words: Words) -> TableName | None:
    if words.skip_to(("TABLE", ",")) != "TABLE":
        return None
    words.next()
    return words.table()


def _change(_words: Words, table: TableName, _stale: Stale) -> list[Statement]:
    return [Statement(EventType.ALTER, *table)]


def _nothing(_words: Words, _table: TableName, _stale: Stale) -> list[Statement]:
    return []


def _unknown(_words: Words, _table: TableName, _stale: Stale) -> list[Statement]:
    return [Statement(EventType.QUERY)]


_ITEMS: Final = {
    **dict.fromkeys(_CHANGES, _change),
    "ADD": _add,
    "DROP": _drop,
    "RENAME": _rename,
    "CONVERT": _convert,
    "EXCHANGE": _exchange,
    "PARTITION": _nothing,
    "REMOVE": _nothing,
    "UPGRADE": _nothing,
    "SECONDARY_LOAD": _unknown,
    "SECONDARY_UNLOAD": _unknown,
}
