"""Rows of one table in its own types: what updates become, and what is refused."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from arrow_entries import FILE, begin, columns, delete, end, insert, statement, update
from arrow_truth import body_of

from canal_server.arrow.arrow_columns import RequestedColumn
from canal_server.errors import ConfigError, DecodeError
from canal_server.model.entry import EventType

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from canal_server.arrow.arrow_batches import typed_batches, typed_schema  # noqa: E402

ID = RequestedColumn("id", "int32")
NAME = RequestedColumn("name", "text")
BLOB = 2004


def rows_of(
    *entries: Any, request: tuple[RequestedColumn, ...] = (ID, NAME), **options: Any
) -> list[dict[str, Any]]:
    """Return the rows that entries of one transaction become."""
    batches = typed_batches("d", "t", request, **options)
    found = list(batches.feed(body_of([begin(1), *entries, end(900)])))
    rest = batches.rest()
    found += [rest] if rest else []
    for batch in found:
        batch.validate(full=True)
    return [row for batch in found for row in batch.to_pylist()]


def picked(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Return some values of each row."""
    return [tuple(row[name] for name in names) for row in rows]


def one(kind: str, text: str | None, *, sql_type: int = 12, mysql_type: str = "",
        precision: int = 0, scale: int = 0, **options: Any) -> Any:  # fmt: skip
    """Return the value that a text becomes."""
    row = columns({"v": text}, sql_types={"v": sql_type}, types={"v": mysql_type})
    request = (RequestedColumn("v", kind, precision, scale),)
    (found,) = rows_of(insert(100, row), request=request, **options)
    return found["v"]


OLD = columns({"id": "1", "name": "old"}, updated=())
NEW = columns({"id": "1", "name": "new"}, updated=["name"])
MOVED = columns({"id": "2", "name": "new"}, updated=["id", "name"])
ALL = (
    insert(100, OLD),
    update(200, (OLD, NEW), (OLD, MOVED)),
    delete(300, NEW),
)
SHOWN = ("_change_type", "id", "name", "_row")


def test_postimage() -> None:
    """An update is the row that it left; a delete the row that it found."""
    rows = rows_of(*ALL)
    assert picked(rows, *SHOWN) == [
        ("insert", 1, "old", 0),
        ("update_postimage", 1, "new", 0),
        ("update_postimage", 2, "new", 1),
        ("delete", 1, "new", 0),
    ]
    assert picked(rows, "_position")[0] == (f"{FILE}:100",)
    assert rows[0]["_commit_version"] == (7 << 32) + 1000
    assert rows[0]["_commit_timestamp"].tzinfo is not None


def test_both() -> None:
    """An update is two rows, with numbers of their own."""
    assert picked(rows_of(*ALL, updates="both"), *SHOWN) == [
        ("insert", 1, "old", 0),
        ("update_preimage", 1, "old", 0),
        ("update_postimage", 1, "new", 1),
        ("update_preimage", 1, "old", 2),
        ("update_postimage", 2, "new", 3),
        ("delete", 1, "new", 0),
    ]


def test_envelope() -> None:
    """A row has both images, each a struct or NULL."""
    rows = rows_of(*ALL, updates="envelope")
    old, new = {"id": 1, "name": "old"}, {"id": 1, "name": "new"}
    assert picked(rows, "op", "before", "after", "_row") == [
        ("c", None, old, 0),
        ("u", old, new, 0),
        ("u", old, {"id": 2, "name": "new"}, 1),
        ("d", new, None, 0),
    ]


@pytest.mark.parametrize("updates", ["postimage", "both"])
def test_split_keys(updates: str) -> None:
    """An update of the key deletes the old one and inserts the new one."""
    rows = rows_of(*ALL, updates=updates, split_keys=True)
    update_rows = picked(rows, *SHOWN)[1:-1]
    assert update_rows[-3:] == [
        ("update_postimage", 1, "new", 1),
        ("delete", 1, "old", 2),
        ("insert", 2, "new", 3),
    ]
    assert len(update_rows) == (4 if updates == "both" else 3)


def test_split_keys_in_envelopes() -> None:
    """The same as two envelopes with one image each."""
    rows = rows_of(*ALL, updates="envelope", split_keys=True)
    assert picked(rows, "op", "_row") == [
        ("c", 0), ("u", 1), ("d", 2), ("c", 3), ("d", 0)
    ]  # fmt: skip
    assert rows[2]["after"] is None
    assert rows[3]["before"] is None


