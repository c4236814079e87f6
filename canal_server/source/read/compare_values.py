"""Values of mysql-replication in canal's text form.

The rules follow canal's documentation and share no code with the compiled decoder:
otherwise an error that both make would go unnoticed.
"""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from canal_server.decoder.rows.layout_plan import base_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.model.columns_known import ColumnMeta, TableMeta

    _Form = Callable[[Any, ColumnMeta, str | None], str | None]

# Values that mysql-replication is known to read differently from what the server means.
# A pair of values with one of these reasons is counted, and is not a difference.
KNOWN: Final = {
    "charset": "text in a character set for which Python has no codec",
    "zero date": "dates with a zero in year, month or day are None",
    "zero year": "the year 0000 is 1900",
    "zero timestamp": "the timestamp 0 is 1970-01-01",
    "late timestamp": "timestamps from 2038 on wrap around",
    "negative fraction": "the fraction of a negative time is not complemented",
    "json": "opaque values, and JSON null, have no form in the library",
    "json difference": "of a partial update only the first difference is read",
    "address": "MariaDB's UUID, INET4 and INET6 are returned as their stored bytes",
    "unreadable": "events that the library cannot read: VECTOR, compressed columns",
    "not understood": "the library raises an error for the event",
    "compressed": "compressed transactions and events are skipped",
}

_CODECS: Final = {
    "utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ascii": "ascii",
    "latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9",
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257",
    "koi8r": "koi8_r", "ucs2": "utf-16-be", "utf16": "utf-16-be",
    "utf16le": "utf-16-le", "utf32": "utf-32-be", "gbk": "gbk", "gb18030": "gb18030",
    "euckr": "euc_kr",
}  # fmt: skip
_ADDRESSES: Final = frozenset({"uuid", "inet4", "inet6"})
_INTEGERS: Final = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "enum"}
)
_GROUP_DIGITS: Final = 9  # of a packed decimal
_FLOAT_DIGITS_MIN: Final = 2
_FLOAT_DIGITS_MAX: Final = 17  # enough to distinguish every 64-bit number
_PLAIN_FLOATS: Final = (
    Decimal("1e-3"),
    Decimal("1e7"),
)  # Java writes these without an exponent
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # as the library has it
_WRAPPED: Final = dt.timedelta(0)


class Known(Exception):  # noqa: N818  # not an error: a reason not to compare
    """The library's value cannot be compared; the argument is a key of KNOWN."""


def text_of(value: Any, column: ColumnMeta, ours: str | None) -> str | None:
    """Return a value of the library as canal's text.

    `ours` is used to recognize known differences. Raises Known.
    """
    base = base_type(column.mysql_type)
    if value is None:
        return _none(base, ours)
    if base in _INTEGERS:
        return str(value)
    if base in ("float", "double"):
        return java_float(value, single=base == "float")
    form = _FORMS.get(base)
    if form is not None:
        return form(value, column, ours)
    return _bytes(value, column, base)


def _none(base: str, ours: str | None) -> str | None:
    if ours is None:
        return None
    if base in ("date", "datetime") and ("-00" in ours or ours.startswith("0000")):
        raise Known("zero date")
    if base == "set" and ours == "0":
        return "0"  # the library returns None for the empty set
    if base == "json":
        raise Known("json")
    return None


def is_readable(meta: TableMeta) -> bool:
    """Return whether the library reads the rows of a table."""
    return not any(
        base_type(column.mysql_type) == "vector" or "COMPRESSED" in column.mysql_type
        for column in meta.columns
    )


def decimal_text(value: Decimal, scale: int) -> str:
    """Return canal's text, without a last group of digits that is zero."""
    text = f"{value:.{scale}f}"
    if scale == 0:
        return text
    whole, _, digits = text.partition(".")
    full = scale // _GROUP_DIGITS * _GROUP_DIGITS
    if not digits[full:].strip("0"):
        digits = digits[:full] or "0"
    if not (whole + digits).strip("-0"):
        whole = whole.lstrip("-")
    return f"{whole}.{digits}"


def java_float(value: float, *, single: bool) -> str:
    """Return a number as Java's Float or Double prints it.

    Of the decimals with two or more digits that parse to exactly this number, it is a
    shortest one; of those the nearest; of two nearest ones the even one.
    """
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    exact = Decimal(value).copy_abs()  # abs() would round it
    number = next(
        nearest
        for places in range(_FLOAT_DIGITS_MIN, _FLOAT_DIGITS_MAX + 1)
        if (nearest := _nearest(exact, places, single=single)) is not None
    )
    sign = "-" if value < 0 else ""
    low, high = _PLAIN_FLOATS
    if low <= exact < high:
        whole, _, fraction = f"{number:f}".partition(".")
        return f"{sign}{whole}.{fraction.rstrip('0') or '0'}"
    figures = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return f"{sign}{figures[0]}.{figures[1:] or '0'}E{number.adjusted()}"


