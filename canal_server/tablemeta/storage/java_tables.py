r"""The table history as the original writes it into its two tables.

What we write there it can read, and what it wrote becomes a stretch. Bytes in, values
out; leaves out the statements (`storage_mysql`).

Its snapshot is a JSON object of schemas, each the CREATE TABLE texts of its tables
with `"; \n"` behind each. Its first one, the base dump, has no place: its file is
"0", its server -1, its time -2. A later one has the place of the last statement that
is in it. Its statements have no session, and no text where its parser found nothing.
They may begin long before the base dump was taken: that is behind those which are
older than its row.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.doors.sqltext import Dialect
from canal_server.model.entry import EventType
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.sql.ddl import examine
from canal_server.tablemeta.storage.history_storage import DdlRecord, StoredSchema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BEHIND_EACH: Final = "; \n"

# What MySQL's three-byte UTF-8 cannot hold.
_BEYOND: Final = re.compile("[\U00010000-\U0010ffff]")
# Where a text is quoted, and where a table ends outside of quotes.
_PIECE: Final = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|(?P<end>; ?\n)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class JavaStatement:
    """A row of meta_history."""

    id: int
    position: EntryPosition
    schema: str
    ddl: str | None
    event_type: str
    sql_schema: str
    sql_table: str

    def record(self, *, contained: bool) -> DdlRecord:
        """Return it as one of ours."""
        return DdlRecord(
            self.position,
            self.schema,
            self.ddl or "",
            contained=contained,
            event_type=self.event_type,
            sql_schema=self.sql_schema,
            sql_table=self.sql_table,
        )


@dataclass(frozen=True, slots=True)
class JavaSnapshot:
    """A row of meta_snapshot, without what is in it."""

    id: int
    position: EntryPosition
    created_ms: int = 0  # when it was written, in whole seconds; 0: not known

    @property
    def is_base_dump(self) -> bool:
        """Whether it is the first one, which has no place."""
        return self.position.journal_name == "0"


@dataclass(frozen=True, slots=True)
class Adoptable:
    """A part of the original's history that can become a stretch.

    `first` and `last` are places of statements, the ends that are known for certain.
    """

    base: JavaSnapshot
    first: EntryPosition
    last: EntryPosition
    records: tuple[tuple[int, DdlRecord], ...]  # with the ids of their rows


def adoptable(
    statements: Sequence[JavaStatement], snapshots: Sequence[JavaSnapshot]
) -> Iterator[Adoptable]:
    """Yield what can become a stretch, that which reaches back farthest first.

    Only the newest statements of one server whose places ascend: what is before was
    another server's, or the binlog was begun anew. The base dump serves when there is
    nothing before; else a snapshot from among them does.
    """
    run = _newest_run(statements)
    for base in snapshots:
        if base.is_base_dump and run and len(run) == len(statements):
            yield _adoptable(base, run[0].position, run)
    placed = [
        base
        for base in snapshots
        if base.position.journal_name
        and not base.is_base_dump
        and (not run or _is_among(base.position, run))
    ]
    for base in sorted(placed, key=lambda each: each.position.order()):
        rest = [one for one in run if one.position.order() >= base.position.order()]
        yield _adoptable(base, base.position, rest)


def _is_among(base: EntryPosition, run: Sequence[JavaStatement]) -> bool:
    """Tell whether a place is of the same binlog, and not before its statements."""
    places = [one.position for one in run]
    time_ms = base.timestamp or 0
    return (
        base.server_id == places[0].server_id
        and base.order() >= places[0].order()
        and all(
            (one.timestamp or 0) <= time_ms
            if one.order() <= base.order()
            else (one.timestamp or 0) >= time_ms
            for one in places
        )
    )


def _newest_run(statements: Sequence[JavaStatement]) -> list[JavaStatement]:
    # Those of one second may have come in any order.
    in_time = sorted(
        statements, key=lambda one: (one.position.timestamp or 0, one.position.order())
    )
    run: list[JavaStatement] = []
    for one in reversed(in_time):
        if run and (
            one.position.server_id != run[-1].position.server_id
            or one.position.order() > run[-1].position.order()
        ):
            break
        if not run or one.position.order() < run[-1].position.order():
            run.append(one)
    return run[::-1]


def _adoptable(
    base: JavaSnapshot, first: EntryPosition, run: Sequence[JavaStatement]
) -> Adoptable:
    records = tuple(
        (
            one.id,
            one.record(
                contained=(one.position.timestamp or 0) < base.created_ms
                if base.is_base_dump
                else one.position.order() == first.order()
            ),
        )
        for one in run
    )
    last = run[-1].position if run else first
    return Adoptable(base, first, last, records)


def place(
    file: str | None, offset: int | None, server: str | None, time_ms: int | None
) -> EntryPosition:
    """Return the place that is in a row's columns; negative numbers stand for none."""
    server_id = int(server) if server and server.isdecimal() else None
    time_ms = time_ms if time_ms and time_ms > 0 else None
    return EntryPosition(file or "", offset or 0, time_ms, server_id)