def test_other_tables_are_left_out() -> None:
    """Rows of other tables do not come, and do not count."""
    other = {"schema_name": "D", "table_name": "t"}
    entries = (insert(100, OLD, **other), insert(100, OLD), insert(100, NEW))
    assert picked(rows_of(*entries), "id", "_row") == [(1, 0), (1, 1)]


def test_columns_are_found_by_name() -> None:
    """Order and case of names do not matter; unselected columns are omitted."""
    row = columns({"x": "?", "NAME": "n", "ID": "5"})
    assert picked(rows_of(insert(100, row)), "id", "name") == [(5, "n")]


def test_columns_may_change_from_row_to_row() -> None:
    """A position in a row image may be another column, NULL, or of another type."""
    rows = [
        columns({"id": "1", "name": "a"}),
        columns({"name": None, "id": "2"}),
        columns({"id": "3", "name": ""}),
        columns({"name": "1", "id": "4"}, types={"name": "enum('x','y')"}),
        columns({"id": "5", "name": "2"}, types={"name": "enum('x','y')"}),
        columns({"id": "6", "name": "2"}, types={"name": "enum('y','z')"}),
    ]
    found = rows_of(*(insert(100 + i, row) for i, row in enumerate(rows)))
    assert picked(found, "id", "name") == [
        (1, "a"), (2, None), (3, ""), (4, "x"), (5, "y"), (6, "z")
    ]  # fmt: skip


def test_partial_images_are_refused() -> None:
    """A column that was not logged is not NULL; the error contains the remedy."""
    with pytest.raises(
        DecodeError,
        match=r"column name of d\.t is not in the row image.*binlog_row_image = FULL",
    ):
        rows_of(insert(100, columns({"id": "1"})))


def test_only_images_that_are_used_have_to_be_whole() -> None:
    """Of an update the image before is not needed for the one after."""
    entry = update(100, (columns({"id": "1"}, updated=()), NEW))
    assert picked(rows_of(entry), "id", "name") == [(1, "new")]
    with pytest.raises(DecodeError, match="column name"):
        rows_of(entry, updates="both")


def test_columns_known_to_be_missing() -> None:
    """A column that the table lacks is NULL if declared so; else it is read."""
    entries = insert(100, columns({"id": "1"})), insert(200, OLD)
    assert picked(rows_of(*entries, missing=["NAME"]), "id", "name") == [
        (1, None), (1, "old")
    ]  # fmt: skip
    with pytest.raises(ValueError, match="columns not selected: other"):
        rows_of(missing=["other"])


def test_columns_that_come_twice() -> None:
    """An image with two columns of a name is refused."""
    row = (*columns({"id": "1", "name": "a"}), *columns({"Name": "b"}, first=2))
    with pytest.raises(DecodeError, match=r"column Name of d\.t: twice in one row"):
        rows_of(insert(100, row))


def test_statements_are_handed_back() -> None:
    """A statement goes to the caller, who may end the reading there."""
    seen: list[Any] = []
    entry = statement(300, EventType.ALTER, "alter table t add c int")
    rows = rows_of(insert(100, OLD), entry, insert(400, NEW), on_statement=seen.append)
    assert len(rows) == 2
    assert (seen[0].journal, seen[0].position) == (FILE, 300)
    assert (seen[0].event_type, seen[0].is_ddl) == (EventType.ALTER, True)
    assert seen[0].sql == "alter table t add c int"

    def refuse(statement: Any) -> None:
        raise DecodeError(f"the table changes: {statement.sql}")

    with pytest.raises(DecodeError, match="the table changes"):
        rows_of(entry, on_statement=refuse)


