"""The tables of snapshots in an SQLite file, each table definition once.

A snapshot contains ids of schemas, a schema contains ids of definitions; equal content
has the same id. A snapshot of 10,000 tables in which one table changed therefore costs
only that table and the list of its schema.
"""

from __future__ import annotations

import json
import struct
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from canal_server.tablemeta.storage.history_storage import StoredSchema
from canal_server.tablemeta.storage.storage_text import compact, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from canal_server.doors.sqlite import Database, Row

PARAMETERS_MAX: Final = 500  # per query; old builds of SQLite allow 999

# tables: ids of definitions, 32 bits each.
TABLES: Final = (
    """CREATE TABLE schema_image (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        digest BLOB NOT NULL UNIQUE,
        name TEXT NOT NULL,
        collation TEXT NOT NULL,
        tables BLOB NOT NULL,
        views TEXT NOT NULL,
        uncertain TEXT NOT NULL
    )""",
    """CREATE TABLE definition (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        digest BLOB NOT NULL UNIQUE,
        name TEXT NOT NULL,
        text TEXT NOT NULL
    )""",
)


def put_schemas(database: Database, schemas: Iterable[StoredSchema]) -> bytes:
    """Store new schemas; returns the ids of all schemas.

    Call it in a transaction.
    """
    return _packed([_put_schema(database, schema) for schema in schemas])


def get_schemas(database: Database, names: bytes) -> tuple[StoredSchema, ...]:
    """Return the schemas with ids of `put_schemas`."""
    images = _rows_by_id(
        database,
        "SELECT id, digest, name, collation, tables, views, uncertain"
        " FROM schema_image WHERE id IN",
        unpacked(database, names),
    )
    definitions = _rows_by_id(
        database,
        "SELECT id, digest, name, text FROM definition WHERE id IN",
        [one for image in images.values() for one in unpacked(database, image[2])],
    )
    found = []
    for identity in unpacked(database, names):
        name, collation, tables, views, uncertain = images[identity]
        found.append(
            StoredSchema(
                name,
                collation,
                tuple(definitions[one] for one in unpacked(database, tables)),
                tuple(json.loads(views)),
                tuple(json.loads(uncertain)),
            )
        )
    return tuple(found)


def collect_unused(database: Database) -> None:
    """Delete schemas and definitions that no snapshot uses; in a transaction."""
    images: set[int] = set()
    for (names,) in database.query("SELECT DISTINCT images FROM snapshot"):
        images.update(unpacked(database, names))
    _drop_others(database, "schema_image", images)
    definitions: set[int] = set()
    for (names,) in database.query("SELECT tables FROM schema_image"):
        definitions.update(unpacked(database, names))
    _drop_others(database, "definition", definitions)


def unpacked(database: Database, names: bytes) -> tuple[int, ...]:
    """Return the ids in a packed list. Raises the error of the database."""
    try:
        return struct.unpack(f"<{len(names) // 4}I", names)
    except struct.error as error:
        raise database.damaged(f"a list of ids of {len(names)} bytes") from error


def _packed(ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


def _put_schema(database: Database, schema: StoredSchema) -> int:
    digests = [digest_of(*table) for table in schema.tables]
    database.execute_many(
        "INSERT OR IGNORE INTO definition (digest, name, text) VALUES (?, ?, ?)",
        (
            (digest, *table)
            for digest, table in zip(digests, schema.tables, strict=True)
        ),
    )
    ids: dict[bytes, int] = dict(
        _find(database, "SELECT digest, id FROM definition", digests)
    )
    values = (
        schema.name,
        schema.collation,
        _packed([ids[digest] for digest in digests]),
        compact(schema.views),
        compact(schema.uncertain),
    )
    digest = digest_of(*values)
    database.execute(
        "INSERT OR IGNORE INTO schema_image (digest, name, collation, tables, views,"
        " uncertain) VALUES (?, ?, ?, ?, ?, ?)",
        (digest, *values),
    )
    ((_, identity),) = _find(database, "SELECT digest, id FROM schema_image", [digest])
    return int(identity)


def _find(database: Database, select: str, digests: Sequence[bytes]) -> Iterator[Row]:
    for part in _parts(digests):
        marks = ", ".join("?" * len(part))
        yield from database.query(f"{select} WHERE digest IN ({marks})", part)


def _rows_by_id(
    database: Database, select: str, ids: Iterable[int]
) -> dict[int, tuple[Any, ...]]:
    """Return the rows with these ids and digests, complete and verified."""
    requested = dict.fromkeys(ids)
    found: dict[int, tuple[Any, ...]] = {}
    for part in _parts(list(requested)):
        marks = ", ".join("?" * len(part))
        for identity, digest, *values in database.query(f"{select} ({marks})", part):
            if digest_of(*values) != digest:
                raise database.damaged(f"{values[0]!r} has a wrong digest")
            found[identity] = tuple(values)
    if len(found) < len(requested):
        raise database.damaged(
            f"{len(requested) - len(found)} of {len(requested)} definitions are missing"
        )
    return found


def _parts(values: Sequence[object]) -> Iterator[list[object]]:
    rest = iter(values)
    while part := list(islice(rest, PARAMETERS_MAX)):
        yield part


def _drop_others(database: Database, table: str, used: set[int]) -> None:
    rows = database.query(f"SELECT id FROM {table}")  # noqa: S608  # ours
    kept = {identity for (identity,) in rows}
    database.execute_many(
        f"DELETE FROM {table} WHERE id = ?",  # noqa: S608  # ours
        ((identity,) for identity in sorted(kept - used)),
    )
