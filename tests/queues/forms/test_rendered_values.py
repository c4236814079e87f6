"""Random values in JSON, beside what Python makes of them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from fix_random import longer
from row_rules import body_of, table_entry

from canal_server.errors import ProtocolError
from canal_server.queues.forms.debezium_rows import DebeziumRows
from canal_server.queues.forms.maxwell_rows import MaxwellRows
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def maxwell(mysql_type: str, text: str) -> Any:
    """Return a value as Maxwell's messages have it; numbers with all their digits."""
    form = MaxwellRows(lambda *_: Route("x"))
    columns = {"id": ("int", "1"), "a": (mysql_type, text)}
    ((_, _, value, _, _),) = form.convert(1, body_of(table_entry(columns)), 2)
    return json.loads(value or b"", parse_float=str)["data"]["a"]


def debezium(mysql_type: str, text: str, *, is_key: bool = False) -> Any:
    """Return a value as Debezium's messages have it."""
    form = DebeziumRows(lambda *_: Route("x"), name="srv")
    columns = {"a": (mysql_type, text)}
    if not is_key:
        columns = {"id": ("int", "1"), **columns}
    ((_, _, value, _, _),) = form.convert(1, body_of(table_entry(columns)), 2)
    return json.loads(value or b"")["after"]["a"]


def test_integers(rng: random.Random) -> None:
    """They have no zeros before them, as ZEROFILL has."""
    for _ in range(longer(200)):
        number = rng.randrange(-(2**63), 2**63) >> rng.randrange(64)
        text = f"-{-number:09}" if number < 0 else f"{number:09}"
        assert maxwell("bigint", text) == debezium("bigint", text) == number


def test_decimals(rng: random.Random) -> None:
    """All digits are there, in a number, and in bytes as few as hold it."""
    for _ in range(longer(200)):
        digits = rng.randint(1, 65)
        scale = rng.randint(0, min(digits, 30))
        unscaled = rng.randrange(-(10**digits), 10**digits)
        shown = str(abs(unscaled)).rjust(scale + 1, "0")
        text = shown[: len(shown) - scale] + (f".{shown[-scale:]}" if scale else "")
        text = f"-{text}" if unscaled < 0 else text
        mysql_type = f"decimal({digits},{scale})"
        assert str(maxwell(mysql_type, text)) == text
        data = base64.b64decode(debezium(mysql_type, text))
        assert int.from_bytes(data, "big", signed=True) == unscaled
        shorter = int.from_bytes(data[1:], "big", signed=True)
        assert len(data) == 1 or shorter != unscaled


def test_bytes(rng: random.Random) -> None:
    """They are base64; a BINARY has its full length, which the server cuts off."""
    for _ in range(longer(200)):
        data = rng.randbytes(rng.randint(0, 40))
        text = data.decode("latin-1")
        for found in (maxwell("blob", text), debezium("varbinary(40)", text)):
            assert base64.b64decode(found) == data
        assert base64.b64decode(maxwell("binary(40)", text)) == data.ljust(40, b"\0")


