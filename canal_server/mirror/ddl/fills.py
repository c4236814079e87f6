"""The value of existing rows in a new column: its default, as a text.

The text has the form of entries. Only what is certain without a query to the server
counts: a constant, in the form in which it is stored.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from canal_server.arrow.arrow_columns import requested_column
from canal_server.mirror.settings.table_values import TEXT_TYPES
from canal_server.model.enum_labels import labels_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.model.columns_known import ColumnMeta

_STRING: Final = re.compile(r"'((?:[^'\\]|'')*)'|\"((?:[^\"\\]|\"\")*)\"", re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_BINARY: Final = re.compile(r"b'([01]+)'|0b([01]+)", re.IGNORECASE)
_INTEGER: Final = re.compile(r"([+-]?)0*(\d+)(?:\.0*)?")
_FRACTION: Final = re.compile(r"(.*?)(?:\.(\d{1,6}))?")
_TIME: Final = re.compile(r"-?\d{2,3}:[0-5]\d:[0-5]\d")
_DIGITS_OF_FLOAT: Final = 6
_PRECISION: Final = re.compile(r"\((\d+)")
_EXACT: Final = Context(prec=65)  # digits of a DECIMAL
_BYTES: Final = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")


class NotConstantError(Exception):
    """The value of existing rows is unknown; the message says why."""


def fill_of(column: ColumnMeta, default: str | None) -> str | None:
    """Return the value of existing rows, None for NULL.

    `default` is the statement's text, None if it has no default. Raises
    NotConstantError.
    """
    value = None if default is None else _literal(default)
    if value is None:
        return None if column.nullable else _implicit(column)
    if "\ufffd" in value:
        raise NotConstantError("its default has another character set")
    base, kind = _base(column), requested_column(column).kind
    reader = _TEXT_READERS.get(base, _READERS.get(kind))
    if reader is None or kind == "binary":
        raise NotConstantError(
            f"the text of a default does not determine the value of a {base}"
        )
    return reader(value, column)


def _base(column: ColumnMeta) -> str:
    return re.split(r"[( ]", column.mysql_type.lower(), maxsplit=1)[0]


def _literal(text: str) -> str | None:
    """Return the value of a constant, None for NULL."""
    word = text.strip()
    folded = word.upper()
    if folded == "NULL":
        return None
    if folded in ("TRUE", "FALSE"):
        return "1" if folded == "TRUE" else "0"
    for prefix in ("DATE", "TIMESTAMP", "TIME"):
        if re.match(rf"{prefix}\s*['\"]", folded):
            word = word[len(prefix) :].strip()
            break
    found = _STRING.fullmatch(word)
    if found:
        quote = word[0]
        return str(found[1] if quote == "'" else found[2]).replace(quote * 2, quote)
    if _NUMBER.fullmatch(word):
        return word
    bits = _BINARY.fullmatch(word)
    if bits:
        return str(int(bits[1] or bits[2], 2))
    raise NotConstantError("its default is not a constant")


def _implicit(column: ColumnMeta) -> str | None:
    """Return the value of rows in a NOT NULL column without a default."""
    kind = requested_column(column).kind
    base = _base(column)
    if base in (*TEXT_TYPES, *_BYTES, "set"):
        return ""
    if base == "enum":
        first = labels_of(column.mysql_type)[:1]
        if first and isinstance(first[0], str):
            return first[0]
    if base == "time":
        return _time("00:00:00", column)
    if kind in ("int8", "int16", "int32", "int64", "bits", "float", "double"):
        return "0"
    if kind in ("decimal", "wide decimal"):
        return _decimal("0", column)
    if kind in ("date", "datetime", "timestamp"):
        return None  # the zero date, for which the lake has NULL
    raise NotConstantError(f"the value of a {base} without a default is unknown")


# --------------------------------------------------------------------------------
# Values by their kinds
# --------------------------------------------------------------------------------


def _whole(value: str, _column: ColumnMeta) -> str:
    found = _INTEGER.fullmatch(value.strip())
    if found is None:
        raise NotConstantError(f"its default {value[:40]!r} is not an integer")
    number = int(found[1] + found[2])
    return str(number)


def _year(value: str, column: ColumnMeta) -> str:
    number = _whole(value, column)
    if len(number) != 4 and number != "0":  # noqa: PLR2004  # other forms are converted
        raise NotConstantError(
            f"its default {value[:40]!r} is not a year of four digits"
        )
    return number


def _decimal(value: str, column: ColumnMeta) -> str:
    scale = requested_column(column).scale
    try:
        number = Decimal(value.strip())
        exact = _EXACT.quantize(number, Decimal(1).scaleb(-scale)) if number else None
    except InvalidOperation:
        raise NotConstantError(f"its default {value[:40]!r} is not a number") from None
    if exact is not None and exact != number:
        raise NotConstantError(f"its default {value[:40]!r} is rounded")
    return f"{exact if exact is not None else Decimal(0).scaleb(-scale):f}"


def _floating(value: str, column: ColumnMeta) -> str:
    text = value.strip()
    digits = len(re.sub(r"e.*|[^\d]", "", text.lower()).strip("0"))
    if not _NUMBER.fullmatch(text) or "(" in column.mysql_type:
        raise NotConstantError(f"its default {value[:40]!r} is rounded")
    if requested_column(column).kind == "float" and digits > _DIGITS_OF_FLOAT:
        raise NotConstantError(f"its default {value[:40]!r} is rounded")
    return text


def _date(value: str, _column: ColumnMeta) -> str | None:
    if value.startswith("0000-00-00"):
        return None
    try:
        found = date.fromisoformat(value).isoformat()
    except ValueError:
        found = ""
    if found != value:
        raise NotConstantError(f"its default {value[:40]!r} is not a plain date")
    return value


def _datetime(value: str, column: ColumnMeta) -> str | None:
    if value.startswith("0000-00-00"):
        return None
    found = _FRACTION.fullmatch(value)
    whole, fraction = (found[1], found[2] or "") if found else (value, "")
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError:
        moment = None
    if moment is None or not re.fullmatch(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?", whole):
        raise NotConstantError(f"its default {value[:40]!r} is not a plain time")
    return f"{moment:%Y-%m-%d %H:%M:%S}{_fraction(fraction, column)}"


def _timestamp(value: str, _column: ColumnMeta) -> str | None:
    if value.startswith("0000-00-00"):
        return None
    raise NotConstantError("its default is a time in the zone of a session")


def _time(value: str, column: ColumnMeta) -> str:
    found = _FRACTION.fullmatch(value)
    whole, fraction = (found[1], found[2] or "") if found else (value, "")
    if not _TIME.fullmatch(whole):
        raise NotConstantError(f"its default {value[:40]!r} is not a plain time")
    return f"{whole}{_fraction(fraction, column)}"


def _fraction(digits: str, column: ColumnMeta) -> str:
    found = _PRECISION.search(column.mysql_type)
    precision = int(found[1]) if found else 0
    kept, lost = digits[:precision], digits[precision:]
    if lost.strip("0"):
        raise NotConstantError("its default is rounded")
    return f".{kept.ljust(precision, '0')}" if precision else ""


def _characters(value: str, column: ColumnMeta) -> str:
    if _base(column) == "char":
        return value.rstrip(" ")
    return value


def _label(value: str, column: ColumnMeta) -> str:
    """Return the label that a text means; the server ignores its case."""
    value_text = value.rstrip(" ")
    members = [each for each in labels_of(column.mysql_type) if isinstance(each, str)]
    found = [each for each in members if each.lower() == value_text.lower()]
    if len(found) != 1:
        raise NotConstantError(f"its default {value[:40]!r} is not the name of a label")
    return found[0]


def _label_set(value: str, column: ColumnMeta) -> str:
    if not value:
        return ""
    chosen = {_label(each, column) for each in value.split(",")}
    members = [each for each in labels_of(column.mysql_type) if isinstance(each, str)]
    return ",".join(each for each in members if each in chosen)


_READERS: Final[dict[str, Callable[[str, ColumnMeta], str | None]]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "bits"), _whole),
    **dict.fromkeys(("decimal", "wide decimal"), _decimal),
    **dict.fromkeys(("float", "double"), _floating),
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
}
_TEXT_READERS: Final[dict[str, Callable[[str, ColumnMeta], str | None]]] = {
    **dict.fromkeys(TEXT_TYPES, _characters),
    "enum": _label,
    "set": _label_set,
    "time": _time,
    "year": _year,
}
