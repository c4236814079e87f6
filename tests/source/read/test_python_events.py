"""Statements and what statement format logs with them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import binlog_bytes as b
import pytest

from canal_server.errors import DecodeError
from canal_server.source.read import python_events

if TYPE_CHECKING:
    import random

CHARSET, SQL_MODE = 4, 1


def charset_status(collation: int) -> bytes:
    """Return the status variable with the client's collation."""
    return bytes((CHARSET,)) + struct.pack("<HHH", collation, 33, 33)


def mode_status(mode: int) -> bytes:
    """Return the status variable with sql_mode."""
    return bytes((SQL_MODE,)) + mode.to_bytes(8, "little")


# --- QUERY --------------------------------------------------------------------------


def test_parts() -> None:
    """Thread, schema and text are parsed; without variables the rest is unknown."""
    found = python_events.parse_query(
        b.query_body(b"CREATE TABLE t (a INT)", b"sch", thread=9)
    )
    text = "CREATE TABLE t (a INT)"
    assert found == python_events.Query(
        9, "sch", text, 0, None, 0, python_events.Variables()
    )
    assert not found.ansi_quotes
    assert not found.no_backslash_escapes


def test_names_are_utf8() -> None:
    """The schema is UTF-8 whatever the client's character set."""
    body = b.query_body(b"x", "schä".encode(), status=charset_status(8))
    assert python_events.parse_query(body).schema == "schä"


def test_variables() -> None:
    """Every existing status variable may precede those that are parsed."""
    others = (
        b"\0" + bytes(4)  # flags
        + b"\2\3abc\0"  # catalog with a terminator
        + b"\3" + bytes(4)  # auto increment
        + b"\5\3UTC"  # time zone
        + b"\6\3abc"  # catalog
        + b"\7" + bytes(2) + b"\x08" + bytes(2) + b"\x09" + bytes(8)
        + b"\x0a" + bytes(4)
        + b"\x0b\4root\x09localhost"  # invoker
        + b"\x0c\2db\0d\xc3\xa4\0" + b"\x0c\xfe"  # schemas, and too many of them
        + b"\x0d" + bytes(3)  # microseconds
        + b"\x0e" + bytes(8) + b"\x0f" + bytes(8) + b"\x10\1"
        + b"\x11" + bytes(8) + b"\x12" + bytes(2) + b"\x13\1" + b"\x14\1"
        + b"\x80" + bytes(3) + b"\x81" + bytes(8)  # MariaDB's
    )  # fmt: skip
    status = others + mode_status(1 << 2 | 1 << 20) + charset_status(28)
    found = python_events.parse_query(b.query_body(b"x", status=status))
    assert found.charset == "gbk"
    assert found.ansi_quotes
    assert found.no_backslash_escapes
    assert found.explicit_timestamp(mariadb=False)


def test_what_decides_a_ddl() -> None:
    """Mode, collations, error and the kind of timestamps form a DDL's context."""
    flags = b"\0" + (1 << 24).to_bytes(4, "little")
    charset = b"\4" + b"\x08\0\x21\0\x3f\0"
    rest = b"\x08\x1c\0" + b"\x12\x2d\0"
    body = b.query_body(b"x", status=flags + mode_status(4) + charset + rest)
    maria = python_events.context_of(
        python_events.parse_query(body), "10.11.19-MariaDB-log"
    )
    assert maria.mariadb
    assert maria.server_version == 101119
    assert maria.explicit_timestamp
    assert maria.sql_mode == 4
    assert (maria.charset_client, maria.collation_connection) == ("latin1", "33")
    assert (maria.collation_server, maria.collation_database) == ("63", "28")
    assert maria.collation_utf8mb4 == "45"
    mysql = python_events.context_of(python_events.parse_query(body), "8.4.1")
    assert mysql.explicit_timestamp is None


