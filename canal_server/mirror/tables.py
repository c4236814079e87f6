"""Which tables are mirrored, and how each of them looks in the lake.

What the settings say of patterns meets what the database has. Leaves out rows (`masks`)
and what DDL changes later (`evolve`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from canal_server.errors import ConfigError, DecodeError
from canal_server.mirror.model import Mask, MirrorColumn, MirrorTable, TableName
from canal_server.model.quoted import quoted
from canal_server.mysql.columns import TableColumns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from canal_server.mirror.settings import MirrorSettings, TableRule
    from canal_server.model.table import ColumnMeta, TableMeta
    from canal_server.mysql.connection import ControlConnection

SYSTEM_SCHEMAS: Final = ("information_schema", "mysql", "performance_schema", "sys")
# Columns of the stream and of the lake beside those of a table.
OWN_COLUMNS: Final = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
    "_seq",
    "_row",
    "_committed_at",
    "_position",
    "_deleted",
    "_row_hash",
)
HIDDEN_PREFIX: Final = "DB_ROW_HASH_"  # of columns that MariaDB shows to nobody
_VERSIONED: Final = "SYSTEM VERSIONED"

_TABLES: Final = """SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, TABLE_ROWS
  FROM information_schema.TABLES
  WHERE TABLE_SCHEMA NOT IN (%s, %s, %s, %s)
    AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
  ORDER BY TABLE_SCHEMA, TABLE_NAME"""


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table to mirror, with all columns that it has in the source."""

    table: MirrorTable
    columns: tuple[ColumnMeta, ...]
    rows: int  # about so many, as the database estimates


@dataclass(frozen=True, slots=True)
class Survey:
    """What the settings mean in this database, and what keeps it from working."""

    tables: tuple[FoundTable, ...]
    problems: tuple[str, ...]


def mirror_tables(
    connection: ControlConnection, settings: MirrorSettings
) -> list[MirrorTable]:
    """Return the tables to mirror. Raises ConfigError, SourceError."""
    found = survey(connection, settings)
    if found.problems:
        raise ConfigError(list(found.problems))
    return [each.table for each in found.tables]


def survey(connection: ControlConnection, settings: MirrorSettings) -> Survey:
    """Return the tables to mirror, and every problem with them. Raises SourceError."""
    problems: list[str] = []
    rows: dict[TableName, int] = {}
    for schema, table, kind, estimate in connection.query(_TABLES, SYSTEM_SCHEMAS):
        name = TableName(str(schema), str(table))
        rule = settings.rule_of(name)
        if rule is None:
            continue
        if kind == _VERSIONED:
            problems.append(
                f"{rule.place}: table {name} is system-versioned, its old rows cannot "
                "be told from its new ones: leave it out by exclude"
            )
            continue
        rows[name] = int(estimate or 0)
    metas = TableColumns(connection).fetch_many(rows)
    found = []
    for name, estimate in rows.items():
        meta = metas.get((name.schema, name.table))
        if meta is None:
            continue  # dropped since
        try:
            table = mirror_table(name, meta.columns, settings)
        except ConfigError as error:
            problems += error.problems
        else:
            found.append(FoundTable(table, meta.columns, estimate))
    problems += _unused(settings, {name: metas[name] for name in rows if name in metas})
    problems += _same_targets([each.table for each in found])
    return Survey(tuple(found), tuple(problems))


def mirror_table(
    name: TableName,
    columns: Sequence[ColumnMeta],
    settings: MirrorSettings,
) -> MirrorTable:
    """Return how a table with these columns is mirrored, by the rule for its name.

    Raises ConfigError when it cannot be, and when no rule wants it.
    """
    rule = settings.rule_of(name)
    if rule is None:
        raise ConfigError([f"table {name}: no pattern of the settings wants it"])
    return table_by_rule(name, columns, rule)


def table_by_rule(
    name: TableName, columns: Sequence[ColumnMeta], rule: TableRule
) -> MirrorTable:
    """Return how a rule has a table mirrored. Raises ConfigError."""
    builder = _Builder(name, rule)
    table = MirrorTable(
        name,
        target_of(name, rule),
        tuple(builder.columns(columns)),
        tuple(each.name for each in columns if each.is_key),
        rule.deletes,
        rule.form,
    )
    builder.check(table)
    if builder.problems:
        raise ConfigError(builder.problems)
    return table


def target_of(name: TableName, rule: TableRule) -> str:
    """Return the folder of a table; what a path cannot have is %-encoded."""
    return rule.to.format(schema=_as_folder(name.schema), table=_as_folder(name.table))


def selects(rule: TableRule, column: str) -> bool:
    """Tell whether a rule takes a column, by its name."""
    names = {each.lower() for each in rule.columns}
    left_out = {each.lower() for each in rule.without}
    mask = mask_of(rule, column)
    return (
        (not names or column.lower() in names)
        and column.lower() not in left_out
        and (mask is None or mask.kind != "drop")
    )


def mask_of(rule: TableRule, column: str) -> Mask | None:
    """Return the mask of a column; names of columns have no case."""
    return _of(rule.masks, column)