def _nearest(exact: Decimal, places: int, *, single: bool) -> Decimal | None:
    """Return the nearest decimal with that many digits that parses to the number."""
    read = _as_single if single else float
    candidates = [
        Context(places, rounding).plus(exact)
        for rounding in (ROUND_FLOOR, ROUND_CEILING)
    ]
    alike = [number for number in candidates if read(number) == float(exact)]
    return min(
        alike,
        key=lambda number: (abs(number - exact), number.as_tuple().digits[-1] % 2),
        default=None,
    )


def _as_single(number: Decimal) -> float:
    try:
        single: float = struct.unpack("<f", struct.pack("<f", float(number)))[0]
    except OverflowError:  # rounded up beyond the largest
        return float("inf")
    return single


def _decimal(value: Decimal, column: ColumnMeta, _: str | None) -> str:
    _, _, scale = _arguments(column).partition(",")
    return decimal_text(value, int(scale or 0))


def _year(value: int, _: ColumnMeta, ours: str | None) -> str:
    if ours == "0000":
        raise Known("zero year")
    return f"{value:04}"


def _bit(value: str, _column: ColumnMeta, _: str | None) -> str:
    return str(int(value, 2))


def _set(value: set[int], _column: ColumnMeta, _: str | None) -> str:
    return str(sum(1 << label for label in value))


def _date(value: dt.date, _column: ColumnMeta, _: str | None) -> str:
    return value.isoformat()


def _datetime(value: dt.datetime, column: ColumnMeta, _: str | None) -> str:
    return _moment(value, column)


def _timestamp(value: dt.datetime, column: ColumnMeta, ours: str | None) -> str:
    if ours is not None and ours.startswith("0000"):
        raise Known("zero timestamp")
    if value < _EPOCH:
        raise Known("late timestamp")
    local = value.replace(tzinfo=dt.UTC).astimezone()
    return _moment(local.replace(tzinfo=None), column)


def _moment(value: dt.datetime, column: ColumnMeta) -> str:
    places = int(_arguments(column) or 0)
    text = value.strftime("%m-%d %H:%M:%S")
    fraction = f".{value.microsecond:06}"[: places + 1] if places else ""
    return f"{value.year:04}-{text}{fraction}"


def _time(value: dt.timedelta, column: ColumnMeta, ours: str | None) -> str:
    places = int(_arguments(column) or 0)
    if ours is not None and ours.startswith("-") and places:
        raise Known("negative fraction")
    size = abs(value)
    seconds = size.days * 86400 + size.seconds
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    fraction = f".{size.microseconds:06}"[: places + 1] if places else ""
    return ("-" if value < _WRAPPED else "") + clock + fraction


def _json(value: Any, _column: ColumnMeta, ours: str | None) -> str | None:
    """Return ours when both are the same document, else the library's."""
    if ours is None:
        return repr(value)
    try:
        known = json.loads(ours)
    except ValueError:
        raise Known("json difference") from None
    return ours if _same_json(known, value) else repr(value)


def _same_json(ours: Any, theirs: Any) -> bool:
    """Return whether two documents are equal; raises Known where one has no form."""
    if isinstance(theirs, dict):
        return (
            isinstance(ours, dict)
            and len(ours) == len(theirs)
            and all(
                key.decode("utf-8", "replace") in ours
                and _same_json(ours[key.decode("utf-8", "replace")], item)
                for key, item in theirs.items()
            )
        )
    if isinstance(theirs, list):
        return (
            isinstance(ours, list)
            and len(ours) == len(theirs)
            and all(map(_same_json, ours, theirs))
        )
    if isinstance(theirs, bytes):
        return bool(ours == theirs.decode("utf-8", "replace"))
    if isinstance(theirs, bool) or theirs is None:
        return ours is theirs
    if isinstance(theirs, int | float):
        return not isinstance(ours, bool) and bool(ours == theirs)
    if isinstance(theirs, Decimal):
        return isinstance(ours, int | float) and float(theirs) == float(ours)
    raise Known("json")


def _bytes(value: bytes | str, column: ColumnMeta, base: str) -> str:
    if base in _ADDRESSES:
        raise Known("address")
    if isinstance(value, str):
        return value  # empty: needs no codec
    if column.charset is None or column.charset == "binary":
        return value.decode("latin-1")
    codec = _CODECS.get(column.charset)
    if codec is None:
        raise Known("charset")
    try:
        return value.decode(codec)
    except UnicodeDecodeError:
        raise Known("charset") from None


def _arguments(column: ColumnMeta) -> str:
    """Return what is in the parentheses of a column's type."""
    return column.mysql_type.partition("(")[2].partition(")")[0]


_FORMS: Final[dict[str, _Form]] = {
    "decimal": _decimal,
    "year": _year,
    "bit": _bit,
    "set": _set,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "json": _json,
}