def test_bits(rng: random.Random) -> None:
    """A number in Maxwell's messages; in Debezium's, bytes, the lowest first."""
    for _ in range(longer(200)):
        bits = rng.randint(2, 64)
        number = rng.randrange(2**bits)
        assert maxwell(f"bit({bits})", str(number)) == number
        found = base64.b64decode(debezium(f"bit({bits})", str(number)))
        assert found == number.to_bytes((bits + 7) // 8, "little")


def test_labels(rng: random.Random) -> None:
    """Labels may have quotes, commas, any characters; a SET has up to 64."""
    labels = [f"l'{number}" for number in range(63)] + ['"ü,']
    quoted = ",".join("'" + each.replace("'", "''") + "'" for each in labels)
    for _ in range(longer(50)):
        number = rng.randrange(1, 65)
        bits = rng.getrandbits(64)
        assert maxwell(f"enum({quoted})", str(number)) == labels[number - 1]
        chosen = [each for at, each in enumerate(labels) if bits >> at & 1]
        assert maxwell(f"set({quoted})", str(bits)) == chosen
        assert debezium(f"set({quoted})", str(bits)) == ",".join(chosen)


def test_moments(rng: random.Random) -> None:
    """Microseconds or milliseconds since 1970, of all years that a calendar has."""
    for _ in range(longer(300)):
        moment = datetime(1, 1, 1, tzinfo=UTC) + timedelta(
            days=rng.randrange(3_652_059), microseconds=rng.randrange(86_400_000_000)
        )
        us = (moment - EPOCH) // MICROSECOND
        digits = rng.randint(0, 6)
        step = 10 ** (6 - digits)
        us -= us % step
        shown = EPOCH + us * MICROSECOND
        text = f"{shown.year:04}-{shown:%m-%d %H:%M:%S}"
        if digits:
            text += f".{shown.microsecond // step:0{digits}}"
        mysql_type = f"datetime({digits})" if digits else "datetime"
        expected = us if digits > 3 else us // 1000
        assert debezium(mysql_type, text) == expected
        assert debezium("date", text[:10]) == (shown.date() - date(1970, 1, 1)).days
        stamp = debezium(mysql_type.replace("datetime", "timestamp"), text)
        assert stamp == text.replace(" ", "T") + "Z"


def test_times(rng: random.Random) -> None:
    """Microseconds of up to 838 hours, forward and back."""
    for _ in range(longer(200)):
        digits = rng.randint(0, 6)
        step = 10 ** (6 - digits)
        us = rng.randrange(838 * 3_600_000_000) // step * step
        second, part = divmod(us, 1_000_000)
        text = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        if digits:
            text += f".{part // step:0{digits}}"
        sign = rng.choice(("", "-"))
        expected = -us if sign else us
        assert debezium(f"time({digits})", sign + text) == expected
        assert maxwell(f"time({digits})", sign + text) == sign + text


def test_wrapped() -> None:
    """An unsigned BIGINT beyond a `long` is negative in Debezium's messages alone."""
    for number in (2**63 - 1, 2**63, 2**64 - 1):
        wrapped = number - 2**64 if number >= 2**63 else number
        assert debezium("bigint unsigned", str(number)) == wrapped
        assert maxwell("bigint unsigned", str(number)) == number


@pytest.mark.parametrize(
    ("mysql_type", "text"),
    [
        ("date", "2026-00-10"),
        ("datetime", "0000-00-00 00:00:00"),
        ("date", "2026-02-30"),
    ],
)
def test_dates_that_no_calendar_has(mysql_type: str, text: str) -> None:
    """They are null, in a key 1970-01-01; Maxwell's messages have the text."""
    assert debezium(mysql_type, text) is None
    assert debezium(mysql_type, text, is_key=True) == 0
    assert maxwell(mysql_type, text) == text


@pytest.mark.parametrize(
    ("mysql_type", "text"),
    [
        ("bigint", ""), ("bigint", "-"), ("bigint", "1 "), ("decimal(5,1)", "."),
        ("decimal(5,1)", "1."), ("decimal(5,1)", "1.2.3"), ("decimal(5,1)", "--1"),
        ("double", "1e5"), ("double", "E5"), ("double", "1."), ("double", "- 1"),
        ("bit(9)", "-1"), ("blob", "中"), ("enum('a')", "a"), ("set('a')", "-1"),
        ("time", "1:2"), ("time", "1:2:3:4"), ("time", "1:2:3.x"), ("timestamp", "now"),
    ],
)  # fmt: skip
def test_what_does_not_match_its_type(mysql_type: str, text: str) -> None:
    """It never gets into a message: the error names the column."""
    with pytest.raises(ProtocolError, match=r"column shop\.orders\.a of type "):
        debezium(mysql_type, text)
