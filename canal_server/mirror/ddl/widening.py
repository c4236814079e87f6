"""The effect of another column type on a table's existing values.

The lake's values are converted only if the server certainly changed none: an ALTER
TABLE writes no rows into the binlog. Leaves out the names of columns and the statement
(`evolve`).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.arrow.arrow_columns import requested_column
from canal_server.errors import DecodeError
from canal_server.mirror.settings.table_values import TEXT_TYPES
from canal_server.model.enum_labels import labels_of
from canal_server.tablemeta.model.charset_widths import bytes_max
from canal_server.tablemeta.model.type_text import SIZES

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.model.columns_known import ColumnMeta


class Outcome(Enum):
    """The effect on the values."""

    SAME = "same"  # the lake's type stays, too
    WIDER = "wider"  # values stay, the lake's type must be widened
    UNKNOWN = "unknown"  # some values may change


class _Type(NamedTuple):
    base: str
    arguments: tuple[int, ...]
    unsigned: bool
    text: str  # the full type, without parts that have no effect
    charset: str


BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_INTEGERS_OF_LAKE: Final = ("int8", "int16", "int32", "int64")
# Character sets that include all characters of the others.
_WHOLE: Final = frozenset(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"))
_BMP: Final = frozenset(("utf8mb3", "ucs2"))
_IN_BMP: Final = frozenset(("latin1", "ucs2", "utf8mb3", "ascii"))
_SYNONYMS: Final = {
    "bool": "tinyint", "boolean": "tinyint", "integer": "int", "serial": "bigint",
    "real": "double", "numeric": "decimal", "dec": "decimal", "fixed": "decimal",
}  # fmt: skip
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_HEAD: Final = re.compile(r"\s*([a-z0-9_]+)\s*(?:\(([\d\s,]*)\))?", re.IGNORECASE)


def outcome(before: ColumnMeta, after: ColumnMeta) -> Outcome:
    """Return the effect of a change of type on a column's values."""
    old, new = _type_of(before), _type_of(after)
    if (old.text, old.charset) == (new.text, new.charset):
        return Outcome.SAME
    family = _FAMILIES.get(old.base)
    if family is None or family is not _FAMILIES.get(new.base):
        return Outcome.UNKNOWN
    if not family(old, new):
        return Outcome.UNKNOWN
    return _in_lake(before, after)


def definitions_of(before: ColumnMeta, after: ColumnMeta) -> tuple[str, str]:
    """Return the old and new definition of a column, as texts that differ."""
    has_set = (before.charset or "") != (after.charset or "")
    was, now = (_defined(each, has_set=has_set) for each in (before, after))
    if was != now:
        return was, now
    keys = "outside of the primary key", "in the primary key"
    if before.is_key != after.is_key:
        return f"{was} {keys[before.is_key]}", f"{now} {keys[after.is_key]}"
    nulls = "NOT NULL", "NULL"
    return f"{was} {nulls[before.nullable]}", f"{now} {nulls[after.nullable]}"


def _defined(column: ColumnMeta, *, has_set: bool) -> str:
    if not has_set:
        return column.mysql_type
    return f"{column.mysql_type} CHARACTER SET {column.charset or 'none'}"


def _in_lake(before: ColumnMeta, after: ColumnMeta) -> Outcome:
    """Return whether the lake's type is widened, for values that stay."""
    try:
        old, new = requested_column(before), requested_column(after)
    except DecodeError:
        return Outcome.UNKNOWN
    if (old.kind, old.precision, old.scale) == (new.kind, new.precision, new.scale):
        return Outcome.SAME
    is_possible = (
        (old.kind in _INTEGERS_OF_LAKE and new.kind in (*_INTEGERS_OF_LAKE, "decimal"))
        or (old.kind == new.kind == "decimal")
        or (old.kind, new.kind) == ("float", "double")
    )
    if old.kind == new.kind == "wide decimal":
        # A text with all digits after the decimal point.
        return Outcome.SAME if old.scale == new.scale else Outcome.UNKNOWN
    return Outcome.WIDER if is_possible else Outcome.UNKNOWN


