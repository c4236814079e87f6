"""The tables in a schema dump, the SQL text that mysqldump or mariadb-dump writes.

Leaves out rows: statements that change none of the structures are passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.model.entry import EventType
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.history.replay import stored_schemas
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.sql.ddl import examine
from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.tablemeta.storage.history_storage import (
        SourceTraits,
        StoredSchema,
    )

# What a delimiter may stand in without being one.
_PART: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*+' | "(?:[^"\\]|\\.|"")*+" | `(?:[^`]|``)*+`
        | /\*.*?\*/ | (?:--(?=\s)|\#)[^\n]*+""",
    re.DOTALL | re.VERBOSE,
)
_DELIMITER: Final = re.compile(
    r"[ \t]*DELIMITER[ \t]+(?P<word>\S+)[^\n]*", re.IGNORECASE
)
_USE: Final = re.compile(
    r"USE\s+(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^\s;`]+))", re.IGNORECASE
)
# `--master-data`, `--source-data` of mysqldump, also when it is a comment.
_PLACE: Final = re.compile(
    r"CHANGE\s+(?:MASTER|REPLICATION\s+SOURCE)\s+TO\s"
    r".*?(?:MASTER|SOURCE)_LOG_FILE\s*=\s*'(?P<file>[^']+)'"
    r".*?(?:MASTER|SOURCE)_LOG_POS\s*=\s*(?P<offset>\d+)",
    re.IGNORECASE,
)
_HEAD_CHARS: Final = 64 * 1024  # where the place stands, if anywhere


@dataclass(frozen=True, slots=True)
class DumpedText:
    """What a dump holds; `problems` is a sentence for what could not be read."""

    schemas: tuple[StoredSchema, ...]
    problems: tuple[str, ...]


def read_dump(text: str, traits: SourceTraits, schema: str = "") -> DumpedText:
    """Read a dump of a server; `schema` is the one that it does not name itself.

    Raises ValueError when it has a table and no schema for it.
    """
    model = MemoryTableMeta(
        mariadb=traits.mariadb,
        lower_case_table_names=traits.lower_case_table_names,
        server_collation=traits.collation or None,
        server_version=traits.version,
    )
    context = Context(
        mariadb=traits.mariadb,
        server_version=traits.version,
        charset_client="utf8mb4",
        collation_server=traits.collation or None,
        explicit_timestamp=True,
    )
    problems = []
    for statement in statements(text):
        use = _USE.match(statement)
        if use:
            schema = use["plain"] or use["quoted"].replace("``", "`")
            continue
        if not schema and _lacks_schema(statement, context):
            raise ValueError("it has no USE before its tables: name their schema")
        applied = model.apply(None, schema, statement, context)
        if applied.problem:
            problems.append(applied.problem)
    return DumpedText(tuple(stored_schemas(model.freeze())), tuple(problems))


def place_in_dump(text: str) -> EntryPosition | None:
    """Return the place in the binlog that a dump tells it was taken at."""
    found = _PLACE.search(text[:_HEAD_CHARS])
    return found and EntryPosition(found["file"], int(found["offset"]))


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a script, without delimiters and empty ones."""
    delimiter = ";"
    begin = at = 0
    while at < len(text):
        if begin == at and (told := _DELIMITER.match(text, at)):
            delimiter = told["word"]
            begin = at = told.end()
        elif text.startswith(delimiter, at):
            yield from _unless_empty(text[begin:at])
            begin = at = at + len(delimiter)
        elif part := _PART.match(text, at):
            at = part.end()
            # A comment between statements belongs to none of them.
            if not text[begin : part.start()].strip() and _is_comment(part[0]):
                begin = at
        elif text[at].isspace() and begin == at:
            begin = at = at + 1
        else:
            at = _next(text, at + 1, delimiter)
    yield from _unless_empty(text[begin:])


def _lacks_schema(statement: str, context: Context) -> bool:
    """Tell whether it makes a table and leaves to the session in which schema."""
    return any(
        each.event_type is EventType.CREATE and each.table and not each.schema
        for each in examine(statement, "", context.dialect).statements
    )


def _next(text: str, at: int, delimiter: str) -> int:
    """Return where something may begin that is not plain text."""
    found = re.compile(rf"['\"`#/-]|{re.escape(delimiter[0])}").search(text, at)
    return found.start() if found else len(text)


def _is_comment(part: str) -> bool:
    return part.startswith(("--", "#", "/*")) and not part.startswith(("/*!", "/*M!"))


def _unless_empty(statement: str) -> Iterator[str]:
    if stripped := statement.strip():
        yield stripped