# --- snapshots ------------------------------------------------------------------------


def data_of(schemas: Sequence[StoredSchema]) -> str:
    """Return the tables as the original reads them."""
    found = {
        schema.name: "".join(text + BEHIND_EACH for _, text in schema.tables)
        for schema in schemas
        if schema.tables
    }
    return short_characters(json.dumps(found, ensure_ascii=False))


def note_of(schemas: Sequence[StoredSchema]) -> list[dict[str, Any]]:
    """Return what `data_of` has no room for; tables with the lengths of their texts."""
    return [
        {
            "name": schema.name,
            "collation": schema.collation,
            "tables": [[name, len(text)] for name, text in schema.tables],
            "views": schema.views,
            "uncertain": schema.uncertain,
        }
        for schema in schemas
    ]


def schemas_of(data: str, note: Sequence[dict[str, Any]]) -> tuple[StoredSchema, ...]:
    """Put `data_of` and `note_of` together. Raises ValueError when they do not fit."""
    texts = json.loads(data)
    found = []
    for each in note:
        text, at = texts.get(each["name"], ""), 0
        tables = []
        for name, length in each["tables"]:
            tables.append((name, text[at : at + length]))
            at += length + len(BEHIND_EACH)
        if at != len(text):
            raise ValueError(f"schema {each['name']!r} has another length")
        found.append(
            StoredSchema(
                each["name"],
                each["collation"],
                tuple(tables),
                tuple(each["views"]),
                tuple(each["uncertain"]),
            )
        )
    return tuple(found)


def schemas_of_java(data: str) -> tuple[StoredSchema, ...]:
    """Read a snapshot that the original wrote. Raises ValueError when it is none.

    Collations are not known; views were never in it, nor were tables that its
    filters left out. All are uncertain: the base dump may be newer than its place,
    and what its parser did not understand went by unnoticed.
    """
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  # content, not a type
    schemas = []
    for quoted, text in found.items():
        name = _unquoted(quoted)
        tables = dict(_table(name, each) for each in _split(str(text or "")))
        schemas.append(
            StoredSchema(name, tables=tuple(tables.items()), uncertain=tuple(tables))
        )
    return tuple(schemas)


def short_characters(json_text: str) -> str:
    """Write characters of four bytes as JSON's escapes: the tables cannot hold them."""
    return _BEYOND.sub(lambda found: json.dumps(found[0])[1:-1], json_text)


def has_long_characters(text: str) -> bool:
    """Tell whether a text has characters of four bytes."""
    return _BEYOND.search(text) is not None


def without_long_characters(text: str) -> str:
    """Return the text with other characters in their place."""
    return _BEYOND.sub("\ufffd", text)


def _split(text: str) -> Iterator[str]:
    begin = 0
    for found in _PIECE.finditer(text):
        if found["end"]:
            yield text[begin : found.start()]
            begin = found.end()
    if text[begin:].strip():
        yield text[begin:]


def _table(schema: str, text: str) -> tuple[str, str]:
    """Return a table's name and its text."""
    for statement in examine(text, schema, Dialect()).statements:
        if statement.event_type is EventType.CREATE and statement.table is not None:
            return statement.table, text
    raise ValueError(f"not a CREATE TABLE: {text[:60]!r}")


def _unquoted(name: str) -> str:
    if len(name) > 1 and name[0] == name[-1] == "`":
        return name[1:-1].replace("``", "`")
    return name
