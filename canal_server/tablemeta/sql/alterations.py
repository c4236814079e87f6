"""Parsing the items of an ALTER TABLE."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from canal_server.tablemeta.model.charset_widths import charset_of
from canal_server.tablemeta.model.operations import (
    AddColumn,
    ChangeColumn,
    ConvertTo,
    DropColumn,
    DropKey,
    DropPeriod,
    Options,
    PartitionToTable,
    RenameColumn,
    RenameKey,
    RenameTo,
    ShowColumn,
    TableToPartition,
)
from canal_server.tablemeta.sql.definitions import Body, DefinitionReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.tablemeta.model.operations import Item

_KEY_WORDS: Final = ("KEY", "INDEX")


_NO_OPTIONS: Final = Options()

# Partition clauses are alone or at the end.
_ENDS: Final = frozenset(("PARTITION", "REMOVE"))

# Items that are parsed completely, and what may follow them.
_WHOLE: Final = frozenset(("ADD", "DROP", "MODIFY", "CHANGE", "RENAME"))
# Of one statement: twice as many as a table can have columns, for DROP and ADD.
_ITEMS_MAX: Final = 8192
_FOLLOWING: Final = frozenset((",", ";", "", *_ENDS))


class AlterationReader(DefinitionReader):
    """Parses the text after the table name. Methods raise SqlTextError."""

    def items(self) -> list[Item]:
        """Return the items that may change something, in order."""
        found: list[Item] = []
        while not self.at_end():
            word = self.peek()
            if word in _ENDS:
                # The rest is about partitions, whose lists also contain commas.
                break
            if word in self._ITEMS:
                self.next()
                if not self._ITEMS[word](self, found):
                    break
                if word in _WHOLE and self.peek() not in _FOLLOWING:
                    self.raise_error(f"{word} followed by {self.peek()[:40]!r}")
            else:
                found += self._options()
            if len(found) > _ITEMS_MAX:
                self.raise_error(f"more than {_ITEMS_MAX} changes of one table")
            self.skip_to((",", *_ENDS))
            if not self.accept(","):
                break
        return found

    def _options(self) -> list[Item]:
        """Parse table options up to the next comma."""
        start = self._index
        self.skip_to((",", *_ENDS))
        size, self._tokens_size = self._tokens_size, self._index
        self._index = start
        options, _ = self.options()
        self._tokens_size = size
        return [] if options == _NO_OPTIONS else [options]

    # Items; each returns whether others may follow

    def _add(self, found: list[Item]) -> bool:
        if self.peek() == "PARTITION":
            return False
        if self.accept("SYSTEM", "VERSIONING"):
            found.append(Options(is_versioned=True))
            return True
        if self.key_stands_here():
            body = Body()
            self.key_or_constraint(body)
            found += self._of_body(body)
            return True
        self.accept("COLUMN")
        if_not_exists = self.skip_if_exists()
        if self.accept("("):
            found += self._of_body(self.body(), if_not_exists=if_not_exists)
            return True
        column = self.column()
        found.append(AddColumn(column, self._position(), if_not_exists))
        return True

    def _of_body(self, body: Body, *, if_not_exists: bool = False) -> list[Item]:
        return [
            *(AddColumn(each, None, if_not_exists) for each in body.columns),
            *body.keys,
            *body.periods,
        ]

    def _position(self) -> str | None:
        if self.accept("FIRST"):
            return ""
        return self.column_name() if self.accept("AFTER") else None

    def _drop(self, found: list[Item]) -> bool:
        word = self.peek()
        if word == "PARTITION":
            return False
        if word == "PERIOD" and self.key_stands_here():
            self.next()
            self.skip_if_exists()
            self.expect("FOR")
            found.append(DropPeriod(self.name().upper() == "SYSTEM_TIME"))
        elif self.accept("SYSTEM", "VERSIONING"):
            found.append(Options(is_versioned=False))
        elif self.accept("PRIMARY", "KEY"):
            found.append(DropKey("PRIMARY"))
        elif self.accept("FOREIGN", "KEY") or self.accept("CHECK"):
            self.skip_if_exists()
            self.name()
        elif self.accept_any((*_KEY_WORDS, "CONSTRAINT")):
            self.skip_if_exists()
            found.append(DropKey(self.name()))
        else:
            self.accept("COLUMN")
            self.skip_if_exists()
            found.append(DropColumn(self.column_name()))
            self.accept_any(("RESTRICT", "CASCADE"))
        return True

    def _modify(self, found: list[Item]) -> bool:
        self.accept("COLUMN")
        if_exists = self.skip_if_exists()
        column = self.column()
        found.append(ChangeColumn(column.name, column, self._position(), if_exists))
        return True

    def _change(self, found: list[Item]) -> bool:
        self.accept("COLUMN")
        if_exists = self.skip_if_exists()
        old = self.column_name()
        column = self.column()
        found.append(ChangeColumn(old, column, self._position(), if_exists))
        return True

    def _alter(self, found: list[Item]) -> bool:
        if self.accept_any((*_KEY_WORDS, "CHECK", "CONSTRAINT")):
            self.skip_if_exists()
            self.name()  # it may be REMOVE
            return True
        self.accept("COLUMN")
        self.skip_if_exists()
        name = self.column_name()
        if self.accept("SET") and self.peek() in ("VISIBLE", "INVISIBLE"):
            found.append(ShowColumn(name, self.next() == "VISIBLE"))
        return True

    def _rename(self, found: list[Item]) -> bool:
        if self.accept("COLUMN"):
            if_exists = self.skip_if_exists()
            old = self.column_name()
            self.expect("TO")
            found.append(RenameColumn(old, self.column_name(), if_exists))
        elif self.accept_any(_KEY_WORDS):
            self.skip_if_exists()
            old = self.name()
            self.expect("TO")
            found.append(RenameKey(old, self.name()))
        else:
            self.accept_any(("TO", "AS", "="))
            found.append(RenameTo(self.table_name()))
        return True

    def _convert(self, found: list[Item]) -> bool:
        if self.accept("PARTITION"):
            self.skip_to(("TO",))
            self.expect("TO")
            self.expect("TABLE")
            found.append(PartitionToTable(self.table_name()))
            return False
        if self.accept("TABLE"):
            found.append(TableToPartition(self.table_name()))
            return False
        self.expect("TO")
        charset = self.charset_option(self.next()) or ""
        if self.accept("COLLATE"):
            self.accept("=")
            collation = self.charset_name()
            if charset in ("", "default"):
                charset = charset_of(collation) or ""
        found.append(ConvertTo("" if charset == "default" else charset))
        return True

    def _with(self, found: list[Item]) -> bool:
        if self.accept("SYSTEM", "VERSIONING"):
            found.append(Options(is_versioned=True))
        return True  # or VALIDATION

    def _nothing(self, _found: list[Item]) -> bool:
        return True

    def _order(self, _found: list[Item]) -> bool:
        # Its commas are followed by columns, or by another item.
        while True:
            self.skip_to((",",))
            if self.peek() != "," or self.peek(1) in self._ITEMS:
                return True
            self.next()

    _ITEMS: ClassVar[dict[str, Callable[[AlterationReader, list[Item]], bool]]] = {
        "ADD": _add,
        "DROP": _drop,
        "MODIFY": _modify,
        "CHANGE": _change,
        "ALTER": _alter,
        "RENAME": _rename,
        "CONVERT": _convert,
        "ORDER": _order,
        **dict.fromkeys(("ALGORITHM", "LOCK", "FORCE", "ENABLE", "DISABLE"), _nothing),
        "WITH": _with,
        **dict.fromkeys(("WITHOUT", "SECONDARY_LOAD"), _nothing),
        **dict.fromkeys(("UPGRADE", "SECONDARY_UNLOAD"), _nothing),
        **dict.fromkeys(
            (
                *("ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "TRUNCATE"),
                *("COALESCE", "EXCHANGE", "DISCARD", "IMPORT", "REORGANIZE"),
            ),
            lambda _reader, _found: False,
        ),
    }
