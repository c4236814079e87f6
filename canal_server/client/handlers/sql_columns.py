"""Types of columns in a target database, and values as these types have them.

Needs SQLAlchemy. Leaves out tables and statements (`sql_target`).
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from canal_server.client.handlers.change_json import time_text

if TYPE_CHECKING:
    from collections.abc import Callable

_TYPE: Final = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_DAY: Final = timedelta(days=1)
_LABELS_MAX: Final = 255  # characters of ENUM and SET in a key, which needs a limit
# SQLite has no exact numbers, and no more than 64 bits with a sign.
_LARGE: Final = sa.Numeric(20, 0).with_variant(sa.Text(), "sqlite")
# MySQL's own types, where the usual ones would be too small there.
_MYSQL: Final = ("mysql", "mariadb")
_TEXT: Final = sa.Text().with_variant(mysql.LONGTEXT(), *_MYSQL)
_BYTES: Final = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL)
_MOMENT: Final = mysql.DATETIME(fsp=6)
# By the name of the MySQL type; of integers without a sign, by that with `unsigned`.
_TYPES: Final[dict[str, sa.types.TypeEngine[Any]]] = {
    "tinyint": sa.SmallInteger(),
    "smallint": sa.SmallInteger(),
    "smallint unsigned": sa.Integer(),
    "mediumint": sa.Integer(),
    "int": sa.Integer(),
    "int unsigned": sa.BigInteger(),
    "bigint": sa.BigInteger(),
    "bigint unsigned": _LARGE,
    "year": sa.SmallInteger(),
    "bit": _LARGE,
    "float": sa.Double(),
    "double": sa.Double(),
    "date": sa.Date(),
    "datetime": sa.DateTime().with_variant(_MOMENT, *_MYSQL),
    "timestamp": sa.DateTime(timezone=True).with_variant(_MOMENT, *_MYSQL),
    "time": sa.Interval().with_variant(mysql.TIME(fsp=6), *_MYSQL)
    .with_variant(sa.Text(), "sqlite"),
    "json": sa.JSON(),
    **dict.fromkeys(
        ("tinyblob", "blob", "mediumblob", "longblob", "vector", "geometry", "point",
         "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
         "geomcollection", "geometrycollection"), _BYTES
    ),
}  # fmt: skip


def type_of(mysql_type: str, *, in_key: bool) -> sa.types.TypeEngine[Any]:
    """Return the type for a column that is created; unknown types are texts."""
    text = mysql_type.lower()
    found = _TYPE.match(text)
    name = found[1] if found else ""
    size, scale = (int(each or 0) for each in (found[2], found[3])) if found else (0, 0)
    if "unsigned" in text and f"{name} unsigned" in _TYPES:
        return _TYPES[f"{name} unsigned"]
    if name in _TYPES:
        return _TYPES[name]
    if name == "decimal":
        return sa.Numeric(size or 10, scale).with_variant(sa.Text(), "sqlite")
    if name in {"binary", "varbinary"}:
        return sa.LargeBinary(size)
    if name in {"char", "varchar"} and size:
        return sa.String(size)
    return sa.String(_LABELS_MAX) if in_key else _TEXT


def converter_of(kind: sa.types.TypeEngine[Any]) -> Callable[[Any], Any] | None:
    """Return what makes values of a change values of a column; None: they are.

    It is not called with None. It raises ValueError for values that do not fit.
    """
    for base, convert in _CONVERTERS:
        if isinstance(kind, base):
            if isinstance(kind, sa.DateTime) and kind.timezone:
                return _as_zoned
            return convert
    return None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    return time_text(value) if isinstance(value, timedelta) else str(value)


def _as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _as_json(value: Any) -> Any:
    """Return a document; of the JSON value null what does not become NULL."""
    found = json.loads(value) if isinstance(value, str) else value
    return sa.JSON.NULL if found is None else found


def _as_uuid(value: Any) -> uuid.UUID:
    return uuid.UUID(bytes=value) if isinstance(value, bytes) else uuid.UUID(value)


def _as_date(value: Any) -> date | None:
    """Return a date; None for a text, which is a date that does not exist."""
    return None if isinstance(value, str) else value


def _as_unzoned(value: Any) -> datetime | None:
    """Return a moment without a zone; what has one is in UTC, and stays in it."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return None if isinstance(value, str) else value


def _as_zoned(value: Any) -> datetime | None:
    """Return a moment with a zone; for what has none, UTC."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return None if isinstance(value, str) else value


def _as_time(value: Any) -> Any:
    if not isinstance(value, timedelta):
        return value
    if not timedelta() <= value < _DAY:
        raise ValueError(f"TIME {time_text(value)} is not a time of day")
    return (datetime.min + value).time()  # noqa: DTZ901  # a time has no zone


_CONVERTERS: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (mysql.TIME, _as_text),
    (sa.Boolean, bool),
    (sa.JSON, _as_json),
    (sa.Uuid, _as_uuid),
    (sa.DateTime, _as_unzoned),
    (sa.Date, _as_date),
    (sa.Time, _as_time),
    (sa.LargeBinary, _as_bytes),
    (sa.String, _as_text),
)