def _of(values: Mapping[str, Mask], column: str) -> Mask | None:
    wanted = column.lower()
    return next((each for name, each in values.items() if name.lower() == wanted), None)


def _as_folder(name: str) -> str:
    text = "".join(
        char if char.isalnum() else quote(char, safe="_-.$") for char in name
    )
    return f"%{ord(text[0]):02X}{text[1:]}" if text[:1] in "._" else text


class _Builder:
    """Makes one table's columns by a rule, and collects what is wrong."""

    def __init__(self, name: TableName, rule: TableRule) -> None:
        self._name = name
        self._rule = rule
        self._renames = {old.lower(): new for old, new in rule.rename.items()}
        self.problems: list[str] = []

    def columns(self, columns: Iterable[ColumnMeta]) -> Iterator[MirrorColumn]:
        """Yield those columns that the rule takes."""
        for each in columns:
            if each.name.startswith(HIDDEN_PREFIX):
                continue  # hidden from everybody but the binlog
            if not selects(self._rule, each.name):
                if each.is_key:
                    self._add(
                        f"column {each.name} is of the primary key, by which rows are "
                        "found: it cannot be left out; a mask of hash hides it"
                    )
                continue
            column = MirrorColumn(
                each.name,
                each.mysql_type,
                each.charset or "",
                each.is_key,
                self._renames.get(each.name.lower(), each.name),
                mask_of(self._rule, each.name),
            )
            if self._is_possible(column):
                yield column

    def _is_possible(self, column: MirrorColumn) -> bool:
        try:
            kind = column.wanted.kind
        except DecodeError as error:
            self._add(str(error))
            return False
        mask = column.mask
        if mask is None:
            return True
        if column.is_key and mask.kind != "hash":
            self._add(
                f"column {column.name} is of the primary key: its mask can be hash, "
                f"which keeps rows apart, not {mask.kind}"
            )
        elif mask.kind == "truncate" and kind not in ("text", "binary"):
            self._add(
                f"column {column.name} is {column.mysql_type}: truncate is for texts "
                "and bytes; use hash, null or drop"
            )
        return True

    def check(self, table: MirrorTable) -> None:
        """Note what is wrong with the table as a whole."""
        if not table.columns and not self.problems:
            self._add("no column is left; name some, or leave the table out")
        if table.form == "delta" and table.is_keyless:
            masked = [each.name for each in table.columns if each.mask]
            if masked:
                self._add(
                    f"it has no primary key, its rows are found by all of their "
                    f"values: column {masked[0]} can be left out, but not masked"
                )
        taken: dict[str, str] = {}
        for column in table.columns:
            folded = column.target.lower()
            if folded in OWN_COLUMNS:
                self._add(
                    f"column {column.name} has the name of a column that the mirror "
                    f"adds: rename: {{{column.name}: …}}, or leave it out"
                )
            if folded in taken:
                self._add(
                    f"columns {taken[folded]} and {column.name} have one name in the "
                    "lake, where case is no difference: use rename"
                )
            taken[folded] = column.name

    def _add(self, problem: str) -> None:
        self.problems.append(f"{self._rule.place}: table {self._name}: {problem}")


def _unused(
    settings: MirrorSettings, metas: Mapping[TableName, TableMeta]
) -> Iterator[str]:
    """Yield rules that no table has, and columns of rules that no table of it has."""
    columns: dict[int, set[str]] = {}
    for name, meta in metas.items():
        rule = settings.rule_of(name)
        names = {each.name.lower() for each in meta.columns}
        columns.setdefault(id(rule), set()).update(names)
    for rule in settings.tables:
        if id(rule) not in columns:
            yield (
                f"{rule.place}: match = {quoted(rule.match)}: no table matches, or the "
                "account may not see it"
            )
            continue
        for key, named in (
            ("columns", rule.columns),
            ("without", rule.without),
            ("rename", tuple(rule.rename)),
            ("masks", tuple(rule.masks)),
        ):
            for column in named:
                if column.lower() not in columns[id(rule)]:
                    yield f"{rule.place}: {key}: no table has a column {column}"


def _same_targets(tables: Sequence[MirrorTable]) -> Iterator[str]:
    """Yield tables whose folder is that of another, or inside it."""
    taken: dict[str, TableName] = {}
    for table in sorted(tables, key=lambda each: each.target.split("/")):
        parts = table.target.split("/")
        for length in range(1, len(parts) + 1):
            folder = "/".join(parts[:length])
            if folder in taken:
                yield (
                    f"tables {taken[folder]} and {table.source} both go to {folder}: "
                    "put {schema} and {table} into to"
                )
        taken[table.target] = table.source


def signature(name: TableName, settings: MirrorSettings) -> str:
    """Return what the settings say of a table's copy; another text, another copy."""
    rule = settings.rule_of(name)
    if rule is None:
        return ""
    told = [
        target_of(name, rule),
        rule.form,
        rule.deletes,
        *map(repr, (rule.columns, rule.without, sorted(rule.rename.items()))),
        *(
            f"{column}: {mask.kind} {mask.length} {mask.salt}"
            for column, mask in sorted(rule.masks.items())
        ),
    ]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
