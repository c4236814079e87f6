"""What a statement on a table means for its copy in the lake.

A copy follows a statement only if its rows are certain to equal the source's rows after
the steps. Otherwise the table is copied again, or stopped, as its rule says. Masked or
excluded values never reach the lake under another name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from canal_server.errors import ConfigError, LakeError
from canal_server.mirror.ddl.copy_ddl import copy_doubt, may_read_otherwise
from canal_server.mirror.ddl.fills import NotConstantError, fill_of
from canal_server.mirror.ddl.generation import NotComputableError, generated
from canal_server.mirror.ddl.renames import is_shown
from canal_server.mirror.ddl.table_statements import read_statement
from canal_server.mirror.ddl.widening import Outcome, definitions_of, outcome
from canal_server.mirror.lake.masks import lake_parts, masked, source_type
from canal_server.mirror.lake.reshape import filled
from canal_server.mirror.lake.steps import (
    AddColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from canal_server.mirror.settings.mirror_settings import SHOW
from canal_server.mirror.settings.selected_tables import HIDDEN_PREFIX, table_by_rule
from canal_server.mirror.settings.table_values import LOGS
from canal_server.tablemeta.model.table_schema import AUTO_INCREMENT, GENERATED

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from canal_server.mirror.ddl.table_statements import StatementEffect
    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.mirror_settings import TableRule
    from canal_server.mirror.settings.table_values import (
        MirrorColumn,
        MirrorTable,
        TableName,
    )
    from canal_server.model.columns_known import ColumnMeta


@dataclass(frozen=True, slots=True)
class Steps:
    """The copy follows by these steps, in order; there may be none.

    `columns` are the source's after the statement, with their NULL attributes; the next
    decision uses them. `kept` are names in the lake of columns that the source has
    dropped. `copy_doubt`: why rows that a copy has read around the statement may
    be wrong (`copy_ddl`).
    """

    steps: tuple[Step, ...]
    columns: tuple[ColumnMeta, ...]
    kept: tuple[str, ...] = ()
    copy_doubt: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    """The table is emptied (TRUNCATE), with the same columns."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The table no longer exists."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy cannot follow: the table must be copied again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another table has its name now, unchanged: its rows may be in the lake."""

    origin: TableName
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The copy cannot follow, and a person must decide."""

    reason: str


Decision = Steps | Empty | Dropped | Copy | Replaced | Stop


def decide(
    sql: str,
    table: TableName,
    before: Sequence[ColumnMeta],
    after: Sequence[ColumnMeta],
    rule: TableRule,
    *,
    schema: str = "",
    mariadb: bool = False,
    kept: Collection[str] = (),
) -> Decision:
    """Decide what a statement on a table means for its copy. Never raises.

    `before` are the source's columns as of the last decision (or the copy), `after`
    those after the statement, empty if the table was dropped. `kept` are names of
    columns in the lake that the source has dropped; `schema` is the session's default
    schema, if it is not the table's.
    """
    old, new = _shown(before), _shown(after)
    if not new:
        return Dropped()
    effect = read_statement(
        sql,
        table,
        schema=schema or table.schema,
        exists=bool(old),
        mariadb=mariadb,
    )
    if effect.origin is not None and effect.origin != table:
        return Replaced(effect.origin, f"{effect.origin} got its name")
    try:
        decision = _Decision(table, old, new, rule, effect)
        return decision.made(kept)
    except _CannotFollowError as error:
        return (Stop if rule.drift == "stop" else Copy)(str(error))
    except ConfigError as error:
        return Stop("; ".join(error.problems))


def _shown(columns: Sequence[ColumnMeta]) -> list[ColumnMeta]:
    """Leave out the columns that MariaDB shows only in the binlog."""
    return [each for each in columns if not each.name.startswith(HIDDEN_PREFIX)]


class _CannotFollowError(Exception):
    """The reason why the copy cannot follow."""


