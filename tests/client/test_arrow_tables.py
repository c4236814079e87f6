"""Rows of messages as Arrow: the same values as typed changes, in columns."""

# mypy: disable-error-code="union-attr"
# The changes of these tests are rows, which have values.

from __future__ import annotations

import contextlib
import datetime as dt
import struct
from collections import defaultdict
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from client_entries import columns_of, row, statement, transaction
from fix_random import longer
from golden_form import DATA, decode_fields, load_workload

from canal_server.client.arrow_tables import ArrowReader, tables_of
from canal_server.client.change_reader import ChangeReader
from canal_server.client.readers import Readers
from canal_server.client.received_message import Message
from canal_server.client.value_reader import ValueOptions
from canal_server.errors import ProtocolError
from canal_server.protocol.protobuf import varint

WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
ROWS = {"insert", "update", "delete"}


@pytest.fixture(scope="module", params=WORKLOADS)
def recorded(request, tmp_path_factory) -> bytes:
    """Give the body of a recorded workload."""
    workload = load_workload(request.param)
    return decode_fields(workload, tmp_path_factory.mktemp("binlog"))


def body_of(*entries: bytes) -> bytes:
    """Return a body with these entries."""
    return b"".join(b"\x12" + varint(len(each)) + each for each in entries)


def rows_of(body):
    """Return the typed rows of each table: the new ones, of a delete the old one."""
    found = defaultdict(list)
    reader = ChangeReader(ValueOptions())
    for change in reader.read(body):
        if change.kind in ROWS:
            values = change.before if change.kind == "delete" else change.after
            types = change.mysql_types
            found[change.schema, change.table].append(
                {name: expected(value, types[name]) for name, value in values.items()}
            )
    return found


def expected(value: object, mysql_type: str) -> object:
    """Return what a typed value is in Arrow."""
    base = mysql_type.lower().replace("(", " ").split()[0]
    if base == "float" and isinstance(value, float):
        return struct.unpack("f", struct.pack("f", value))[0]
    if base in {"date", "datetime", "timestamp"} and isinstance(value, str):
        return None  # a zero date
    if base == "time":
        return None if value is None else ...  # a text there
    return value


def assert_same(found, requested):
    """Compare a row; a column that was not logged is NULL."""
    for name, value in found.items():
        if name.startswith("_"):
            continue
        if name in requested and requested[name] is ...:
            assert isinstance(value, str)
            continue
        assert value == requested.get(name), name
        if isinstance(value, dt.datetime):
            assert (value.tzinfo is None) == (requested[name].tzinfo is None)


def test_values_are_those_of_changes(recorded):
    """Every row of every recorded workload is there, in order, with its values."""
    requested = rows_of(recorded)
    found: dict[tuple[str, str], list[object]] = defaultdict(list)
    for each in ArrowReader().read(recorded):
        assert each.batch.validate(full=True) is None
        found[each.schema, each.table] += each.batch.to_pylist()
    assert found.keys() == requested.keys()
    for name, rows in requested.items():
        assert len(found[name]) == len(rows)
        for values, typed in zip(found[name], rows, strict=True):
            assert_same(values, typed)


def test_tables_of_recorded_workloads(recorded):
    """Batches of several forms of a table are joined into one table, or not."""
    requested = rows_of(recorded)
    tables = tables_of(ArrowReader().read(recorded))
    assert {name: table.num_rows for name, table in tables.items()} == {
        name: len(rows) for name, rows in requested.items()
    }


def test_pieces_are_the_whole(recorded, rng):
    """A reader that is given entry after entry finds the same rows."""
    reader = ArrowReader()
    entries = [memoryview(each) for each in split(recorded)]
    found = 0
    while entries:
        count = rng.randint(1, 40)
        piece, entries = b"".join(entries[:count]), entries[count:]
        found += sum(each.batch.num_rows for each in reader.read(piece))
    assert found == sum(map(len, rows_of(recorded).values()))


def split(body: bytes) -> list[bytes]:
    """Return the entries of a body, each with its tag and length."""
    from canal_server.client.frame_reader import entries_of  # noqa: PLC0415

    return [b"\x12" + varint(len(each)) + each for each in entries_of(body)]


