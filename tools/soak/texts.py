"""How a column's value is asked for, and how canal's text is made of the answer.

By the type that the server says a column has now, whatever statements made it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from random_columns import as_text, octets, timestamp_text

from canal_server.source.read.compare_values import decimal_text, java_float

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from soak.ledger import Values

CHARACTERS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
OCTETS = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry",
          "point", "linestring", "multipoint", "vector")  # fmt: skip
SURROGATES = re.compile("[\ud800-\udfff]")
NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
COLUMNS = (
    "SELECT column_name, data_type, numeric_scale, datetime_precision"
    " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
    " ORDER BY ordinal_position"
)


@dataclass(frozen=True)
class Reading:
    """The columns of a table at one time, and how their values are read."""

    names: tuple[str, ...]
    select: str  # what stands between SELECT and FROM
    texts: tuple[Callable[[Any], str], ...]
    documents: tuple[str, ...]  # names of those that are JSON

    def values(self, row: Sequence[Any]) -> Values:
        """Return canal's texts of a row that was selected so."""
        return {
            name: None if value is None else text(value)
            for name, value, text in zip(self.names, row, self.texts, strict=True)
        }


def reading_of(cursor: Any, schema: str, table: str) -> Reading:
    """Ask for the columns that a table has now."""
    cursor.execute(COLUMNS, (schema, table))
    rows = cursor.fetchall()
    ways = [_way(kind, scale, digits) for _, kind, scale, digits in rows]
    names = tuple(name for name, *_ in rows)
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    pairs = zip(ways, quoted, strict=True)
    select = ", ".join(expression.format(c=c) for (expression, _), c in pairs)
    documents = tuple(name for name, kind, *_ in rows if as_text(kind) == "json")
    return Reading(names, select, tuple(text for _, text in ways), documents)


def _way(  # noqa: PLR0911  # a table of types
    kind: str, scale: int | None, digits: int | None
) -> tuple[str, Callable[[Any], str]]:
    """Return an expression and what makes text of its value."""
    kind = as_text(kind).lower()
    if kind in NUMBERS:
        return "{c} + 0", as_text
    if kind == "decimal":
        return "CAST({c} AS CHAR)", partial(_decimal, scale=scale or 0)
    if kind in ("float", "double"):
        return "{c} * 1e0", partial(_float, single=kind == "float")
    if kind in ("bit", "enum", "set"):
        return "CAST({c} AS UNSIGNED)", as_text
    if kind == "timestamp":
        return "UNIX_TIMESTAMP({c})", partial(timestamp_text, digits=digits or 0)
    if kind == "year":
        return "CAST({c} AS CHAR)", _year
    if kind in CHARACTERS:
        return "HEX(CONVERT({c} USING utf8mb4))", _characters
    if kind in OCTETS:
        return "HEX({c})", octets
    if kind == "binary":
        return "HEX({c})", _binary
    return "CAST({c} AS CHAR)", as_text


def _characters(value: Any) -> str:
    """Return a text in which half a surrogate pair, as UCS-2 may have, is U+FFFD."""
    text = bytes.fromhex(as_text(value)).decode("utf-8", "surrogatepass")
    return SURROGATES.sub("\ufffd", text)


def _decimal(value: Any, scale: int) -> str:
    return decimal_text(Decimal(as_text(value)), scale)


def _float(value: Any, *, single: bool) -> str:
    return java_float(float(value), single=single)


def _year(value: Any) -> str:
    return as_text(value).zfill(4)


def _binary(value: Any) -> str:
    return octets(value).rstrip("\0")