class _Decision:
    """One statement and one table."""

    def __init__(
        self,
        table: TableName,
        before: Sequence[ColumnMeta],
        after: Sequence[ColumnMeta],
        rule: TableRule,
        effect: StatementEffect,
    ) -> None:
        self._table = table
        self._before = {each.name.lower(): each for each in before}
        self._after = after
        self._rule = rule
        self._effect = effect
        self._kept: set[str] = set()
        self._old = self._mirrored(before)
        self._drops: list[Step] = []
        self._renames: list[RenameColumn] = []
        self._widens: list[Step] = []
        self._adds: list[Step] = []
        # Columns from which others may be computed, by their names.
        self._sources: dict[str, tuple[ColumnMeta, MirrorColumn]] = {}

    def _mirrored(self, columns: Sequence[ColumnMeta]) -> dict[str, MirrorColumn]:
        if not columns:
            return {}
        table: MirrorTable = table_by_rule(self._table, columns, self._rule)
        return {each.name.lower(): each for each in table.columns}

    def made(self, kept: Collection[str]) -> Decision:
        """Return the decision. Raises _CannotFollowError, ConfigError."""
        effect = self._effect
        self._kept.update(kept)
        new = self._mirrored(self._after)
        if effect.becomes_versioned:
            return Stop(
                "the table is now system-versioned: old rows cannot be distinguished"
            )
        if not self._before:
            raise _CannotFollowError("the table is new")
        if effect.problem:
            raise _CannotFollowError(effect.problem)
        if effect.empties:
            return Empty()
        origins = self._origins()
        leak = self._leak(origins, new)
        if leak:
            return Stop(leak)
        self._check_key(origins)
        columns = [self._with_null(each, origins) for each in self._after]
        self._check_dependents(columns, origins)
        self._drop(origins, new)
        self._sources = {
            key: (column, new[key])
            for column in columns
            if (key := column.name.lower()) in new
            and origins[key]
            and not self._is_regenerated(key)
        }
        for column in columns:
            key = column.name.lower()
            if key in new:
                self._follow_column(column, new[key], origins[key])
        self._check_renames()
        steps = (*self._drops, *self._renames, *self._widens, *self._adds)
        pairs = [
            (self._before[origins[each.name.lower()]], each)
            for each in columns
            if origins[each.name.lower()]
        ]
        unsure = copy_doubt(effect, pairs)
        return Steps(steps, tuple(columns), tuple(sorted(self._kept)), unsure)

    def _origins(self) -> dict[str, str]:
        """Return the original name of each current column, "" for a new one."""
        effect = self._effect
        origins = {
            effect.renamed.get(name, name): name
            for name in self._before
            if name not in effect.dropped
        }
        for name in effect.added:
            if name not in origins:
                origins[name] = ""
            elif name not in effect.only_if_missing:
                raise _CannotFollowError(
                    f"the statement adds column {name}, which exists"
                )
        present = {each.name.lower() for each in self._after}
        if present != set(origins):
            names = ", ".join(sorted(present ^ set(origins)))
            raise _CannotFollowError(
                f"the statement does not show what happens to the columns {names}"
            )
        return origins

    def _leak(self, origins: dict[str, str], new: dict[str, MirrorColumn]) -> str:
        """Return the problem if a column would reveal what a rule hides, else ""."""
        for name, origin in origins.items():
            if not origin or name not in new or is_shown(self._rule, name):
                continue
            if origin not in self._old:
                return (
                    f"column {origin}, which is left out, is now {name}, which is not: "
                    f"add {name} to without, or choose its mask under masks "
                    f"({SHOW}: none)"
                )
            mask = self._old[origin].mask
            if mask is not None and new[name].mask is None:
                return (
                    f"column {origin}, which is masked, is now {name}, which is not: "
                    f"add {name} to masks ({SHOW}: its values may be seen), and remove "
                    f"{origin} there unless another table has it"
                )
        return ""

    def _check_key(self, origins: dict[str, str]) -> None:
        """Raise for a changed primary key."""
        old = {name for name, each in self._before.items() if each.is_key}
        new = {
            origins[each.name.lower()] or each.name
            for each in self._after
            if each.is_key
        }
        if old != new:
            raise _CannotFollowError("its primary key changed")

    def _with_null(self, column: ColumnMeta, origins: dict[str, str]) -> ColumnMeta:
        """Return a column with its NULL attribute, from the statement or as before."""
        key = column.name.lower()
        spec = self._effect.defined.get(key)
        origin = origins[key]
        if spec is not None and (not origin or key not in self._effect.added):
            # Without an attribute, a TIMESTAMP may be NOT NULL, depending on the
            # server.
            is_timestamp = column.mysql_type.lower().startswith("timestamp")
            unsaid = spec.nullable is None and not is_timestamp
            nullable = (unsaid or spec.nullable is True) and not column.is_key
        else:
            nullable = self._before[origin].nullable
        generated = (
            GENERATED in spec.flags
            if spec is not None
            else bool(origin) and self._before[origin].generated
        )
        return replace(column, nullable=nullable, generated=generated)

    def _is_regenerated(self, name: str) -> bool:
        """Check whether a column's values are computed by the statement."""
        spec = self._effect.defined.get(name)
        return spec is not None and GENERATED in spec.flags

    def _check_dependents(
        self, columns: Sequence[ColumnMeta], origins: dict[str, str]
    ) -> None:
        """Raise if generated columns may change with those that they use."""
        dependents = [
            each.name
            for each in columns
            if each.generated and each.name.lower() not in self._effect.defined
        ]
        if not dependents:
            return
        changed = [
            each.name
            for each in columns
            if (origin := origins[each.name.lower()])
            and (
                self._is_regenerated(each.name.lower())
                or (
                    each.name.lower() in self._effect.defined
                    and may_read_otherwise(self._before[origin], each)
                )
            )
        ]
        if self._effect.converts:
            changed.append("with text")
        if changed:
            raise _CannotFollowError(
                f"column {dependents[0]} is generated, and may change with column "
                f"{changed[0]}"
            )

    def _follow_column(
        self, column: ColumnMeta, new: MirrorColumn, origin: str
    ) -> None:
        """Add the steps for a column that the lake has after the statement."""
        if not origin:
            self._add(column, new)
            return
        if self._is_regenerated(column.name.lower()):
            self._regenerate(column, new, origin)
            return
        if origin not in self._old:
            raise _CannotFollowError(
                f"column {origin}, which is left out, is now {new.name}"
            )
        old, before = self._old[origin], self._before[origin]
        if old.mask != new.mask:
            raise _CannotFollowError(f"the mask of column {new.name} changed")
        if before.nullable and not column.nullable:
            raise _CannotFollowError(
                f"column {new.name} becomes NOT NULL: what replaces NULL is unknown"
            )
        effect = outcome(before, column)
        if effect is Outcome.UNKNOWN:
            was, now = definitions_of(before, column)
            raise _CannotFollowError(
                f"column {new.name} was {was} and is now {now}: some values may have "
                "changed"
            )
        parts = list(zip(lake_parts(old), lake_parts(new), strict=True))
        self._renames += [
            RenameColumn(was.name, now.name)
            for was, now in parts
            if was.name != now.name
        ]
        if effect is Outcome.SAME and old.form == new.form:
            return
        if new.mask is None or new.mask.kind != "hash":
            self._widens += [
                WidenColumn(now.name, now.mysql_type, now.charset) for _, now in parts
            ]
        elif not new.requested.kind.startswith("int"):
            # The hashed text has another form.
            raise _CannotFollowError(
                f"the type of the hashed column {new.name} changed"
            )

    def _add(self, column: ColumnMeta, new: MirrorColumn) -> None:
        spec = self._effect.added[column.name.lower()]
        kept = {each.lower() for each in self._kept}
        if any(target.lower() in kept for target in new.targets):
            raise _CannotFollowError(
                f"column {new.name} is added, but a dropped column is kept under this "
                "name"
            )
        if GENERATED in spec.flags:
            self._adds.append(self._computed(column, new))
            return
        if AUTO_INCREMENT in spec.flags:
            raise _CannotFollowError(
                f"added column {new.name} has AUTO_INCREMENT values"
            )
        is_timestamp = column.mysql_type.lower().startswith("timestamp")
        if is_timestamp and spec.default is None and not spec.nullable:
            raise _CannotFollowError(
                f"added column {new.name} may have the time of the statement"
            )
        try:
            fill = fill_of(column, spec.default)
            fill = _masked_fill(fill, new)
        except (NotConstantError, LakeError) as error:
            raise _CannotFollowError(f"added column {new.name}: {error}") from None
        self._adds += [
            AddColumn(part.name, part.mysql_type, part.charset, fill, part.form)
            for part in lake_parts(new)
        ]

    def _regenerate(self, column: ColumnMeta, new: MirrorColumn, origin: str) -> None:
        """Add the steps for a column that has another expression, or the same again."""
        is_partition = any(
            each.column.lower() in (origin, new.name.lower())
            for each in self._rule.partition_by
        )
        if column.is_key or is_partition:
            raise _CannotFollowError(
                f"column {new.name}, by which rows are found, has another expression"
            )
        if origin in self._old:
            self._drops += map(DropColumn, self._old[origin].targets)
        self._adds.append(self._computed(column, new))

    def _computed(self, column: ColumnMeta, new: MirrorColumn) -> AddColumn:
        """Return the step for a column whose values are computed from others."""
        text = self._effect.defined[column.name.lower()].generation or ""
        if new.mask is not None or new.form:
            raise _CannotFollowError(
                f"column {new.name} is generated, and the lake has other values of it"
            )
        try:
            how = generated(text, column, self._sources)
        except NotComputableError as error:
            raise _CannotFollowError(
                f"column {new.name} is generated: {error}"
            ) from None
        return AddColumn(new.target, new.mysql_type, new.charset, generated=how)

    def _drop(self, origins: dict[str, str], new: dict[str, MirrorColumn]) -> None:
        """Add the steps for columns of the lake that are dropped or kept."""
        now = {origin: name for name, origin in origins.items() if origin}
        for name, column in self._old.items():
            if now.get(name) in new:
                continue
            if name not in now and self._rule.dropped_columns == "keep":
                self._check_keeps(name)
                self._kept.update(column.targets)
            else:
                self._drops += map(DropColumn, column.targets)

    def _check_keeps(self, dropped: str) -> None:
        """Raise if a kept column would identify rows of the lake."""
        has_key = any(each.is_key for each in self._after)
        if self._rule.form not in LOGS and not has_key:
            raise _CannotFollowError(
                f"column {dropped} is dropped and cannot be kept: without a primary "
                "key, all values identify a row"
            )

    def _check_renames(self) -> None:
        """Raise for names that are in use while the steps run one after another."""
        dropped = {each.name for each in self._drops if isinstance(each, DropColumn)}
        used = {name.lower() for each in self._old.values() for name in each.targets}
        used |= {each.lower() for each in self._kept}
        used -= {each.lower() for each in dropped}
        for rename in self._renames:
            is_case_only = rename.old.lower() == rename.new.lower()
            if rename.new.lower() in used and not is_case_only:
                raise _CannotFollowError(
                    f"column {rename.old} is renamed to {rename.new}, a name in use"
                )


def _masked_fill(fill: str | None, column: MirrorColumn) -> str | None:
    mask = column.mask
    if fill is None or mask is None:
        return fill
    if mask.kind == "hash":
        # Of the value in the form of rows, where a time's text differs.
        value = filled(fill, source_type(column))
        return str(masked(pa.array([value]), mask)[0])
    return fill[: mask.length] if mask.kind == "truncate" else None
