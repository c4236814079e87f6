"""The changes of one table: the statements of the history that changed it, and how.

A table is followed by its name, and across a RENAME by its previous name. Formatting is
left to `canal_server.cli`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from canal_server.tablemeta.history.replay import Replay
from canal_server.tablemeta.model.operations import (
    AlterTable,
    ChangeColumn,
    CreateLike,
    PartitionToTable,
    RenameColumn,
    RenameTables,
    RenameTo,
)
from canal_server.tablemeta.sql.resolve import resolve
from canal_server.tablemeta.tables.table_diff import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from canal_server.model.positions import EntryPosition
    from canal_server.tablemeta.model.operations import Name, Operation
    from canal_server.tablemeta.model.table_schema import Table
    from canal_server.tablemeta.storage.history_storage import (
        BinlogSegment,
        DdlRecord,
        HistoryStorage,
    )
    from canal_server.tablemeta.tables.table_diff import Difference

_QUOTES = str.maketrans("", "", '`"')
_OF_SCHEMAS = re.compile(r"\b(?:database|schema)\b")


@dataclass(frozen=True, slots=True)
class TableChange:
    """The effect of one statement, or of the base of a segment, on a table.

    `record` is None for a base; `found` are then the differences to what was known
    before. `is_uncertain`: the columns may differ from the reported ones.
    `is_contained`: the base was read after the statement, so its effect is unknown.
    """

    segment: BinlogSegment
    position: EntryPosition
    name: Name  # of the table, after the statement
    record: DdlRecord | None
    found: tuple[Difference, ...]
    is_uncertain: bool = False

    @property
    def is_contained(self) -> bool:
        """Whether the base contains the effect of the statement already."""
        return self.record is not None and self.record.contained


class _Statement:
    """A statement with cached results."""

    def __init__(self, record: DdlRecord) -> None:
        self.record = record
        self.text = record.ddl.lower().translate(_QUOTES)
        self._operations: list[Operation] | None = None

    @property
    def operations(self) -> list[Operation]:
        if self._operations is None:
            context = replace(self.record.context, schema=self.record.schema)
            self._operations = resolve(self.record.ddl, context)
        return self._operations

    def renames(self) -> Iterator[tuple[Name, Name]]:
        """Yield old and new names of the tables it renames."""
        for operation in self.operations:
            if isinstance(operation, RenameTables):
                yield from operation.pairs
            elif isinstance(operation, AlterTable):
                for item in operation.items:
                    if isinstance(item, RenameTo):
                        yield operation.name, item.name

    def sources(self) -> Iterator[tuple[Name, Name]]:
        """Yield names of tables and of the tables they are copied from."""
        for operation in self.operations:
            if isinstance(operation, CreateLike):
                yield operation.name, operation.like
            elif isinstance(operation, AlterTable):
                for item in operation.items:
                    if isinstance(item, PartitionToTable):
                        yield item.name, operation.name

    def alters(self, name: Name, fold: Callable[[Name], Name]) -> bool:
        """Return whether it is an ALTER of a table."""
        return any(
            isinstance(each, AlterTable) and fold(each.name) == name
            for each in self.operations
        )

    def renamed_columns(
        self, name: Name, fold: Callable[[Name], Name]
    ) -> dict[str, str]:
        """Return new column names of a table by old ones, in lower case."""
        return {
            item.old.lower(): new.lower()
            for operation in self.operations
            if isinstance(operation, AlterTable) and fold(operation.name) == name
            for item in operation.items
            if isinstance(item, ChangeColumn | RenameColumn)
            for new in (
                item.new if isinstance(item, RenameColumn) else item.column.name,
            )
            if new.lower() != item.old.lower()
        }


@dataclass(slots=True)
class _State:
    """One table before or after a statement."""

    before: Table | None
    after: Table | None
    is_uncertain: bool


@dataclass(slots=True)
class _Step:
    """A statement, or the base (`statement` is None), with the tables it changed."""

    segment: BinlogSegment
    position: EntryPosition
    statement: _Statement | None
    states: dict[Name, _State]


class Changelog:
    """Finds the changes of a table."""

    def __init__(self, storage: HistoryStorage) -> None:
        self._storage = storage
        self._segments = storage.segments()
        self._folds = any(each.traits.lower_case_table_names for each in self._segments)

    def of_table(self, schema: str, table: str) -> list[TableChange]:
        """Return all changes of a table, oldest first; empty if it is unknown."""
        statements = {
            segment.id: [
                _Statement(record) for record in self._storage.records(segment.id)
            ]
            for segment in self._segments
        }
        name = self._fold((schema, table))
        names = self._related(name, [s for all_ in statements.values() for s in all_])
        steps: list[_Step] = []
        known: dict[Name, Table | None] = {}
        for segment in self._segments:
            steps += self._walk(segment, statements[segment.id], names, known)
        return list(reversed(list(self._followed(name, steps))))

    def _fold(self, name: Name) -> Name:
        return (name[0].lower(), name[1].lower()) if self._folds else name

    # --- relevant statements --------------------------------------------------------

    def _related(self, name: Name, statements: list[_Statement]) -> set[Name]:
        """Return all names that the table had, and of tables it was copied from."""
        known = {name}
        todo = [name]
        while todo:
            found = todo.pop()
            word = _word(found)
            for statement in statements:
                if not word.search(statement.text):
                    continue
                for other in self._linked(found, statement):
                    if other not in known:
                        known.add(other)
                        todo.append(other)
        return known

    def _linked(self, name: Name, statement: _Statement) -> Iterator[Name]:
        for old, new in statement.renames():
            if self._fold(new) == name:
                yield self._fold(old)
            elif self._fold(old) == name:
                yield self._fold(new)
        for copy, source in statement.sources():
            if self._fold(copy) == name:
                yield self._fold(source)

    # --- forward: the effect of each statement on the tables -------------------------

    def _walk(
        self,
        segment: BinlogSegment,
        statements: list[_Statement],
        names: set[Name],
        known: dict[Name, Table | None],
    ) -> Iterator[_Step]:
        """Replay a segment; `known` are the results so far, which are updated."""
        base = self._storage.snapshot(segment.id, segment.first)
        if base is None:
            return
        words = [_word(each) for each in names]
        relevant = [
            each
            for each in statements
            if _OF_SCHEMAS.search(each.text) or any(w.search(each.text) for w in words)
        ]
        replay = Replay(segment.traits, base.schemas)
        replay.expect(each.record for each in relevant if each.record.contained)
        states = {}
        for name in names:
            now = replay.find(*name)
            is_uncertain = replay.model.is_uncertain(*name)
            if now is not None or is_uncertain or known.get(name) is not None:
                states[name] = _State(known.get(name), now, is_uncertain)
            known[name] = now
        yield _Step(segment, segment.first, None, states)
        for statement in relevant:
            states = self._apply(replay, statement, names, known)
            if states:
                yield _Step(segment, statement.record.position, statement, states)

    def _apply(
        self,
        replay: Replay,
        statement: _Statement,
        names: set[Name],
        known: dict[Name, Table | None],
    ) -> dict[Name, _State]:
        applied = replay.apply(statement.record)
        touched = {self._fold(each) for each in applied.changed | applied.uncertain}
        states = {}
        for name in names:
            before, now = known[name], replay.find(*name)
            if before != now or name in touched or statement.alters(name, self._fold):
                states[name] = _State(before, now, replay.model.is_uncertain(*name))
            known[name] = now
        return states

    # --- backward: along the names of one table -------------------------------------

    def _followed(self, name: Name, steps: list[_Step]) -> Iterator[TableChange]:
        for step in reversed(steps):
            state = step.states.get(name)
            if state is None:
                continue
            before, after, new_name, renamed = state.before, state.after, name, {}
            if step.statement is not None:
                later = self._later_name(name, step)
                if after is None and later is not None:
                    after = step.states[later].after
                former = self._former_name(name, step)
                if before is None and former is not None:
                    before = step.states[former].before
                    name = former
                renamed = step.statement.renamed_columns(name, self._fold)
            yield TableChange(
                step.segment,
                step.position,
                new_name,
                None if step.statement is None else step.statement.record,
                tuple(differences(before, after, renamed)),
                state.is_uncertain,
            )

    def _former_name(self, name: Name, step: _Step) -> Name | None:
        """Return the name that a table had before a statement gave it this name."""
        backward = [(new, old) for old, new in self._renames(step)]
        return self._other_name(name, reversed(backward), step)

    def _later_name(self, name: Name, step: _Step) -> Name | None:
        """Return the name that a statement gave to a table of this name."""
        return self._other_name(name, self._renames(step), step)

    def _renames(self, step: _Step) -> list[tuple[Name, Name]]:
        assert step.statement is not None
        return [
            (self._fold(old), self._fold(new)) for old, new in step.statement.renames()
        ]

    def _other_name(
        self, name: Name, pairs: Iterable[tuple[Name, Name]], step: _Step
    ) -> Name | None:
        found = name
        for one, other in pairs:
            if one == found:
                found = other
        return found if found != name and found in step.states else None


def _word(name: Name) -> re.Pattern[str]:
    """Return a pattern that finds a table name in a text without quotes."""
    text = re.escape(name[1].lower().translate(_QUOTES))
    return re.compile(rf"(?<![\w$]){text}(?![\w$])")


def since(changes: Iterable[TableChange], timestamp_ms: int) -> list[TableChange]:
    """Return the changes at or after a time."""
    return [each for each in changes if (each.position.timestamp or 0) >= timestamp_ms]
