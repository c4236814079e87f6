"""Which tables are mirrored, and what each of them looks like in the lake.

Combines the settings' patterns with the tables of the database. Leaves out rows
(`masks`) and later DDL (`evolve`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.errors import ConfigError, DecodeError
from canal_server.mirror.settings.lake_partitions import partitions_of, problems
from canal_server.mirror.settings.lake_paths import as_folder, as_former_folder
from canal_server.mirror.settings.mirror_settings import TypeSettings
from canal_server.mirror.settings.table_values import (
    ARRAY,
    ICEBERG_DELETED,
    UNSIGNED,
    WKB,
    Mask,
    MirrorColumn,
    MirrorTable,
    TableName,
)
from canal_server.model.quoted import quoted
from canal_server.mysql.server_columns import TableColumns
from canal_server.tablemeta.model.type_text import GEOMETRIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from canal_server.mirror.settings.mirror_settings import MirrorSettings, TableRule
    from canal_server.model.columns_known import ColumnMeta, TableMeta
    from canal_server.mysql.control_connection import ControlConnection

SYSTEM_SCHEMAS: Final = ("information_schema", "mysql", "performance_schema", "sys")
# Columns that the stream adds; a table in the stream has none of these names.
STREAM_COLUMNS: Final = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
    "_seq",
    "_row",
    "_position",
)
# Columns that the stream and the lake add.
OWN_COLUMNS: Final = (*STREAM_COLUMNS, "_committed_at", "_deleted", "_row_hash")
HIDDEN_PREFIX: Final = "DB_ROW_HASH_"  # of columns that MariaDB hides from all accounts
_VERSIONED: Final = "SYSTEM VERSIONED"
_BITS_OF_64: Final = re.compile(r"\s*bit\s*\(\s*64\s*\)", re.IGNORECASE)

_TABLES: Final = """SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, TABLE_ROWS
  FROM information_schema.TABLES
  WHERE TABLE_SCHEMA NOT IN (%s, %s, %s, %s)
    AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
  ORDER BY TABLE_SCHEMA, TABLE_NAME"""
_ROWS: Final = """SELECT TABLE_ROWS FROM information_schema.TABLES
  WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"""


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table to mirror, with all columns that it has in the source."""

    table: MirrorTable
    columns: tuple[ColumnMeta, ...]
    rows: int  # the database's estimate