def test_unknown_variables_end_the_reading() -> None:
    """Nothing is parsed after a variable of a later server, without an error."""
    status = mode_status(4) + b"\x63" + charset_status(28)
    found = python_events.parse_query(b.query_body(b"x", status=status))
    assert found.ansi_quotes
    assert found.charset is None


@pytest.mark.parametrize(
    "status",
    [b"\5", b"\x0b", b"\x0b\2ab", b"\x0c", b"\x0c\2a\0b", b"\1ab", b"\4", b"\2"],
)
def test_variables_that_end_early(status: bytes) -> None:
    """A truncated variable does not affect the statement."""
    assert python_events.parse_query(b.query_body(b"text", status=status)).sql == "text"


def test_load_data() -> None:
    """EXECUTE_LOAD_QUERY has 13 more bytes before its variables."""
    plain = b.query_body(b"LOAD DATA", b"db", status=charset_status(33))
    body = plain[:13] + bytes(13) + plain[13:]
    found = python_events.parse_query(body, load=True)
    assert (found.sql, found.schema, found.charset) == ("LOAD DATA", "db", "utf8mb3")


def test_statements_cut_anywhere() -> None:
    """A statement without the end of its schema is refused."""
    body = b.query_body(b"text", b"db", status=charset_status(33))
    for cut in range(len(body) - 4):
        with pytest.raises(DecodeError, match="a statement's event ends early"):
            python_events.parse_query(body[:cut])
    assert python_events.parse_query(body[:-4]).sql == ""


@pytest.mark.parametrize(
    ("charset", "text", "sql"),
    [
        ("utf8mb4", "é😀".encode(), "é😀"),
        ("utf8mb3", b"a\xffb", "a\ufffdb"),
        ("latin1", b"\xe9\x80", "é€"),
        ("latin1", b"\x81\xe9", "\x81é"),
        ("gbk", "中文".encode("gbk"), "中文"),
        ("big5", "中".encode("big5"), "中"),
        ("cp932", "日本".encode("cp932"), "日本"),
        ("cp1251", "Привет".encode("cp1251"), "Привет"),
        ("binary", "é".encode(), "é"),
        (None, "é".encode(), "é"),
        (None, b"\xe9", "é"),
        ("unheard_of", b"\xe9", "é"),
        ("utf8mb4", b"a\0b", "a\0b"),
    ],
)
def test_text(charset: str | None, text: bytes, sql: str) -> None:
    """A text is decoded in the client's character set, also after a zero byte."""
    assert python_events.decode_sql(text, charset) == sql


@pytest.mark.parametrize(
    ("text", "charset", "sql"),
    [
        ("CREATE TABLE `ä` (\n  `é` int\n)".encode(), "utf8mb4", None),
        ('CREATE TABLE "ä" (\n  "é" int\n)'.encode(), "utf8mb4", None),
        ("CREATE TABLE `ä` (\n  `é` int\n)".encode("cp1252"), "latin1", None),
        (
            "CREATE TABLE `ä` (`é` int)".encode(),
            "latin1",
            "CREATE TABLE `Ã¤` (`Ã©` int)",
        ),
        ("DROP TABLE `ä` /* generated by server */".encode("cp1252"), "latin1", None),
    ],
)
def test_text_of_the_server(text: bytes, charset: str, sql: str | None) -> None:
    """A CREATE written by the server is UTF-8, all else the client's."""
    found = python_events.parse_query(b.query_body(text, status=charset_status(8)))
    assert found.charset == charset
    expected = text.decode("cp1252" if charset == "latin1" else "utf-8")
    assert found.sql == (sql or expected)


# --- what statement format logs -----------------------------------------------------


def test_integers_of_a_statement() -> None:
    """INTVAR has the next generated number, or the last one."""
    assert (
        python_events.intvar_sql(b"\2" + (7).to_bytes(8, "little"))
        == "SET INSERT_ID = 7"
    )
    assert python_events.intvar_sql(b"\1" + b"\xff" * 8) == (
        "SET LAST_INSERT_ID = 18446744073709551615"
    )