VALUES = [
    ("int8", "-128", -128), ("int16", "32767", 32767), ("int32", "-5", -5),
    ("int64", "-9223372036854775808", -(1 << 63)), ("int32", "0000", 0),
    ("bits", "18446744073709551615", -1), ("bits", "5", 5),
    ("float", "0.1", pytest.approx(0.1, rel=1e-7)), ("double", "1.0E-5", 1e-5),
    ("date", "2024-02-29", date(2024, 2, 29)),
    ("datetime", "9999-12-31 23:59:59.999999",
     datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    ("timestamp", "2024-07-01 12:00:00.5",
     datetime(2024, 7, 1, 12, 0, 0, 500_000, tzinfo=UTC)),
    ("text", "-838:59:59", "-838:59:59"), ("text", "größe 😀", "größe 😀"),
    ("text", "", ""), ("text", None, None), ("int32", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "value"), VALUES)
def test_values(kind: str, text: str | None, value: Any) -> None:
    """Each kind's texts become its values."""
    assert one(kind, text) == value


def test_decimals() -> None:
    """Decimals of up to 38 digits are numbers; longer ones texts with all digits."""
    digits = "9" * 38
    assert one("decimal", digits, precision=38) == Decimal(digits)
    assert one("decimal", "-1.50", precision=10, scale=2) == Decimal("-1.50")
    unsigned = str((1 << 64) - 1)
    assert one("decimal", unsigned, precision=20) == Decimal(unsigned)
    assert one("wide decimal", "-5.0", precision=40, scale=12) == "-5." + "0" * 12
    assert one("wide decimal", "9" * 65, precision=65) == "9" * 65
    with pytest.raises(DecodeError, match=r"STRING \(of a DECIMAL\(40,2\)\)"):
        one("wide decimal", "1.234", precision=40, scale=2)


@pytest.mark.parametrize(
    ("text", "mysql_type", "label"),
    [
        ("1", "enum('a','b')", "a"), ("0", "enum('a','b')", ""),
        ("2", "ENUM('it''s','x,y')", "x,y"), ("0", "set('a','b')", ""),
        ("3", "set('a','b')", "a,b"), ("2", "set('a','b')", "b"),
        (str((1 << 64) - 1), "set(" + ",".join(f"'{i}'" for i in range(64)) + ")",
         ",".join(map(str, range(64)))), ("2", "enum('é','ü') charset latin1", "ü"),
    ],
)  # fmt: skip
def test_labels(text: str, mysql_type: str, label: str) -> None:
    """ENUM and SET, which entries carry as numbers, become their labels."""
    assert one("text", text, mysql_type=mysql_type) == label


@pytest.mark.parametrize(
    ("text", "mysql_type"),
    [("3", "enum('a','b')"), ("4", "set('a','b')"), ("x", "enum('a')")],
)
def test_numbers_without_a_label(text: str, mysql_type: str) -> None:
    """A number without a label is refused."""
    with pytest.raises(DecodeError, match=r"column v of d\.t"):
        one("text", text, mysql_type=mysql_type)


def test_labels_that_are_not_known() -> None:
    """An ENUM without labels cannot be read; the error contains the remedy."""
    with pytest.raises(DecodeError, match="binlog_row_metadata = FULL"):
        one("text", "1", mysql_type="enum")


def test_more_types_than_are_remembered() -> None:
    """Labels are forgotten when there are too many types, and read again."""
    rows = [
        columns({"id": "1", "name": "1"}, types={"name": f"enum('m{n % 300}')"})
        for n in range(700)
    ]
    found = rows_of(*(insert(100, row) for row in rows))
    assert picked(found, "name") == [(f"m{n % 300}",) for n in range(700)]


def test_binary() -> None:
    """Bytes travel as ISO-8859-1, and become bytes again."""
    data = bytes(range(256))
    assert one("binary", data.decode("latin-1"), sql_type=BLOB) == data
    assert one("binary", "", sql_type=BLOB) == b""
    with pytest.raises(DecodeError, match="BINARY in the stream"):
        one("binary", "\u0100", sql_type=BLOB)


@pytest.mark.parametrize(
    ("mysql_type", "text", "value"),
    [
        ("binary(4)", "a\0b", b"a\0b\0"),
        ("BINARY(4)", "", b"\0\0\0\0"),
        ("binary(4)", "abcd", b"abcd"),
        ("binary(2)", "abcd", b"abcd"),  # from before it was made shorter
        ("binary", "", b"\0"),
        ("char(3)", "\xff", b"\xff\0\0"),
        ("binary(99999)", "", b"\0" * 255),  # beyond any server
        ("varbinary(4)", "a", b"a"),
        ("blob", "", b""),
    ],
)
def test_binary_of_a_fixed_length(mysql_type: str, text: str, value: bytes) -> None:
    """Zeros at the end, which the binlog leaves out, are there again."""
    assert one("binary", text, sql_type=BLOB, mysql_type=mysql_type) == value


@pytest.mark.parametrize(
    ("kind", "sql_type", "there"), [("text", BLOB, "STRING"), ("binary", 12, "BINARY")]
)
def test_a_column_that_became_another(kind: str, sql_type: int, there: str) -> None:
    """Text read as bytes, or bytes as text, would be garbage: it is refused."""
    with pytest.raises(
        DecodeError, match=f"has changed here and {there} in the stream"
    ):
        one(kind, "abc", sql_type=sql_type, mysql_type="changed")


@pytest.mark.parametrize(
    ("kind", "text", "there"),
    [("int8", "128", "TINYINT"), ("int16", "-32769", "SMALLINT"),
     ("int32", "2147483648", "INT"), ("int64", "1.5", "BIGINT"),
     ("bits", "-1", "BIGINT"), ("decimal", "1000", r"DECIMAL\(3,0\)"),
     ("wide decimal", "1e5", "STRING .*"), ("float", "x", "FLOAT"),
     ("double", "", "DOUBLE"), ("date", "2024-1-1", "DATE"),
     ("datetime", "now", "TIMESTAMP_NTZ"), ("timestamp", "2024-01-01", "TIMESTAMP")],
)  # fmt: skip
@pytest.mark.parametrize("mysql_type", ["geometry", "varchar(40)"])
def test_values_of_another_type(
    kind: str, text: str, there: str, mysql_type: str
) -> None:
    """An invalid value is reported with column, types, position and remedy."""
    with pytest.raises(
        DecodeError,
        match=rf"column v of d\.t has {re.escape(mysql_type)} here and {there} in the "
        "stream, which cannot hold .*: exclude the column by option columns, or",
    ) as caught:
        one(kind, text, mysql_type=mysql_type, precision=3, scale=0)
    assert repr(text) in str(caught.value)
    assert f"{FILE}:100" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "text", "mysql_type", "value"),
    [
        ("int64", "1062072888.0", "decimal(12,1)", 1062072888),
        ("decimal", "7", "bigint", Decimal("7.00")),
        ("decimal", "1.5E-1", "double", Decimal("0.15")),
        ("double", "0.1", "float", 0.10000000149011612),
        ("datetime", "2024-02-29", "date", datetime(2024, 2, 29)),  # noqa: DTZ001
        ("datetime", "0000-00-00", "date", None),
        ("date", "2024-02-29 00:00:00.0", "datetime(1)", date(2024, 2, 29)),
        ("text", "5.0", "decimal(9,2)", "5.0"),
    ],
)
def test_values_that_the_stream_holds(
    kind: str, text: str, mysql_type: str, value: Any
) -> None:
    """A value of another type is accepted if the stream's type can hold it."""
    assert one(kind, text, mysql_type=mysql_type, precision=9, scale=2) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [("date", "0000-00-00"), ("datetime", "2024-00-00 10:00:00"),
     ("timestamp", "0000-00-00 00:00:00.000")],
)  # fmt: skip
def test_zero_dates(kind: str, text: str) -> None:
    """Invalid dates are NULL, or an error if so configured."""
    assert one(kind, text) is None
    with pytest.raises(DecodeError, match=f"{text}'?: set zeroDates = null"):
        one(kind, text, zero_dates="error")


