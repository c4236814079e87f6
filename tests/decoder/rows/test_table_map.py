"""TABLE_MAP events: names, types, optional metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import binlog_bytes as b
import pytest

from canal_server.decoder.rows import table_map as tm
from canal_server.decoder.rows.table_map import parse_table_map
from canal_server.decoder.rows.table_map_columns import has_names
from canal_server.errors import DecodeError

if TYPE_CHECKING:
    import random

INT = (tm.LONG, b"")
TEXT = (tm.VARCHAR, b"\x28\0")


def field(kind: int, data: bytes) -> bytes:
    """Return one field of the optional metadata."""
    return bytes((kind,)) + b.packed(len(data)) + data


def columns_of(
    columns: list[tuple[int, bytes]], *fields: bytes
) -> tuple[tm.MappedColumn, ...]:
    """Return the columns of a table map with these optional fields."""
    return parse_table_map(b.table_map_body(columns, optional=b"".join(fields))).columns


def test_names() -> None:
    """Schema and table are UTF-8; the table's number has six bytes."""
    found = parse_table_map(
        b.table_map_body([INT], table_id=0xABCDEF123456, schema="sché", table="表")
    )
    assert (found.table_id, found.schema, found.table) == (
        0xABCDEF123456,
        "sché",
        "表",
    )
    assert str(found) == "sché.表"


def test_types_and_metadata() -> None:
    """Each type consumes its bytes of metadata."""
    columns = [
        (tm.TINY, b""), (tm.SHORT, b""), (tm.INT24, b""), (tm.LONG, b""),
        (tm.LONGLONG, b""), (tm.FLOAT, b"\4"), (tm.DOUBLE, b"\x08"),
        (tm.NEWDECIMAL, b"\x0a\2"), (tm.BIT, b"\1\1"), (tm.TIMESTAMP, b""),
        (tm.DATETIME, b""), (tm.TIME, b""), (tm.TIMESTAMP2, b"\6"),
        (tm.DATETIME2, b"\0"), (tm.TIME2, b"\3"), (tm.DATE, b""), (tm.YEAR, b""),
        (tm.VARCHAR, b"\xe8\3"), (tm.VAR_STRING, b"\x0a\0"), (tm.STRING, b"\xfe\x28"),
        (tm.BLOB, b"\2"), (tm.GEOMETRY, b"\4"), (tm.JSON, b"\4"), (tm.VECTOR, b"\4"),
        (tm.BLOB_COMPRESSED, b"\2"), (tm.VARCHAR_COMPRESSED, b"\x64\0"),
    ]  # fmt: skip
    found = columns_of(columns)
    assert [(each.type, each.metadata) for each in found] == columns


def test_enum_and_set_hide_in_strings() -> None:
    """The real type of a STRING stands in its metadata."""
    found = columns_of([(tm.STRING, b"\xf7\1"), (tm.STRING, b"\xf8\4")])
    assert [each.type for each in found] == [tm.ENUM, tm.SET]


@pytest.mark.parametrize(
    ("metadata", "size"), [(b"\xfe\x28", 40), (b"\xee\x00", 256), (b"\xce\xfc", 1020)]
)
def test_bytes_of_a_string(metadata: bytes, size: int) -> None:
    """The length of a long CHAR spreads over both bytes."""
    assert columns_of([(tm.STRING, metadata)])[0].string_bytes == size


def signs(*kinds: int, bits: bytes, **server: Any) -> list[tuple[bool | None, bool]]:
    """Return sign and certainty of columns, with these bits of signs."""
    columns = [(kind, b"\5\2" if kind == tm.NEWDECIMAL else b"") for kind in kinds]
    body = b.table_map_body(columns, optional=field(1, bits))
    return [
        (each.unsigned, each.is_sign_known)
        for each in parse_table_map(body, **server).columns
    ]


@pytest.mark.parametrize(
    ("server", "bits"),
    [
        # As servers wrote them for the columns below.
        ({"version": 80015}, 0b1011_0000),
        ({"version": 90704}, 0b1101_1100),
        ({"version": 80029}, 0b1101_1100),
        ({"mariadb": True}, 0b1101_1100),
        ({"mariadb": True, "version": 100500}, 0b1101_1100),
        ({}, 0b1101_1100),
        ({"version": 80020}, 0b1101_1100),
    ],
)
def test_signs_beside_years(server: dict[str, Any], bits: int) -> None:
    """YEAR has a bit in the list of signs, but not in old releases.

    Without the release, the bits themselves show it in most tables.
    """
    kinds = (tm.YEAR, tm.INT24, tm.LONG, tm.YEAR, tm.LONGLONG, tm.NEWDECIMAL, tm.DOUBLE)
    body = b.table_map_body(
        [(kind, {tm.NEWDECIMAL: b"\5\2", tm.DOUBLE: b"\x08"}.get(kind, b""))
         for kind in kinds],
        optional=field(1, bytes((bits,))),
    )  # fmt: skip
    columns = parse_table_map(body, **server).columns
    found = [each.unsigned for each in columns if each.type != tm.YEAR]
    assert found == [True, False, True, True, False]
    assert all(each.is_sign_known for each in columns)