def test_seeds() -> None:
    """RAND has both seeds, spaced as in canal."""
    body = struct.pack("<QQ", 3, 1 << 63)
    assert python_events.rand_sql(body) == (
        "SET SESSION rand_seed1 = 3 , rand_seed2 = 9223372036854775808"
    )


def user_var(
    kind: int, value: bytes, collation: int = 33, tail: bytes = b"\0"
) -> bytes:
    """Return a USER_VAR body for the variable `v`."""
    return (
        struct.pack("<I", 1) + b"v\0" + struct.pack("<BII", kind, collation, len(value))
        + value + tail
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (user_var(0, b"it's"), "'it''s'"),
        (user_var(0, b"a\\b"), "'a\\\\b'"),
        (user_var(0, b"\xe9", 8), "'é'"),
        (user_var(0, b""), "''"),
        (user_var(1, struct.pack("<d", 1.5)), "1.5"),
        (user_var(2, b"\xff" * 8), "-1"),
        (user_var(2, b"\xff" * 8, tail=b"\1"), str((1 << 64) - 1)),
        (user_var(2, b"\5" + bytes(7), tail=b""), "5"),
        (user_var(4, b"\5\2\x80\x7b\x2d"), "123.45"),
        (user_var(4, b"\5\2\x7f\x84\xd2"), "-123.45"),
        (user_var(4, b"\2\2\x85"), "0.05"),
        (user_var(4, b"\x0a\0\x80\x00\x00\x00\x07"), "7"),
        (user_var(4, b"\x14\x0a\x80\0\0\0\1\0\0\0\0\0"), "1.0000000000"),
        (struct.pack("<I", 1) + b"v\1", "NULL"),
    ],
)
def test_user_variables(body: bytes, value: str) -> None:
    """Variables of each type become a SET statement."""
    assert python_events.user_var_sql(body) == f"SET @v := {value}"


def test_names_of_user_variables() -> None:
    """A variable's name is UTF-8."""
    name = "größe".encode()
    body = struct.pack("<I", len(name)) + name + b"\1"
    assert python_events.user_var_sql(body) == "SET @größe := NULL"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\1\0\0\0",
        struct.pack("<I", 1 << 31) + b"v",
        user_var(0, b"abc")[:-3],
        user_var(1, b"1234567"),
        user_var(4, b""),
        user_var(4, b"\5"),
        user_var(4, b"\5\2"),
        user_var(4, b"\5\6\x80\x7b\x2d"),
        user_var(4, b"\0\0\x80"),
        user_var(4, b"\xff\2" + bytes(200)),
        user_var(4, b"\5\2\x80"),
    ],
)
def test_broken_user_variables(body: bytes) -> None:
    """An inconsistent variable is refused."""
    with pytest.raises(DecodeError):
        python_events.user_var_sql(body)


def test_short_events() -> None:
    """Truncated INTVAR and RAND events are refused."""
    for size in range(9):
        with pytest.raises(DecodeError, match="an INTVAR event"):
            python_events.intvar_sql(bytes(size))
    for size in range(16):
        with pytest.raises(DecodeError, match="a RAND event"):
            python_events.rand_sql(bytes(size))


# --- compressed ---------------------------------------------------------------------


def test_any_bytes(rng: random.Random) -> None:
    """Each function parses or refuses any bytes."""
    functions = (
        python_events.parse_query,
        python_events.intvar_sql,
        python_events.rand_sql,
        python_events.user_var_sql,
    )
    read = 0
    for _ in range(4000):
        body = bytes(
            rng.choice((0, 0, 1, 2, 4, 8, 255, rng.randrange(256)))
            for _ in range(rng.randint(0, 60))
        )
        try:
            rng.choice(functions)(body)
            read += 1
        except DecodeError:
            pass
    assert 0 < read < 4000