class Problem(NamedTuple):
    """A problem with a rule; `table`: it concerns only that table."""

    rule: TableRule
    table: TableName | None
    text: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What the settings mean for this database, and all problems."""

    tables: tuple[FoundTable, ...]
    found: tuple[Problem, ...]
    left_out: tuple[TableName, ...] = ()  # tables of online schema changes
    shadows: tuple[TableName, ...] = ()  # those that get the new rows

    @property
    def problems(self) -> list[str]:
        """Return the problems as texts."""
        return [problem.text for problem in self.found]


def survey(
    connection: ControlConnection,
    settings: MirrorSettings,
    targets: Mapping[TableName, str] | None = None,
) -> Survey:
    """Return the tables to mirror, and every problem with them. Raises SourceError.

    `targets` are the folders of tables that are mirrored already. The settings have the
    rule of each table afterwards.
    """
    problems: list[Problem] = []
    rows: dict[TableName, tuple[TableRule, int]] = {}
    left_out = []
    tables = list(_all_tables(connection))
    settings.note_tables((name for name, *_ in tables), targets or {})
    for name, kind, about in tables:
        rule = settings.rule_of(name)
        if rule is None:
            left_out += [name] if settings.is_left_out(name) else []
        elif kind == _VERSIONED:
            text = (
                f"{rule.location}: table {name} is system-versioned, and its old rows "
                "cannot be distinguished from the new ones: add it to exclude"
            )
            problems.append(Problem(rule, name, text))
        else:
            rows[name] = rule, about
    metas = TableColumns(connection).fetch_many(rows)
    found = []
    for name, (rule, about) in rows.items():
        meta = metas.get((name.schema, name.table))
        if meta is None:
            continue  # dropped since
        try:
            table = table_by_rule(name, meta.columns, rule)
        except ConfigError as error:
            problems += [Problem(rule, name, each) for each in error.problems]
        else:
            found.append(FoundTable(table, meta.columns, about))
    problems += _unused(settings, {name: metas[name] for name in rows if name in metas})
    problems += _same_targets([each.table for each in found], settings)
    shadows = tuple(name for name in rows if settings.is_shadow(name))
    return Survey(tuple(found), tuple(problems), tuple(left_out), shadows)


def present(connection: ControlConnection, settings: MirrorSettings) -> set[TableName]:
    """Return the existing tables that a rule selects, with or without problems.

    Raises SourceError.
    """
    return {
        name
        for name, *_ in _all_tables(connection)
        if settings.rule_of(name) is not None
    }


def estimate(connection: ControlConnection, name: TableName) -> int:
    """Return an estimate of a table's rows, 0 if it does not exist.

    Raises SourceError.
    """
    found = connection.query(_ROWS, name)
    return int(found[0][0] or 0) if found else 0


def _all_tables(connection: ControlConnection) -> Iterator[tuple[TableName, str, int]]:
    """Yield all tables that the account sees, with kind and estimated rows."""
    for schema, table, kind, rows in connection.query(_TABLES, SYSTEM_SCHEMAS):
        yield TableName(str(schema), str(table)), str(kind), int(rows or 0)


def mirror_table(
    name: TableName,
    columns: Sequence[ColumnMeta],
    settings: MirrorSettings,
    folder: str = "",
) -> MirrorTable:
    """Return how a table with these columns is mirrored, by the rule for its name.

    `folder` is the one that it has so far: see `target_of`. Raises ConfigError if the
    table cannot be mirrored, or no rule matches it.
    """
    rule = settings.rule_of(name)
    if rule is None:
        raise ConfigError([f"table {name}: no pattern in the settings matches it"])
    return table_by_rule(name, columns, rule, folder)


def table_by_rule(
    name: TableName, columns: Sequence[ColumnMeta], rule: TableRule, folder: str = ""
) -> MirrorTable:
    """Return how a rule mirrors a table. Raises ConfigError."""
    builder = _Builder(name, rule)
    mirrored = tuple(builder.columns(columns))
    table = MirrorTable(
        name,
        target_of(name, rule, folder),
        mirrored,
        tuple(each.name for each in columns if each.is_key),
        rule.deletes,
        rule.form,
        partitions_of(rule.partition_by, mirrored, rule.form),
    )
    builder.check(table)
    if builder.problems:
        raise ConfigError(builder.problems)
    return table


def target_of(name: TableName, rule: TableRule, folder: str = "") -> str:
    """Return the folder of a table, which any engine can read.

    A table keeps `folder`, the one that it has so far, if earlier versions gave it that
    name: its readers know it.
    """
    if folder and folder == _former_target_of(name, rule):
        return folder
    return rule.to.format(schema=as_folder(name.schema), table=as_folder(name.table))


def _former_target_of(name: TableName, rule: TableRule) -> str:
    schema, table = map(as_former_folder, name)
    return rule.to.format(schema=schema, table=table)


def selects(rule: TableRule, column: str) -> bool:
    """Check whether a rule selects a column, by its name."""
    names = {each.lower() for each in rule.columns}
    left_out = {each.lower() for each in rule.without}
    mask = mask_of(rule, column)
    return (
        (not names or column.lower() in names)
        and column.lower() not in left_out
        and (mask is None or mask.kind != "drop")
    )


def mask_of(rule: TableRule, column: str) -> Mask | None:
    """Return the mask of a column; column names are case-insensitive."""
    return _of(rule.masks, column)


def form_of(rule: TableRule, mysql_type: str) -> str:
    """Return the form of a type's values in the lake; see `MirrorColumn`."""
    base = re.split(r"[( ]", mysql_type.strip().lower(), maxsplit=1)[0]
    if base in GEOMETRIES:
        return WKB if rule.types.geometry == WKB else ""
    if base == "vector":
        return ARRAY if rule.types.vector == ARRAY else ""
    if base == "bit" and _BITS_OF_64.match(mysql_type):
        return UNSIGNED if rule.types.bit64 == UNSIGNED else ""
    return ""


