"""The output of `mirror sql`: statements with which an engine finds the lake's tables.

Everything is read from the lake. Leaves out the dialects (`engine_dialects`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConfigError
from canal_server.mirror.lake.stores.object_stores import store_of
from canal_server.mirror.report.engine_dialects import (
    CannotReadError,
    Dialect,
    LakeEntry,
)
from canal_server.mirror.report.union_columns import MIRROR, TABLE, union_columns
from canal_server.mirror.settings.table_values import MirrorTable
from canal_server.mirror.state.known_tables import known_tables
from canal_server.mirror.state.lake_tables import open_table
from canal_server.mirror.state.state import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.state.state import TableState

NAME: Final = "{schema}.{table}"  # the template of an engine's names, by default
_FIELD: Final = re.compile(r"\{(\w*)\}")
_FIELDS: Final = ("mirror", "schema", "table")


@dataclass(frozen=True, slots=True)
class Union:
    """A view of the rows of all tables that match an expression."""

    schema: str
    name: str
    pattern: re.Pattern[str]  # of the source's schema.table as a whole

    @classmethod
    def read(cls, text: str) -> Union:
        """Return it from `schema.view=expression`. Raises ConfigError."""
        target, _, expression = text.partition("=")
        schema, _, name = target.partition(".")
        if not (schema and name and expression):
            raise ConfigError(
                [
                    (
                        f"--union {text}: write schema.view=expression, for example "
                        "all.orders='shop_\\d+\\.orders'"
                    )
                ]
            )
        try:
            return cls(schema, name, re.compile(expression))
        except re.error as error:
            raise ConfigError(
                [f"--union {text}: not a regular expression: {error}"]
            ) from None

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def statements(
    mirrors: Sequence[MirrorSettings],
    dialect: Dialect,
    *,
    template: str = NAME,
    unions: Sequence[Union] = (),
) -> list[str]:
    """Return the statements, and comments on tables for which there is none.

    `template`: how the engine is to name a table. Raises ConfigError, LakeError.
    """
    _check_template(template)
    entries: list[LakeEntry] = []
    missing: list[str] = []
    for settings in mirrors:
        for state in _states(settings):
            entry = _entry(settings, state, template, dialect)
            if entry is None:
                missing.append(_comment(state.source, "the lake does not have it yet"))
            else:
                entries.append(entry)
    _check_names(entries, unions)
    names = ", ".join(settings.name for settings in mirrors)
    lines = [f"-- {dialect.title}: tables of {names}", *dialect.preparation(entries)]
    schemas = [entry.schema for entry in entries if not entry.catalog_table]
    schemas += [union.schema for union in unions]
    lines += [dialect.create_schema(schema) for schema in dict.fromkeys(schemas)]
    lines += [_create_table(dialect, entry) for entry in entries]
    lines += missing
    lines += [_view(dialect, union, entries) for union in unions]
    return lines


def _states(settings: MirrorSettings) -> Iterator[TableState]:
    """Yield the tables of a mirror that are in its lake, or will be, by name."""
    states = known_tables(settings)
    for source in sorted(states):
        state = states[source]
        if settings.rule_of(source) is None or settings.is_shadow(source):
            continue
        if state.phase is Phase.DROPPED and not state.copies:
            continue
        yield state


def _entry(
    settings: MirrorSettings, state: TableState, template: str, dialect: Dialect
) -> LakeEntry | None:
    rule = settings.rule_of(state.source)
    if rule is None or not state.target:
        return None
    lake = settings.lake
    table = MirrorTable(state.source, state.target, (), form=rule.form)
    opened = open_table(settings, table)
    columns = opened.arrow_schema()
    if columns is None:
        return None
    values = dict(zip(_FIELDS, (settings.name, *state.source), strict=True))
    schema, name = (
        dialect.allowed(_FIELD.sub(lambda found: values[found[1]], part))
        for part in template.split(".", 1)
    )
    in_catalog = rule.form == "iceberg" and bool(lake.catalog)
    return LakeEntry(
        settings.name,
        str(state.source),
        schema,
        name,
        rule.form,
        f"{lake.path.rstrip('/')}/{state.target}",
        columns,
        tuple(opened.readers_names()),
        _catalog_table(state.target) if in_catalog else (),
        "" if lake.is_local else store_of(lake.path, lake.storage_options).endpoint,
    )


def _catalog_table(target: str) -> tuple[str, ...]:
    """Return the name of a table in the catalog: that of its folder."""
    parts = target.split("/")
    return ("default", *parts) if len(parts) == 1 else tuple(parts)


def _check_template(template: str) -> None:
    problems = [
        f"--name {template}: {{{name}}} is unknown; there are {{mirror}}, {{schema}} "
        "and {table}"
        for name in _FIELD.findall(template)
        if name not in _FIELDS
    ]
    schema, _, name = template.partition(".")
    if not (schema and name) or "{table}" not in name:
        problems.append(
            f"--name {template}: write schema.table, for example {{mirror}}.{{table}}"
        )
    if problems:
        raise ConfigError(problems)


def _check_names(entries: Sequence[LakeEntry], unions: Sequence[Union]) -> None:
    """Raise ConfigError for names that several tables would have in the engine."""
    found: dict[str, str] = {}
    problems = []
    for entry in entries:
        name = f"{entry.schema}.{entry.name}"
        this = f"{entry.source} of mirror {entry.mirror}"
        other = found.setdefault(name.lower(), this)
        if other != this:
            problems.append(
                f"{this} and {other} would both be named {name}: choose other names, "
                "for example --name '{mirror}_{schema}.{table}'"
            )
    problems += [
        f"--union {union}: {found[str(union).lower()]} is named so"
        for union in unions
        if str(union).lower() in found
    ]
    if problems:
        raise ConfigError(problems)


def _comment(source: object, text: str) -> str:
    """Return a comment on a table, in one line whatever characters its name has."""
    return f"-- {' '.join(f'{source}: {text}'.splitlines())}"


def _create_table(dialect: Dialect, entry: LakeEntry) -> str:
    try:
        statement = dialect.create_table(entry)
    except CannotReadError as error:
        return _comment(entry.source, str(error))
    if not statement:
        name = ".".join(entry.catalog_table)
        return _comment(entry.source, f"the Iceberg catalog has it as {name}")
    return statement


def _view(dialect: Dialect, union: Union, entries: Sequence[LakeEntry]) -> str:
    """Return the view of several tables. Raises ConfigError."""
    chosen = [entry for entry in entries if union.pattern.fullmatch(entry.source)]
    if not chosen:
        raise ConfigError(
            [f"--union {union}: no table of the lake matches {union.pattern.pattern}"]
        )
    columns = union_columns(str(union), chosen)
    selects = []
    for number, entry in enumerate(chosen):
        try:
            dialect.create_table(entry)
            name = dialect.name_of(entry)
        except CannotReadError as error:
            raise ConfigError([f"--union {union}: {entry.source} {error}"]) from None
        values = [
            f"{dialect.text(entry.mirror)} AS {dialect.identifier(MIRROR)}",
            f"{dialect.text(entry.source)} AS {dialect.identifier(TABLE)}",
        ]
        for column, names in columns:
            own = dialect.identifier(names[number]) if names[number] else "NULL"
            shown = dialect.identifier(column)
            values.append(own if own == shown else f"{own} AS {shown}")
        selects.append(f"SELECT {', '.join(values)}\nFROM {name}")
    return dialect.create_view(
        dialect.allowed(union.schema),
        dialect.allowed(union.name),
        "\nUNION ALL\n".join(selects),
    )
