"""The tables in a schema dump: the SQL text written by mysqldump or mariadb-dump.

Rows are ignored, like all statements that change no table structure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.model.entry import EventType
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.history.replay import stored_schemas
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.sql.statement_classes import examine
from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.tablemeta.storage.history_storage import (
        SourceTraits,
        StoredSchema,
    )

# Tokens in which a delimiter has no meaning.
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
# `--master-data`, `--source-data` of mysqldump, also as a comment.
_POSITION: Final = re.compile(
    r"CHANGE\s+(?:MASTER|REPLICATION\s+SOURCE)\s+TO\s"
    r".*?(?:MASTER|SOURCE)_LOG_FILE\s*=\s*'(?P<file>[^']+)'"
    r".*?(?:MASTER|SOURCE)_LOG_POS\s*=\s*(?P<offset>\d+)",
    re.IGNORECASE,
)
_HEAD_CHARS: Final = 64 * 1024  # the position is within these, if present


@dataclass(frozen=True, slots=True)
class DumpedText:
    """The content of a dump; each of `problems` is a sentence about an unread part."""

    schemas: tuple[StoredSchema, ...]
    problems: tuple[str, ...]


def read_dump(text: str, traits: SourceTraits, schema: str = "") -> DumpedText:
    """Read the dump of a server; `schema` is the schema if the dump does not name one.

    Raises ValueError if a table has no schema.
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
            raise ValueError("the dump has no USE before its tables; set their schema")
        applied = model.apply(None, schema, statement, context)
        if applied.problem:
            problems.append(applied.problem)
    return DumpedText(tuple(stored_schemas(model.freeze())), tuple(problems))


def position_in_dump(text: str) -> EntryPosition | None:
    """Return the binlog position that a dump contains, None if it has none."""
    found = _POSITION.search(text[:_HEAD_CHARS])
    return found and EntryPosition(found["file"], int(found["offset"]))


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a script, without delimiters and empty statements."""
    delimiter = ";"
    begin = at = 0
    while at < len(text):
        if begin == at and (declared := _DELIMITER.match(text, at)):
            delimiter = declared["word"]
            begin = at = declared.end()
        elif text.startswith(delimiter, at):
            yield from _unless_empty(text[begin:at])
            begin = at = at + len(delimiter)
        elif part := _PART.match(text, at):
            at = part.end()
            # A comment between statements belongs to neither of them.
            if not text[begin : part.start()].strip() and _is_comment(part[0]):
                begin = at
        elif text[at].isspace() and begin == at:
            begin = at = at + 1
        else:
            at = _next(text, at + 1, delimiter)
    yield from _unless_empty(text[begin:])


def _lacks_schema(statement: str, context: Context) -> bool:
    """Return whether a statement creates a table without naming its schema."""
    return any(
        each.event_type is EventType.CREATE and each.table and not each.schema
        for each in examine(statement, "", context.dialect).statements
    )


def _next(text: str, at: int, delimiter: str) -> int:
    """Return the offset of the next text that may be special."""
    found = re.compile(rf"['\"`#/-]|{re.escape(delimiter[0])}").search(text, at)
    return found.start() if found else len(text)


def _is_comment(part: str) -> bool:
    return part.startswith(("--", "#", "/*")) and not part.startswith(("/*!", "/*M!"))


def _unless_empty(statement: str) -> Iterator[str]:
    if stripped := statement.strip():
        yield stripped