def _of(values: Mapping[str, Mask], column: str) -> Mask | None:
    requested = column.lower()
    return next(
        (each for name, each in values.items() if name.lower() == requested), None
    )


class _Builder:
    """Applies a rule to one table's columns, and collects problems."""

    def __init__(self, name: TableName, rule: TableRule) -> None:
        self._name = name
        self._rule = rule
        self._renames = {old.lower(): new for old, new in rule.rename.items()}
        self.problems: list[str] = []

    def columns(self, columns: Iterable[ColumnMeta]) -> Iterator[MirrorColumn]:
        """Yield the columns that the rule selects."""
        for each in columns:
            if each.name.startswith(HIDDEN_PREFIX):
                continue  # visible only in the binlog
            if each.name.lower() in STREAM_COLUMNS:
                self._add(
                    f"column {each.name} has a name that the stream of changes adds, "
                    "before a rename could help: rename it in the source, or add the "
                    "table to exclude"
                )
                continue
            if not selects(self._rule, each.name):
                if each.is_key:
                    self._add(
                        f"column {each.name} belongs to the primary key, which "
                        "identifies rows: it cannot be left out; mask it with hash"
                    )
                continue
            mask = mask_of(self._rule, each.name)
            column = MirrorColumn(
                each.name,
                each.mysql_type,
                each.charset or "",
                each.is_key,
                self._renames.get(each.name.lower(), each.name),
                mask,
                form_of(self._rule, each.mysql_type) if mask is None else "",
            )
            if self._is_possible(column):
                yield column

    def _is_possible(self, column: MirrorColumn) -> bool:
        try:
            kind = column.requested.kind
        except DecodeError as error:
            self._add(str(error))
            return False
        mask = column.mask
        if mask is None:
            return True
        if column.is_key and mask.kind != "hash":
            self._add(
                f"column {column.name} belongs to the primary key: its mask must be "
                f"hash, which keeps keys distinct, not {mask.kind}"
            )
        elif mask.kind == "truncate" and kind not in ("text", "binary"):
            self._add(
                f"column {column.name} is {column.mysql_type}: truncate is for texts "
                "and bytes; use hash, null or drop"
            )
        return True

    def check(self, table: MirrorTable) -> None:
        """Add the problems of the table as a whole."""
        if table.form == "iceberg" and importlib.util.find_spec("pyiceberg") is None:
            self._add(
                "format iceberg needs pyiceberg, which is not installed: pip install "
                "'canal-server[iceberg]'"
            )
        if not table.columns and not self.problems:
            self._add("no column is selected: select some, or exclude the table")
        if not table.is_log and table.is_keyless:
            masked = [each.name for each in table.columns if each.mask]
            if masked:
                self._add(
                    f"it has no primary key, so all values identify a row: "
                    f"column {masked[0]} can be left out, but not masked"
                )
        arrays = [each.name for each in table.columns if each.form == ARRAY]
        if table.form == "iceberg" and arrays:
            self._add(
                f"column {arrays[0]} cannot be an array in an Iceberg table: remove "
                "vector from types"
            )
        self._check_names(table)
        for problem in problems(self._rule.partition_by, table.columns, table.form):
            self._add(problem)

    def _check_names(self, table: MirrorTable) -> None:
        """Add the problems of the columns' names in the lake."""
        used: dict[str, str] = {}
        own = set(OWN_COLUMNS)
        if table.form == "iceberg" and table.deletes == "soft":
            own.add(ICEBERG_DELETED)
        for column in table.columns:
            if column.target.lower() in own:
                self._add(
                    f"column {column.target} has a name that the mirror adds: "
                    f"rename: {{{column.name}: …}}, or leave it out"
                )
            for folded in map(str.lower, column.targets):
                if folded in used:
                    self._add(
                        f"columns {used[folded]} and {column.name} get the same name "
                        f"in the lake, {folded}, where case does not count: use rename"
                    )
                used[folded] = column.name

    def _add(self, problem: str) -> None:
        self.problems.append(f"{self._rule.location}: table {self._name}: {problem}")