@pytest.mark.parametrize(
    ("zone", "local", "moment"),
    [
        ("Asia/Kolkata", "2024-01-01 05:30:00", (2024, 1, 1, 0, 0)),
        ("Europe/Berlin", "2024-01-01 01:00:00", (2024, 1, 1, 0, 0)),
        ("Europe/Berlin", "2024-07-01 02:00:00", (2024, 7, 1, 0, 0)),
        ("Europe/Berlin", "2024-10-27 02:30:00", (2024, 10, 27, 0, 30)),
        ("Europe/Berlin", "2024-10-27 03:00:00", (2024, 10, 27, 2, 0)),
        ("Europe/Berlin", "2024-03-31 01:59:59", (2024, 3, 31, 0, 59, 59)),
        ("Europe/Berlin", "2024-03-31 03:00:00", (2024, 3, 31, 1, 0)),
        ("America/New_York", "1970-01-01 00:00:01", (1970, 1, 1, 5, 0, 1)),
    ],
)
def test_zones(zone: str, local: str, moment: tuple[int, ...]) -> None:
    """TIMESTAMP has a zone; of a repeated hour the first is used."""
    year, month, day, hour, minute, second = (*moment, 0)[:6]
    right = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    assert one("timestamp", local, zone=zone) == right


def test_unknown_zone() -> None:
    """A zone that the machine does not know is named."""
    with pytest.raises(ConfigError, match="time zone 'Mars/Crater' is unknown on"):
        rows_of(zone="Mars/Crater")


def test_names_of_metadata_are_reserved() -> None:
    """A column with the name of a metadata column is refused, in any case."""
    request = [ID, RequestedColumn("_ROW", "int32")]
    with pytest.raises(ConfigError, match="column _ROW has the name of a column"):
        typed_schema(request)
    assert "before" in typed_schema(request, updates="envelope").names


def test_no_columns_but_metadata() -> None:
    """A table without selected columns still reports that rows changed."""
    rows = rows_of(insert(100, OLD, NEW), request=())
    assert picked(rows, "_change_type", "_row") == [("insert", 0), ("insert", 1)]