def test_damaged_bodies(recorded, rng):
    """Whatever the bytes are, they are read or refused with ProtocolError."""
    for _ in range(longer(20)):
        damaged = bytearray(recorded[: rng.randint(1, len(recorded))])
        for _ in range(rng.randint(1, 20)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        reader = ArrowReader()
        for _ in range(2):  # what a damaged body left must not hurt the next one
            with contextlib.suppress(ProtocolError):
                tables_of(reader.read(bytes(damaged)))
        rows = sum(each.batch.num_rows for each in reader.read(body_of(row(1))))
        assert rows == 1


def test_a_message():
    """`to_arrow` returns a table for each schema and table, without the statements."""
    body = body_of(
        *transaction(1, 3),
        statement(9, "ALTER TABLE orders ADD x int"),
        row(10, "persons"),
    )
    message = Message(1, body, Readers())
    tables = message.to_arrow()
    assert tables.keys() == {("shop", "orders"), ("shop", "persons")}
    orders = tables["shop", "orders"]
    assert orders.column("id").to_pylist() == [1, 2, 3]
    assert orders.schema.field("id").type == pa.int32()
    assert orders.column("_change_type").to_pylist() == ["insert"] * 3
    assert orders.column("_position").to_pylist() == [
        f"binlog.000001:{n}" for n in (1, 2, 3)
    ]
    assert "_commit_version" not in orders.schema.names


@pytest.mark.parametrize(
    ("mysql_type", "kind", "most"),
    [
        ("tinyint unsigned", pa.uint8(), 2**8 - 1),
        ("smallint(5) unsigned zerofill", pa.uint16(), 2**16 - 1),
        ("mediumint unsigned", pa.uint32(), 2**24 - 1),
        ("int(10) unsigned", pa.uint32(), 2**32 - 1),
        ("bigint unsigned", pa.uint64(), 2**64 - 1),
        ("bit(64)", pa.uint64(), 2**64 - 1),
    ],
)
def test_numbers_without_a_sign(mysql_type, kind, most):
    """Unsigned integers and bits have Arrow's unsigned types, from 0 to the largest."""
    for value in (0, 1, most // 2 + 1, most):
        (found,) = ArrowReader().read(columns_of((mysql_type, -5, str(value))))
        assert found.batch.column("c0").type == kind
        assert found.batch.column("c0").to_pylist() == [value]
    (found,) = ArrowReader().read(columns_of((mysql_type, -5, None)))
    assert found.batch.column("c0").to_pylist() == [None]


@pytest.mark.parametrize(
    ("mysql_type", "bits"),
    [
        ("tinyint unsigned", 8),
        ("smallint unsigned", 16),
        ("int unsigned", 32),
        ("bigint unsigned", 64),
    ],
)
def test_numbers_beyond_their_type(mysql_type, bits):
    """A number that its type cannot hold is an error that names the column and it."""
    for text in ("-1", str(2**bits)):
        with pytest.raises(ProtocolError, match=rf"column c0 of .*{text}"):
            ArrowReader().read(columns_of((mysql_type, -5, text)))


def test_a_column_twice():
    """A row that has two columns of one name is refused, with the name."""
    body = columns_of(("int", 4, "1"), ("int", 4, "2")).replace(b"c1", b"c0")
    with pytest.raises(ProtocolError, match="column c0 is selected twice"):
        ArrowReader().read(body)


def test_rows_of_an_open_transaction():
    """Rows whose transaction goes on in another message are there at once, in time."""
    reader = ArrowReader()
    begin, *rows, end = transaction(1, 4)
    (first,) = reader.read(body_of(begin, *rows[:2]))
    (second,) = reader.read(body_of(*rows[2:], end))
    assert first.batch.column("id").to_pylist() == [1, 2]
    assert second.batch.column("id").to_pylist() == [3, 4]
    for each in (first, second):
        (time,) = set(each.batch.column("_commit_timestamp").to_pylist())
        assert time.year == 2023


def test_envelopes():
    """An envelope has both images, NULL where there is none."""
    (found,) = ArrowReader(updates="envelope").read(body_of(row(7)))
    (values,) = found.batch.to_pylist()
    assert (values["op"], values["before"], values["after"]) == ("c", None, {"id": 7})


@pytest.mark.parametrize("updates", ["new", ""])
def test_unknown_updates(updates):
    """Another way of showing updates is refused with those that exist."""
    with pytest.raises(
        ValueError, match=f'updates = {updates!r}: expected "postimage"'
    ):
        ArrowReader(updates=updates)


def test_zone():
    """A named zone is used for TIMESTAMP; a fixed offset is refused."""
    Readers(time_zone=ZoneInfo("Europe/Berlin")).arrow("postimage")
    Readers(time_zone=dt.UTC).arrow("postimage")
    fixed = dt.timezone(dt.timedelta(hours=1))
    with pytest.raises(ValueError, match="Arrow needs a named zone"):
        Readers(time_zone=fixed).arrow("postimage")