def _type_of(column: ColumnMeta) -> _Type:
    text = _COMMENT.sub("", column.mysql_type).strip()
    found = _HEAD.match(text)
    word = found[1].lower() if found else ""
    base = _SYNONYMS.get(word, word)
    numbers = tuple(
        int(each) for each in re.findall(r"\d+", (found and found[2]) or "")
    )
    charset = {"utf8": "utf8mb3"}.get(column.charset or "", column.charset or "")
    if base in BITS:
        numbers = ()  # display widths
        text = base
    elif base not in ("enum", "set"):
        text = f"{base}{numbers}"
    unsigned = column.unsigned
    return _Type(base, numbers, unsigned, f"{text} {unsigned}", charset)


# --------------------------------------------------------------------------------
# Families: whether every value of the first type is the same in the second
# --------------------------------------------------------------------------------


def _integer(old: _Type, new: _Type) -> bool:
    if old.unsigned == new.unsigned:
        return BITS[new.base] >= BITS[old.base]
    return old.unsigned and BITS[new.base] > BITS[old.base]


def _decimal(old: _Type, new: _Type) -> bool:
    digits, scale = _digits(old)
    new_digits, new_scale = _digits(new)
    return (
        new_scale >= scale
        and new_digits - new_scale >= digits - scale
        and not (new.unsigned and not old.unsigned)
    )


def _digits(kind: _Type) -> tuple[int, int]:
    numbers = (*kind.arguments, 0, 0)
    return (numbers[0], numbers[1]) if kind.arguments else (10, 0)


def _floating(old: _Type, new: _Type) -> bool:
    if new.unsigned and not old.unsigned:
        return False
    if new.arguments and new.arguments != old.arguments:
        return False  # rounded
    return new.base in (old.base, "double")


def _moment(old: _Type, new: _Type) -> bool:
    return old.base == new.base and _first(new) >= _first(old)


def _bits(old: _Type, new: _Type) -> bool:
    return (_first(new) or 1) >= (_first(old) or 1)


def _first(kind: _Type) -> int:
    return kind.arguments[0] if kind.arguments else 0


def _text(old: _Type, new: _Type) -> bool:
    if not holds(new.charset, old.charset):
        return False
    if old.base in ("enum", "set") or new.base in ("enum", "set"):
        return _labels(old, new)
    if new.base in ("char", "varchar"):
        # A CHAR loses trailing blanks.
        return (
            old.base in ("char", new.base)
            and _first(new) >= (_first(old) or (old.base == "char"))
            and not (old.base == "varchar" and new.base == "char")
        )
    size = SIZES[new.base.removesuffix("text")]
    width = bytes_max(new.charset)
    if old.base in ("char", "varchar"):
        return size >= (_first(old) or 1) * width
    old_size = SIZES[old.base.removesuffix("text")]
    if new.charset == old.charset:
        return size >= old_size
    return size >= min(old_size * width, SIZES["long"])


def _labels(old: _Type, new: _Type) -> bool:
    before = labels_of(old.text)
    if old.base != new.base:
        return False
    if old.base == "set":  # delivered in the order of the definition
        return labels_of(new.text)[: len(before)] == before
    return set(before) <= set(labels_of(new.text))


def holds(new: str, old: str) -> bool:
    """Check whether a character set includes all characters of another one."""
    return (
        new == old
        or (old != "binary" and new in _WHOLE)
        or (old == "ascii" and new not in ("binary", "swe7"))
        or (new in _BMP and old in _IN_BMP)
    )


def _bytes(old: _Type, new: _Type) -> bool:
    if "binary" in (old.base, new.base):
        return False  # it is padded with zeros
    if new.base == "varbinary":
        return old.base == "varbinary" and _first(new) >= _first(old)
    size = SIZES[new.base.removesuffix("blob")]
    if old.base == "varbinary":
        return size >= _first(old)
    return size >= SIZES[old.base.removesuffix("blob")]


_FAMILIES: Final[dict[str, Callable[[_Type, _Type], bool]]] = {
    **dict.fromkeys(BITS, _integer),
    "decimal": _decimal,
    **dict.fromkeys(("float", "double"), _floating),
    **dict.fromkeys(("datetime", "timestamp"), _moment),
    "bit": _bits,
    **dict.fromkeys((*TEXT_TYPES, "enum", "set"), _text),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes
    ),
}