def test_signs_that_are_not_certain() -> None:
    """Where the bits allow both, the release decides, else the known columns do."""
    both = {"bits": b"\x80"}  # of YEAR, or of the number beside it
    assert signs(tm.YEAR, tm.LONG, version=80015, **both)[1] == (True, True)
    assert signs(tm.YEAR, tm.LONG, version=80401, **both)[1] == (False, True)
    assert signs(tm.YEAR, tm.LONG, version=80020, **both)[1] == (False, False)
    assert signs(tm.LONG, tm.YEAR, version=80020, bits=b"\xc0")[0] == (True, True)
    # Those in front of the first YEAR are certain in any case.
    before = signs(tm.LONG, tm.YEAR, tm.SHORT, version=80020, bits=b"\xc0")
    assert [each[1] for each in before] == [True, True, False]


def test_uncertain_signs_are_no_full_metadata() -> None:
    """Columns are not made of names and a guess."""
    columns = [(tm.YEAR, b""), INT]
    optional = field(1, b"\x80") + field(4, b"\1y\1n")
    body = b.table_map_body(columns, optional=optional)
    assert has_names(parse_table_map(body, version=80401))
    assert not has_names(parse_table_map(body, version=80020))


def test_many_columns() -> None:
    """More columns than one byte can count are read."""
    found = columns_of([INT] * 4096)
    assert len(found) == 4096


def test_signedness_counts_numbers_only() -> None:
    """The bits of signedness belong to the numeric columns, the first the highest."""
    columns = [INT, TEXT, (tm.TINY, b""), (tm.NEWDECIMAL, b"\x0a\2"), (tm.YEAR, b"")]
    found = columns_of(columns, field(1, b"\x50"))
    assert [each.unsigned for each in found] == [False, None, True, False, True]


def test_signedness_that_ends_early() -> None:
    """Columns without a bit are not known to be unsigned."""
    found = columns_of([INT] * 9, field(1, b"\x80"))
    assert [each.unsigned for each in found] == [True, *[False] * 7, None]


def test_default_collation() -> None:
    """A common collation with exceptions: each names a text column by its index."""
    columns = [TEXT, INT, TEXT, TEXT]
    found = columns_of(columns, field(2, b"\xfc\xff\0" + b"\1\x08" + b"\x63\x09"))
    assert [each.collation for each in found] == [255, None, 8, 255]


def test_collation_of_each_column() -> None:
    """A list with a collation for each text column."""
    found = columns_of([TEXT, INT, TEXT], field(3, b"\x08\xfc\xff\0"))
    assert [each.collation for each in found] == [8, None, 255]


def test_collations_of_labels() -> None:
    """ENUM and SET have lists of their own, in both forms."""
    columns = [TEXT, (tm.STRING, b"\xf7\1"), (tm.STRING, b"\xf8\1")]
    found = columns_of(columns, field(2, b"\x21"), field(10, b"\x08\1\x3f"))
    assert [each.collation for each in found] == [0x21, 8, 0x3F]
    found = columns_of(columns, field(3, b"\x21"), field(11, b"\x09\x0a"))
    assert [each.collation for each in found] == [0x21, 9, 10]


def test_names_of_columns() -> None:
    """Names are UTF-8, in the order of the columns."""
    found = columns_of([INT, TEXT], field(4, b"\2id\4n\xc3\xa4m"))
    assert [each.name for each in found] == ["id", "näm"]


def test_keys() -> None:
    """The primary key's columns, with prefixes or without."""
    found = columns_of([INT, INT, INT], field(8, b"\2\0"))
    assert [each.is_key for each in found] == [True, False, True]
    found = columns_of([INT, TEXT, INT], field(9, b"\1\x0a\2\0"))
    assert [each.is_key for each in found] == [False, True, True]
    assert columns_of([INT])[0].is_key is None


def test_unknown_metadata_is_skipped() -> None:
    """Fields of later servers are skipped by their length."""
    found = columns_of([INT], field(99, bytes(300)), field(4, b"\2id"))
    assert found[0].name == "id"


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        (tm.TIMESTAMP2, b"\7"),
        (tm.DATETIME2, b"\xff"),
        (tm.TIME2, b"\x0a"),
        (tm.BIT, b"\1\x08"),
        (tm.BIT, b"\0\0"),
        (tm.NEWDECIMAL, b"\x42\2"),
        (tm.NEWDECIMAL, b"\x05\6"),
        (tm.STRING, b"\xf7\0"),
        (tm.STRING, b"\xf8\x09"),
        (tm.BLOB, b"\5"),
        (tm.JSON, b"\0"),
        (tm.TYPED_ARRAY, b""),
    ],
)
def test_impossible_metadata(kind: int, metadata: bytes) -> None:
    """Metadata that no column can have is refused: the row loop relies on it."""
    with pytest.raises(DecodeError):
        columns_of([(kind, metadata)])


def test_cut_anywhere() -> None:
    """A truncated table map is refused, or only misses optional fields."""
    optional = field(1, b"\x80") + field(3, b"\x21") + field(4, b"\1a\1b")
    body = b.table_map_body([INT, TEXT], optional=optional)
    fewest = len(body) - len(optional)
    for cut in range(len(body)):
        try:
            found = parse_table_map(body[:cut])
        except DecodeError:
            continue
        assert cut >= fewest
        assert len(found.columns) == 2


def test_any_bytes(rng: random.Random) -> None:
    """However a table map is damaged, it is read or refused."""
    optional = field(1, b"\x80") + field(2, b"\x21\0\x08") + field(4, b"\1a\1b")
    optional += field(9, b"\0\1") + field(10, b"\x21")
    body = b.table_map_body([INT, TEXT, (tm.STRING, b"\xf7\1")], optional=optional)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(body))] = rng.randrange(256)
        try:
            parse_table_map(bytes(damaged))
        except DecodeError:
            refused += 1
    assert 0 < refused < 3000
