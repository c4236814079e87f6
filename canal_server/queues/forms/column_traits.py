"""What forms of messages need to know of a column's type, by its COLUMN_TYPE."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TYPE: Final = re.compile(r"\s*([a-z0-9]+)\s*(?:\(([^)']*)\))?", re.IGNORECASE)

_INTEGERS: Final = {
    "tinyint": 8, "bool": 8, "boolean": 8, "smallint": 16, "mediumint": 24, "int": 32,
    "integer": 32, "bigint": 64, "serial": 64,
}  # fmt: skip
_DECIMALS: Final = ("decimal", "numeric", "dec", "fixed")
_OTHERS: Final = {
    "float": "float", "double": "double", "real": "double", "bit": "bit",
    "year": "year", "date": "date", "datetime": "datetime", "timestamp": "timestamp",
    "time": "time", "enum": "enum", "set": "set", "json": "json", "vector": "vector",
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "bytes"
    ),
    **dict.fromkeys(
        ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring",
         "multipolygon", "geometrycollection", "geomcollection"),
        "geometry",
    ),
}  # fmt: skip
# If the type is unknown: by java.sql.Types.
_BY_SQL_TYPE: Final = {
    -6: "integer", 5: "integer", 4: "integer", -5: "integer", 7: "float",
    8: "double", 2004: "bytes",
}  # fmt: skip


class Traits(NamedTuple):
    """A kind of values; `a` and `b` depend on it.

    Integers: bits, and whether it is unsigned. Decimals: digits, and those after the
    point. Floats: digits, and whether those after the point are given. Bits: how many.
    Dates and times: digits of a second.
    """

    kind: str
    a: int = 0
    b: int = 0


def traits_of(mysql_type: str, sql_type: int) -> Traits:
    """Return the traits of a column; never raises."""
    found = _TYPE.match(mysql_type)
    if found is None:
        return Traits(_BY_SQL_TYPE.get(sql_type, "text"), 64)
    word = found[1].lower()
    given = [int(each) for each in (found[2] or "").split(",") if each.isdecimal()]
    first = given[0] if given else 0
    if word in _INTEGERS:
        unsigned = "unsigned" in mysql_type.lower() or word == "serial"
        return Traits("integer", _INTEGERS[word], unsigned)
    if word in _DECIMALS:
        digits = min(first or 10, 65)
        return Traits("decimal", digits, min(given[1] if given[1:] else 0, digits, 38))
    kind = _OTHERS.get(word, "text")
    if kind == "geometry":
        return Traits(kind, word == "point")
    if kind == "float":
        return Traits(kind, first, len(given) > 1)
    return Traits(kind, first or (kind == "bit"))
