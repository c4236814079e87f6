"""The effects of operations on a table: values in, a new value out.

As in the server, all items of an ALTER count together: the columns they name are those
before the ALTER, the positions they set are those in the resulting table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from sys import intern
from typing import TYPE_CHECKING, Final

from canal_server.tablemeta.model.charset_widths import BINARY
from canal_server.tablemeta.model.operations import (
    AddColumn,
    AddKey,
    AddPeriod,
    ChangeColumn,
    ConvertTo,
    DropColumn,
    DropKey,
    DropPeriod,
    Options,
    RenameColumn,
    RenameKey,
    ShowColumn,
)
from canal_server.tablemeta.model.table_schema import (
    INVISIBLE,
    PRIMARY,
    ROW_END,
    ROW_START,
    Column,
    Kind,
    Part,
    Table,
    Versioning,
    column,
)
from canal_server.tablemeta.model.type_text import (
    converted,
    finished_type,
    held_text_type,
    lost_labels,
    with_whole_labels,
)
from canal_server.tablemeta.tables.table_keys import (
    GENERATED_KEY,
    has_generated_key,
    own_keys,
    with_hashes,
    with_keys,
    with_never_null,
    with_period,
    with_row_end,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from canal_server.tablemeta.model.operations import (
        ColumnSpec,
        CreateSequence,
        CreateTable,
        Item,
        Name,
    )
    from canal_server.tablemeta.model.table_schema import Key


class CannotApplyError(Exception):
    """The operation does not match the known table."""


def created(operation: CreateTable, charset: str, *, mariadb: bool) -> Table:
    """Return a new table; `charset` is the default of its database."""
    options = operation.options
    table_charset = options.charset or charset
    columns = [
        _column(spec, table_charset, mariadb=mariadb) for spec in operation.columns
    ]
    table = Table(
        *operation.name,
        columns=tuple(columns),
        charset=table_charset,
        engine=options.engine or "",
        kind=Kind.SEQUENCE if options.is_sequence else Kind.BASE,
    )
    for period in operation.periods:
        table = with_period(table, period)
    keys = [key for spec in operation.columns for key in own_keys(spec)]
    keys += operation.keys
    table = with_keys(table, keys, mariadb=mariadb)
    versioned = options.is_versioned or any(
        spec.has_versions for spec in operation.columns
    )
    return _with_versions(table, versioned=versioned)


def alike(table: Table, name: Name, *, mariadb: bool) -> Table:
    """Return a new table with the structure of another one."""
    new = table.renamed(*name)
    return with_hashes(new) if mariadb else new


def sequence(operation: CreateSequence, engine: str = "") -> Table:
    """Return the table that a sequence is for readers of row events."""
    columns = [
        *((name, "bigint(21)") for name in _SEQUENCE_VALUES),
        ("cache_size", "bigint(21) unsigned"),
        ("cycle_option", "tinyint(1) unsigned"),
        ("cycle_count", "bigint(21)"),
    ]
    return Table(
        *operation.name,
        columns=tuple(column(name, kind, False, None, "") for name, kind in columns),
        kind=Kind.SEQUENCE,
        engine=engine,
    )


_SEQUENCE_VALUES: Final = (
    *("next_not_cached_value", "minimum_value", "maximum_value", "start_value"),
    "increment",
)


@dataclass(frozen=True, slots=True)
class Defaults:
    """Character sets that are not specified: of the database, of the session."""

    charset: str
    session_charset: str
    mariadb: bool

    @property
    def convert_to(self) -> str:
        """The meaning of CONVERT TO CHARACTER SET DEFAULT."""
        return self.charset if self.mariadb else self.session_charset


def altered(table: Table, items: Sequence[Item], defaults: Defaults) -> Table:
    """Return the result of an ALTER TABLE, except its new name.

    Raises CannotApplyError.
    """
    return _Alteration(table, items, defaults).result()


class _Alteration:
    """One ALTER TABLE on one table."""

    def __init__(self, table: Table, items: Sequence[Item], defaults: Defaults) -> None:
        charset = defaults.charset
        self._table = table
        self._items = items
        self._mariadb = defaults.mariadb
        self._convert_to: str | None = None
        self._versioned: bool | None = None
        self._before = {each.key for each in table.columns}
        self._columns: list[Column] = []
        self._keys: list[str] = []  # keys of these columns, for lookups
        self._defined: set[Column] = set()  # columns that the statement defines
        # The current names of the columns that keys may use, by the key of the old
        # name.
        self._now: dict[str, str] = {}
        for item in items:
            if isinstance(item, ConvertTo):
                self._convert_to = item.charset or defaults.convert_to
                self._table = replace(self._table, charset=self._convert_to)
            elif isinstance(item, Options):
                self._apply_options(item, charset)
        self._charset = self._table.charset or charset

    def _apply_options(self, options: Options, charset: str) -> None:
        if options.charset is not None:
            table_charset = options.charset or charset
            self._table = replace(self._table, charset=table_charset)
        if options.engine is not None:
            self._table = replace(self._table, engine=options.engine)
        if options.is_versioned is not None:
            self._versioned = options.is_versioned
        if options.is_sequence is not None:
            kind = Kind.SEQUENCE if options.is_sequence else Kind.BASE
            self._table = replace(self._table, kind=kind)

    def result(self) -> Table:
        """Return the new table. Raises CannotApplyError."""
        self._change_in_place()
        added = self._arrange()
        self._show()
        if self._convert_to is not None:
            self._convert(self._convert_to)
        table = self._with_periods(replace(self._table, columns=tuple(self._columns)))
        table = self._with_keys(table, added)
        versioned = self._versioned
        if versioned is None and any(item.column.has_versions for item in added):
            versioned = True
        if versioned is None:
            versioned = table.versioning is not Versioning.NONE
        return _with_versions(table, versioned=versioned)

    def _change_in_place(self) -> None:
        """Drop, change and rename the existing columns."""
        dropped = {i.name.lower() for i in self._items if isinstance(i, DropColumn)}
        changes = {
            item.old.lower(): item
            for item in self._items
            if isinstance(item, ChangeColumn | RenameColumn)
        }
        for each in self._table.columns:
            change = changes.pop(each.key, None)
            if each.key in dropped:
                continue
            new = each
            if isinstance(change, ChangeColumn):
                new = self._finished(change.column, each)
            elif change is not None:
                new = each.named(change.new)
            self._now[each.key] = new.name
            self._columns.append(new)
        self._keys += [each.key for each in self._columns]
        for change in changes.values():
            if not change.if_exists:
                self._missing(change)

    def _missing(self, change: ChangeColumn | RenameColumn) -> None:
        """Ignore a change that was made already, as if a statement is read again."""
        new = change.new if isinstance(change, RenameColumn) else change.column.name
        if self._is_added(change.old):
            return  # renamed by the same statement, as MariaDB allows
        if new.lower() == change.old.lower() or self._index(new) is None:
            raise CannotApplyError(f"unknown column {change.old!r}")

    def _is_added(self, name: str) -> bool:
        return any(
            isinstance(item, AddColumn) and item.column.name.lower() == name.lower()
            for item in self._items
        )

    def _arrange(self) -> list[AddColumn | ChangeColumn]:
        """Add columns, and move those with a position.

        Returns the items that took effect.
        """
        added: list[AddColumn | ChangeColumn] = []
        for item in self._items:
            if isinstance(item, AddColumn):
                name = item.column.name
                if item.if_not_exists and name.lower() in self._before:
                    added.append(item)  # its keys count nevertheless
                    continue
                if self._index(name) is not None:
                    continue  # added already
                self._insert(self._finished(item.column), item.after)
                # A column that is dropped and added again stays in its keys.
                self._now.setdefault(name.lower(), name)
                added.append(item)
            elif isinstance(item, ChangeColumn) and self._move(item):
                added.append(item)
        return added

    def _move(self, item: ChangeColumn) -> bool:
        """Move a changed column to its new position; false if it does not exist."""
        if item.old.lower() in self._before:
            at = self._index(item.column.name)
        else:
            # MariaDB: added by the same statement
            at = self._index(item.old)
            if at is not None:
                self._columns[at] = self._finished(item.column)
                self._keys[at] = self._columns[at].key
        if at is None:
            return False
        if item.after is not None:
            del self._keys[at]
            self._insert(self._columns.pop(at), item.after)
        return True

    def _insert(self, new: Column, after: str | None) -> None:
        at = len(self._columns)
        if after is not None:
            found = self._index(after) if after else self._before_first()
            if found is None:
                raise CannotApplyError(f"unknown column {after!r} after AFTER")
            at = found + 1
        self._columns.insert(at, new)
        self._keys.insert(at, new.key)

    def _before_first(self) -> int:
        """Return the index for FIRST: MySQL's generated key stays in front."""
        keeps = (
            not self._mariadb
            and has_generated_key(self._table)
            and self._keys[:1] == [GENERATED_KEY]
        )
        return 0 if keeps else -1

    def _index(self, name: str) -> int | None:
        try:
            return self._keys.index(name.lower())
        except ValueError:
            return None

    def _finished(self, spec: ColumnSpec, old: Column | None = None) -> Column:
        """Return a column that the statement defines, replacing an old one if given."""
        text = spec.text_type
        charset = self._convert_to
        if charset is not None and text is not None:
            said = spec.charset or self._charset
            if old is not None and not self._mariadb:
                text = held_text_type(old, text, BINARY if said == BINARY else charset)
            if said != BINARY:
                spec = replace(spec, charset=charset)
            spec = replace(spec, text_type=text)
        new = _column(spec, self._charset, mariadb=self._mariadb)
        self._defined.add(new)
        return new

    def _show(self) -> None:
        for item in self._items:
            if isinstance(item, ShowColumn):
                at = self._index(item.name)
                if at is not None:
                    self._columns[at] = self._columns[at].with_flag(
                        INVISIBLE, on=not item.visible
                    )

    def _convert(self, charset: str) -> None:
        for index, each in enumerate(self._columns):
            if each.charset not in (None, BINARY) and each not in self._defined:
                new = converted(each, charset, mariadb=self._mariadb)
                self._columns[index] = each.with_type(*new)

    def _with_periods(self, table: Table) -> Table:
        for item in self._items:
            if isinstance(item, DropPeriod) and not item.is_system:
                table = replace(table, period=None)  # there is only one
        if table.period:
            name, *columns = table.period
            start, end = (self._name_now(each) or each for each in columns)
            table = replace(table, period=(name, start, end))
            table = with_never_null(table, (start, end))
        for item in self._items:
            if isinstance(item, AddPeriod):
                table = with_period(table, item)
        return table

    def _with_keys(
        self, table: Table, added: Iterable[AddColumn | ChangeColumn]
    ) -> Table:
        """Return the table with the keys that result from its columns and the items."""
        dropped = {i.name.lower() for i in self._items if isinstance(i, DropKey)}
        renamed = {
            i.old.lower(): i.new for i in self._items if isinstance(i, RenameKey)
        }
        primary: tuple[str, ...] = ()
        if PRIMARY.lower() not in dropped:
            primary = tuple(filter(None, map(self._name_now, table.primary)))
            if primary != table.primary and self._is_only_period(primary):
                primary = ()
        keys = []
        for key in table.keys:
            if key.name.lower() in dropped:
                continue
            parts = [
                Part(self._name_now(part.column) or "", part.length)
                for part in key.parts
                if not part.column or self._name_now(part.column)
            ]
            lost = len(parts) < len(key.parts)
            if lost and self._is_only_period(part.column for part in parts):
                continue
            if parts:
                name = renamed.get(key.name.lower(), key.name)
                keys.append(replace(key, name=name, parts=tuple(parts)))
        table = replace(table, primary=primary, keys=tuple(keys))
        if self._mariadb:
            table = with_hashes(table)
        return with_keys(table, self._new_keys(added), mariadb=self._mariadb)

    def _is_only_period(self, names: Iterable[str]) -> bool:
        """Return whether a key WITHOUT OVERLAPS has lost all columns but a period."""
        period = self._table.period
        if period is None:
            return False
        return list(names) == [self._name_now(each) for each in period[:0:-1]]

    def _new_keys(self, added: Iterable[AddColumn | ChangeColumn]) -> Iterator[Key]:
        """Yield the keys that the items add, those in column definitions first."""
        # Existing keys are checked before anything is dropped.
        known = {key.name.lower() for key in self._table.keys}
        if self._table.primary:
            known.add(PRIMARY.lower())
        for item in added:
            # MariaDB: IF NOT EXISTS of the column also applies to its keys.
            if isinstance(item, AddColumn):
                if_new = item.if_not_exists
            else:
                if_new = item.if_exists
            for key in own_keys(item.column):
                name = key.name or key.parts[0].column
                if not (if_new and name.lower() in known):
                    yield key
        for each in self._items:
            if isinstance(each, AddKey) and not (
                each.if_not_exists and each.key.name.lower() in known
            ):
                yield each.key

    def _name_now(self, name: str) -> str | None:
        """Return the current name of a column of a key; None if it was dropped."""
        return self._now.get(name.lower())


def _column(spec: ColumnSpec, charset: str, *, mariadb: bool) -> Column:
    labels = None
    if spec.text_type is None:
        kind, shown = spec.type, None
    else:
        charset = spec.charset or charset
        text = with_whole_labels(spec.text_type, charset)
        kind, shown = finished_type(text, charset, mariadb=mariadb)
        labels = lost_labels(kind, text.labels, charset)
    # Names and types repeat even if complete columns do not.
    name, kind = intern(spec.name), intern(kind + spec.suffix)
    nullable = spec.nullable is not False and not spec.is_primary
    new = column(name, kind, nullable, shown, spec.flags)
    return replace(new, labels=labels) if labels else new


def _with_versions(table: Table, *, versioned: bool) -> Table:
    versioning = Versioning.NONE
    if versioned:
        named = any(
            ROW_START in each.flags or ROW_END in each.flags for each in table.columns
        )
        versioning = Versioning.NAMED if named else Versioning.HIDDEN
    if versioning is not table.versioning:
        table = replace(table, versioning=versioning)
    return with_row_end(table)
