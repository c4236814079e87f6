r"""The table history in the two tables of the Java server, in its format.

The Java server can read what we write there, and what it wrote becomes a segment. Bytes
in, values out; the SQL statements are in `mysql_rows`.

Its snapshot is a JSON object of schemas, each with the CREATE TABLE texts of its
tables, each followed by `"; \n"`. Its first snapshot, the base dump, has no position:
its file is "0", its server -1, its time -2. A later snapshot has the position of the
last statement that it contains. Its statements have no session, and no text if its
parser found nothing. They may start long before the base dump was made, which comes
after those that are older than its row.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canal_server.doors.sqltext import Dialect
from canal_server.model.entry import EventType
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.sql.statement_classes import examine
from canal_server.tablemeta.storage.history_storage import DdlRecord, StoredSchema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

AFTER_EACH: Final = "; \n"

# Characters that MySQL's three-byte UTF-8 cannot store.
_BEYOND: Final = re.compile("[\U00010000-\U0010ffff]")
# Quoted text, and the end of a table outside quotes.
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
        """Return it as a record of this server."""
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
    """A row of meta_snapshot, without its content."""

    id: int
    position: EntryPosition
    created_ms: int = 0  # when it was written, in whole seconds; 0: unknown

    @property
    def is_base_dump(self) -> bool:
        """Whether it is the first snapshot, which has no position."""
        return self.position.journal_name == "0"


@dataclass(frozen=True, slots=True)
class Adoptable:
    """A part of the Java server's history that can become a segment.

    `first` and `last` are positions of statements, the ends that are certain.
    """

    base: JavaSnapshot
    first: EntryPosition
    last: EntryPosition
    records: tuple[tuple[int, DdlRecord], ...]  # with their row ids


def adoptable(
    statements: Sequence[JavaStatement], snapshots: Sequence[JavaSnapshot]
) -> Iterator[Adoptable]:
    """Yield what can become a segment, starting with the longest range.

    Only the newest statements of one server with ascending positions qualify: earlier
    ones belong to another server, or to a binlog before a reset. The base dump is used
    if there is nothing before; otherwise a snapshot among them.
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
    """Return whether a position is in the same binlog, not before its statements."""
    positions = [one.position for one in run]
    time_ms = base.timestamp or 0
    return (
        base.server_id == positions[0].server_id
        and base.order() >= positions[0].order()
        and all(
            (one.timestamp or 0) <= time_ms
            if one.order() <= base.order()
            else (one.timestamp or 0) >= time_ms
            for one in positions
        )
    )


def _newest_run(statements: Sequence[JavaStatement]) -> list[JavaStatement]:
    # Statements of the same second may be in any order.
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


def position_of(
    file: str | None, offset: int | None, server: str | None, time_ms: int | None
) -> EntryPosition:
    """Return the position in the columns of a row; negative numbers mean none."""
    server_id = int(server) if server and server.isdecimal() else None
    time_ms = time_ms if time_ms and time_ms > 0 else None
    return EntryPosition(file or "", offset or 0, time_ms, server_id)


# --- snapshots ------------------------------------------------------------------------


def data_of(schemas: Sequence[StoredSchema]) -> str:
    """Return the tables in the format of the Java server."""
    found = {
        schema.name: "".join(text + AFTER_EACH for _, text in schema.tables)
        for schema in schemas
        if schema.tables
    }
    return short_characters(json.dumps(found, ensure_ascii=False))


def note_of(schemas: Sequence[StoredSchema]) -> list[dict[str, Any]]:
    """Return what `data_of` cannot hold; tables with the lengths of their texts."""
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
    """Combine `data_of` and `note_of`. Raises ValueError if they do not match."""
    texts = json.loads(data)
    found = []
    for each in note:
        text, at = texts.get(each["name"], ""), 0
        tables = []
        for name, length in each["tables"]:
            tables.append((name, text[at : at + length]))
            at += length + len(AFTER_EACH)
        if at != len(text):
            raise ValueError(f"schema {each['name']!r} has a different length")
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
    """Parse a snapshot of the Java server. Raises ValueError if it is invalid.

    Collations are unknown; it never contains views, nor tables that its filters omit.
    All tables are uncertain: the base dump may be newer than its position, and the Java
    server ignores statements that its parser does not understand.
    """
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError(str(error)) from error
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
    """Write four-byte characters as JSON escapes, as the tables cannot store them."""
    return _BEYOND.sub(lambda found: json.dumps(found[0])[1:-1], json_text)


def has_long_characters(text: str) -> bool:
    """Return whether a text contains four-byte characters."""
    return _BEYOND.search(text) is not None


def without_long_characters(text: str) -> str:
    """Return the text with four-byte characters replaced."""
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
    """Return the name of a table and its text."""
    for statement in examine(text, schema, Dialect()).statements:
        if statement.event_type is EventType.CREATE and statement.table is not None:
            return statement.table, text
    raise ValueError(f"not a CREATE TABLE: {text[:60]!r}")


def _unquoted(name: str) -> str:
    if len(name) > 1 and name[0] == name[-1] == "`":
        return name[1:-1].replace("``", "`")
    return name
