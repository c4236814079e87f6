"""Random rows of real servers as record batches: what SELECT says, typed."""

from __future__ import annotations

import json
import struct
import time
from collections import Counter
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest
from arrow_dealt import DealtTruth
from arrow_truth import GenericTruth, TypedTruth
from random_reading import Reading, all_rows, random_load

from canal_server.decoder.text.time_zone import read_zone
from canal_server.source.read.binlog_part import FilePosition

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from canal_server.arrow.arrow_batches import generic_batches, typed_batches  # noqa: E402

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from random_schema import RandomTable
    from servers import Server

    from canal_server.arrow.arrow_columns import RequestedColumn

# Zones in which no hour comes twice: SELECT and a text agree on each moment.
ZONES = {"UTC": "UTC0", "Asia/Kolkata": "IST-5:30"}


@pytest.fixture
def zone(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Decode in one of several time zones."""
    name = rng.choice(list(ZONES))
    print("time zone:", name)
    monkeypatch.setenv("TZ", ZONES[name])
    time.tzset()
    read_zone()
    yield name
    monkeypatch.undo()
    time.tzset()
    read_zone()


def test_generic(
    source_server: Server, database: str, rng: random.Random, zone: str
) -> None:
    """Random rows with all kinds of row images equal their entries."""
    _, reading = random_load(source_server, database, rng)
    rows = all_rows(generic_batches("example"), reading.body)
    expected = GenericTruth().read(reading.entries)
    assert len(rows) > 20
    for got, right in zip(rows, expected, strict=True):
        assert got == right


def test_dealt_out_by_key(
    source_server: Server, database: str, rng: random.Random
) -> None:
    """Of all kinds of images, each part has the rows that the hash says, in order."""
    _, reading = random_load(source_server, database, rng)
    count = rng.randint(2, 5)
    expected = DealtTruth(count=count).read(reading.entries)
    for number in range(count):
        batches = generic_batches("example", part=(number, count))
        rows = all_rows(batches, reading.body)
        mine = [row for row in expected if row["part"] == number]
        for got, right in zip(rows, mine, strict=True):
            assert got | {"part": number} == right


@pytest.mark.parametrize("updates", ["both", "envelope"])
def test_typed(
    source_server: Server, database: str, rng: random.Random, zone: str, updates: str
) -> None:
    """Rows of each table are what their texts stand for; folded, what SELECT says."""
    load, reading = random_load(source_server, database, rng, images=("FULL",))
    count = 0
    for table in load.tables:
        columns = reading.columns[table.name]
        truth = TypedTruth(
            schema=database, table=table.name, columns=columns, updates=updates,
            zone=zone,
        )  # fmt: skip
        batches = typed_batches(
            database, table.name, columns, updates=updates, zone=zone, rows_max=10
        )
        rows = all_rows(batches, reading.body)
        for got, right in zip(rows, truth.read(reading.entries), strict=True):
            right.pop("xid")
            assert got == right, table.create()[:2000]
        folded = folded_rows(rows, table, columns, updates)
        selected = selected_rows(source_server, table, columns)
        assert folded == selected, table.create()[:2000]
        count += len(rows)
    assert count > 20


# --- folding ------------------------------------------------------------------------


def folded_rows(
    rows: list[dict[str, Any]],
    table: RandomTable,
    columns: tuple[RequestedColumn, ...],
    updates: str,
) -> Counter[tuple[Any, ...]]:
    """Apply changes to an empty table; a row that goes has to be there."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        before, after = images_of(row, updates)
        if before is not None:
            key = comparable(before, table, columns)
            assert found[key] > 0, row
            found[key] -= 1
        if after is not None:
            found[comparable(after, table, columns)] += 1
    return +found


def images_of(row: dict[str, Any], updates: str) -> tuple[Any, Any]:
    """Return the old and the new values of a row."""
    if updates == "envelope":
        return row["before"], row["after"]
    deleted = row["_change_type"] in ("delete", "update_preimage")
    return (row, None) if deleted else (None, row)


def comparable(
    values: dict[str, Any], table: RandomTable, columns: tuple[RequestedColumn, ...]
) -> tuple[Any, ...]:
    """Return a row's values as a key: floating point by its bits, texts made alike."""
    normal = {column.name: column.kind.normal for column in table.columns}
    found = []
    for column in columns:
        value = values[column.name]
        if isinstance(value, float):
            value = struct.pack("<d", value)
        elif isinstance(value, str):
            value = normal[column.name](value)
        found.append(value)
    return tuple(found)


def selected_rows(
    server: Server, table: RandomTable, columns: tuple[RequestedColumn, ...]
) -> Counter[tuple[Any, ...]]:
    """Return the rows of a table as PyMySQL reads them."""
    kinds = {column.name: column.kind.definition for column in table.columns}
    expressions = ", ".join(
        expression(column, kinds[column.name]) for column in columns
    )
    connection = server.connect(
        init_command="SET SESSION sql_mode = '', time_zone = '+00:00'"
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {expressions} FROM {table.quoted}")
        return Counter(
            comparable(
                {
                    column.name: typed(value, column, kinds[column.name])
                    for column, value in zip(columns, row, strict=True)
                },
                table,
                columns,
            )
            for row in cursor.fetchall()
        )


def expression(column: RequestedColumn, definition: str) -> str:
    """Return how a column is selected: as itself, where the driver gives its value."""
    name = "`" + column.name.replace("`", "``") + "`"
    if column.kind == "bits":
        return f"CAST({name} AS SIGNED)"
    if column.kind == "binary":
        return f"HEX({name})"  # the driver does not know all types of bytes
    if definition.startswith(("float", "double")):
        return (
            f"{name} * 1e0"  # else six digits of it, or as many as it is declared with
        )
    if definition.startswith(("time(", "year")) or definition == "time":
        return f"CAST({name} AS CHAR)"
    if column.kind == "text" and definition.startswith("json"):
        return f"CAST({name} AS CHAR)"
    return name


def typed(  # noqa: PLR0911  # a table of kinds, one line each
    value: Any, column: RequestedColumn, definition: str
) -> Any:
    """Return what the driver gives as the value that a batch has."""
    if value is None:
        return None
    kind = column.kind
    if kind == "wide decimal":
        return f"{value:f}"
    if kind == "date":
        return value if isinstance(value, date) else None  # a text: no such day
    if kind in ("datetime", "timestamp"):
        if not isinstance(value, datetime):
            return None
        return value.replace(tzinfo=UTC) if kind == "timestamp" else value
    if kind == "binary":
        return bytes.fromhex(value)
    if kind.startswith("int"):
        return int(value)
    if kind == "text":
        return value.decode() if isinstance(value, bytes) else value
    return value


def test_json_means_the_same(
    mysql_server: Server, database: str, rng: random.Random
) -> None:
    """A document's text is another than SELECT's, and the same document."""
    mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, doc JSON)")
    start = FilePosition(*mysql_server.binlog_position())
    document = {"a": [1, 2.5, None, True], "ü": {"b": '"\\\n'}}
    text = json.dumps(document).encode().hex()
    mysql_server.execute(
        f"INSERT INTO {database}.t VALUES (1, CONVERT(0x{text} USING utf8mb4))"
    )
    reading = Reading(mysql_server, database, start, ["t"])
    batches = typed_batches(database, "t", reading.columns["t"])
    (row,) = all_rows(batches, reading.body)
    assert json.loads(row["doc"]) == document
