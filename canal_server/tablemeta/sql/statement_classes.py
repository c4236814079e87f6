"""The classes of the statements in QUERY events, and the tables they name.

The classes are those of canal, as its clients know them. Transaction delimiters (BEGIN,
COMMIT, XA, SAVEPOINT) are recognized in the core. Leaves out the effect of DDL on
columns (`resolve`) and storing it (`tsdb`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from canal_server.doors.sqltext import Dialect, SqlTextError, tokens
from canal_server.messages import history_messages
from canal_server.model.ddl_statement import Examined, Stale, Statement
from canal_server.model.entry import EventType
from canal_server.tablemeta.sql.alter import alter_items
from canal_server.tablemeta.sql.words import NoNameError, Words

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.doors.sqltext import Token
    from canal_server.model.ddl_statement import TableName

logger = logging.getLogger(__name__)

# The start of a statement determines its class, except for statements that are lists.
# Therefore an INSERT of megabytes costs no more than a short one.
HEAD_CHARS: Final = 4096
_LISTS: Final = frozenset(("ALTER", "DROP", "RENAME", "TRUNCATE", "SET"))

_QUERY: Final = Statement(EventType.QUERY)


def classify(
    sql: str,
    schema: str,
    *,
    ansi_quotes: bool = False,
    no_backslash_escapes: bool = False,
    mariadb: bool = False,
) -> list[Statement]:
    """Return the changes of a text; the first one names its entry.

    `schema` is the default schema of the event, "" for none. The list is empty if
    clients receive nothing. Never raises: a text that cannot be parsed is a QUERY and
    is logged.
    """
    dialect = Dialect(ansi_quotes, no_backslash_escapes, mariadb)
    return examine(sql, schema, dialect).statements


def examine(sql: str, schema: str, dialect: Dialect) -> Examined:
    """Return the changes of a text and whose columns may change; else as `classify`."""
    stale = Stale()
    try:
        statements = _read(Words(_tokens(sql, dialect), schema or None), stale)
    except (SqlTextError, NoNameError) as error:
        # No more of it, because it may contain a password.
        beginning = " ".join(sql[:200].split()[:2])
        history_messages.DDL_NOT_PARSED.log(logger, beginning, schema, error)
        return Examined([_QUERY], Stale(everything=True), str(error))
    return Examined(statements, stale)


def table_of_statement(
    sql: str, *, ansi_quotes: bool = False, no_backslash_escapes: bool = False
) -> str | None:
    """Return the unqualified name of the table that a statement changes, if any.

    For ROWS_QUERY events. Never raises.
    """
    try:
        found = _read(
            Words(_tokens(sql, Dialect(ansi_quotes, no_backslash_escapes)), None),
            Stale(),
        )
    except (SqlTextError, NoNameError):
        return None  # the name is optional
    return found[0].table if found else None


def _tokens(sql: str, dialect: Dialect) -> list[Token]:
    if len(sql) > HEAD_CHARS:
        head = tokens(sql, dialect, chars_max=HEAD_CHARS)
        if not head or head[0].text.upper() not in _LISTS:
            return head
    return tokens(sql, dialect)


def _read(words: Words, stale: Stale) -> list[Statement]:
    while words.accept("("):  # (SELECT …) UNION …
        pass
    first = words.next()
    reader = _READERS.get(first)
    if reader is not None:
        return reader(words, stale)
    return [] if first in _SILENT else [_QUERY]


def _create(words: Words, stale: Stale) -> list[Statement]:
    words.accept("OR", "REPLACE")
    if words.accept("SPATIAL", "REFERENCE", "SYSTEM"):
        return [_QUERY]
    words.skip_all(("ONLINE", "OFFLINE", "EXTERNAL"))
    temporary = words.accept("TEMPORARY")
    if words.peek(1) == "INDEX":
        words.skip_all(_INDEX_KINDS)
    kind = words.next()
    words.skip_if_exists()
    if kind == "TABLE":
        table = words.table()
        # A temporary table hides another one only from its own session.
        if temporary:
            stale.names = True
        else:
            stale.tables.add(table)
        return [Statement(EventType.CREATE, *table)]
    if kind == "INDEX":
        return _index(words, EventType.CINDEX, stale)
    if kind in ("DATABASE", "SCHEMA"):
        return _schema(words, stale)
    return _object(words, kind, stale)


def _drop(words: Words, stale: Stale) -> list[Statement]:
    if words.accept("SPATIAL", "REFERENCE", "SYSTEM"):
        return [_QUERY]
    words.skip_all(("ONLINE", "OFFLINE"))
    temporary = words.accept("TEMPORARY")
    kind = words.next()
    words.skip_if_exists()
    if kind in ("TABLE", "TABLES"):
        tables = _tables(words)
        if temporary:
            stale.names = True
        else:
            stale.tables.update(tables)
        return [Statement(EventType.ERASE, *table) for table in tables]
    if kind == "INDEX":
        return _index(words, EventType.DINDEX, stale)
    if kind in ("DATABASE", "SCHEMA"):
        return _schema(words, stale)
    return _object(words, kind, stale)


def _alter(words: Words, stale: Stale) -> list[Statement]:
    words.skip_all(("ONLINE", "OFFLINE", "IGNORE"))
    if not words.accept("TABLE"):
        if words.peek() in _PREFIXES:
            words.skip_to(_PREFIXED)
        kind = words.next()
        words.skip_if_exists()
        if kind in ("DATABASE", "SCHEMA"):
            # The name may be omitted; then an option follows.
            stale.defaults.update(filter(None, (words.schema, words.name())))
            return []
        return [_QUERY] if kind == "VIEW" else _object(words, kind, stale)
    words.skip_if_exists()
    table = words.table()
    stale.tables.add(table)
    _skip_wait(words)
    return alter_items(words, table, stale)


def _truncate(words: Words, _stale: Stale) -> list[Statement]:
    words.accept("TABLE")
    return [Statement(EventType.TRUNCATE, *table) for table in _tables(words)]


def _rename(words: Words, stale: Stale) -> list[Statement]:
    if not words.accept_any(("TABLE", "TABLES")):
        return []  # RENAME USER
    words.skip_if_exists()
    found = []
    while True:
        old = words.table()
        _skip_wait(words)
        if not words.accept("TO"):
            raise NoNameError("RENAME TABLE without TO")
        new = words.table()
        stale.tables.update((old, new))
        found.append(Statement(EventType.RENAME, *new, *old))
        if not words.accept(","):
            return found


def _insert(words: Words, _stale: Stale) -> list[Statement]:
    words.skip_all(("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE"))
    words.accept("INTO")
    return [Statement(EventType.INSERT, *words.table(), is_dml=True)]


def _update(words: Words, _stale: Stale) -> list[Statement]:
    words.skip_all(("LOW_PRIORITY", "IGNORE"))
    if words.peek() == "(":
        return [_UPDATE_OF_SEVERAL]
    table = words.table()
    if words.skip_to(("SET", *_JOINS)) in _JOINS:
        return [_UPDATE_OF_SEVERAL]
    return [Statement(EventType.UPDATE, *table, is_dml=True)]


def _delete(words: Words, _stale: Stale) -> list[Statement]:
    words.skip_all(("LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY"))
    words.accept("FROM")
    table = words.table()
    words.skip_to((",", "FROM", "USING", "WHERE"))
    # The tables to delete from are before these words.
    if words.peek() == ",":
        return [Statement(EventType.DELETE, is_dml=True)]
    return [Statement(EventType.DELETE, *table, is_dml=True)]


def _with(words: Words, stale: Stale) -> list[Statement]:
    # Common table expressions, in parentheses, precede the statement itself.
    words.skip_to(("INSERT", "UPDATE", "DELETE", "REPLACE", "SELECT", "VALUES"))
    return _read(words, stale)


def _set(words: Words, stale: Stale) -> list[Statement]:
    # MariaDB: SET STATEMENT variable = value FOR statement
    if words.accept("STATEMENT") and words.skip_to(("FOR",)):
        words.next()
        return _read(words, stale)
    return []


def _schema(words: Words, stale: Stale) -> list[Statement]:
    schema = words.name()
    # OR REPLACE and IF NOT EXISTS: a schema with this name may have existed.
    stale.schemas.add(schema)
    return [Statement(EventType.QUERY, schema)]


def _index(words: Words, event_type: EventType, stale: Stale) -> list[Statement]:
    if not words.skip_to(("ON",)):
        raise NoNameError("index without ON and its table")
    words.next()
    table = words.table()
    stale.tables.add(table)  # the index may be the primary key
    return [Statement(event_type, *table)]


def _object(words: Words, kind: str, stale: Stale) -> list[Statement]:
    if kind in _PREFIXES:
        kind = words.skip_to(_PREFIXED) or kind
    if kind == "SEQUENCE":  # a table for readers of row events
        stale.tables.update(_tables(words))
    elif kind == "VIEW":
        stale.names = True
    elif kind not in _OBJECTS and kind not in _PREFIXES:
        # An object of a future version, which may contain tables.
        stale.everything = True
        return [_QUERY]
    return []


def _tables(words: Words) -> list[TableName]:
    tables = [words.table()]
    while words.accept(","):
        tables.append(words.table())
    return tables


def _skip_wait(words: Words) -> None:
    """Skip the clause that limits how long MariaDB waits for the table."""
    if words.accept("WAIT"):
        words.next()
    words.accept("NOWAIT")


_UPDATE_OF_SEVERAL: Final = Statement(EventType.UPDATE, is_dml=True)
_JOINS: Final = (",", "JOIN", "STRAIGHT_JOIN")
_INDEX_KINDS: Final = frozenset(("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"))

# Kinds of objects whose changes clients do not receive.
_OBJECTS: Final = frozenset(
    (
        *("VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "AGGREGATE", "PACKAGE"),
        *("USER", "ROLE", "SERVER", "TABLESPACE", "UNDO", "LOGFILE", "RESOURCE"),
        *("INSTANCE", "SEQUENCE", "LIBRARY", "PREPARE"),
    )
)
_PREFIXES: Final = ("DEFINER", "ALGORITHM", "SQL")  # of views and routines
_PREFIXED: Final = ("VIEW", "EVENT", "PROCEDURE", "FUNCTION", "TRIGGER", "AGGREGATE")

# Statements that clients do not receive.
_SILENT: Final = frozenset(
    (
        *("", ";", "GRANT", "REVOKE", "SET", "SAVEPOINT", "RELEASE", "ROLLBACK"),
        *(
            "BEGIN",
            "START",
            "COMMIT",
            "ANALYZE",
            "OPTIMIZE",
            "CHECK",
            "FLUSH",
            "SELECT",
        ),
        *("VALUES", "TABLE", "CALL", "LOCK", "UNLOCK", "KILL", "REPLACE", "LOAD"),
        *("USE", "SHOW", "RESET", "PURGE", "DEALLOCATE", "EXECUTE", "PREPARE"),
    )
)

_READERS: Final[dict[str, Callable[[Words, Stale], list[Statement]]]] = {
    "CREATE": _create,
    "DROP": _drop,
    "ALTER": _alter,
    "TRUNCATE": _truncate,
    "RENAME": _rename,
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "WITH": _with,
    "SET": _set,
}