def _unused(
    settings: MirrorSettings, metas: Mapping[TableName, TableMeta]
) -> Iterator[Problem]:
    """Yield rules that match no table, and columns that no table of a rule has."""
    columns: dict[int, set[str]] = {}
    for name, meta in metas.items():
        rule = settings.rule_of(name)
        names = {each.name.lower() for each in meta.columns}
        columns.setdefault(id(rule), set()).update(names)
    for rule in settings.tables:
        if id(rule) not in columns:
            text = (
                f"{rule.location}: match = {quoted(rule.match)}: no table matches, or "
                "the account may not see it; a pattern must match schema.table as a "
                r"whole, as in shop\..*"
            )
            yield Problem(rule, None, text)
            continue
        for key, named in (
            ("columns", rule.columns),
            ("without", rule.without),
            ("rename", tuple(rule.rename)),
            ("masks", (*rule.masks, *rule.shown)),
        ):
            for column in named:
                if column.lower() not in columns[id(rule)]:
                    text = (
                        f"{rule.location}: {key}: no table has a column {column}: "
                        "remove it, or write its current name"
                    )
                    yield Problem(rule, None, text)


def _same_targets(
    tables: Sequence[MirrorTable], settings: MirrorSettings
) -> Iterator[Problem]:
    """Yield tables whose folder is equal to, or inside, that of another table."""
    folders = Folders()
    for table in sorted(tables, key=lambda each: each.target.split("/")):
        problem = folders.problem(table.source, table.target)
        rule = settings.rule_of(table.source)
        if problem and rule is not None:
            yield Problem(rule, None, problem)
        folders.assign(table.source, table.target)


class Folders:
    """Assigns the lake's folders to tables; no folder is inside another."""

    def __init__(self) -> None:
        self._tables: dict[str, TableName] = {}
        self._inside: dict[str, TableName] = {}  # by the folders around a table's

    def assign(self, name: TableName, target: str) -> None:
        """Assign a folder to a table."""
        self._tables.setdefault(target, name)
        for outer in _around(target):
            self._inside.setdefault(outer, name)

    def problem(self, name: TableName, target: str) -> str:
        """Return the problem if another table uses the folder; "" if none does."""
        for folder in (target, *_around(target)):
            other = self._tables.get(folder)
            if other not in (None, name):
                return _both(other, name, folder)
        other = self._inside.get(target)
        return "" if other in (None, name) else _both(other, name, target)


def _around(target: str) -> list[str]:
    parts = target.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]


def _both(first: TableName | None, second: TableName, folder: str) -> str:
    return (
        f"tables {first} and {second} both use folder {folder}: include {{schema}} "
        "and {table} in to"
    )


def signature(name: TableName, settings: MirrorSettings) -> str:
    """Return a text of the settings that affect a copy: if it changes, copy again."""
    rule = settings.rule_of(name)
    if rule is None:
        return ""
    parts = [
        # Stays equal when a new version names folders in another way.
        _former_target_of(name, rule),
        rule.form,
        rule.deletes,
        *map(repr, (rule.columns, rule.without, sorted(rule.rename.items()))),
        *(
            f"{column}: {mask.kind} {mask.length} {mask.salt}"
            for column, mask in sorted(rule.masks.items())
        ),
    ]
    if rule.types != TypeSettings():  # which earlier versions did not have
        parts.append(repr(rule.types))
    if rule.partition_by:
        parts.append(f"partition by {', '.join(map(str, rule.partition_by))}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
