"""Changes as JSON: the form in files, requests and dead letters.

integers, floats, texts, NULL    as JSON has them
Decimal                          a text with all digits: "5.00"
date, datetime                   ISO 8601: "2026-11-21", "2026-11-21T10:00:00+00:00"
timedelta                        as MySQL writes TIME: "-838:59:59.000001"
bytes                            a text in Base64
"""

from __future__ import annotations

import base64
import json
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canal_server.client.change_reader import Change

_HOUR_S = 3600


def json_object(change: Change) -> dict[str, Any]:
    """Return what is written of a change; its values are Python's.

    A row has `key`, `before` and `after`, as far as it has them, a statement `sql`.
    """
    found: dict[str, Any] = {
        "schema": change.schema,
        "table": change.table,
        "kind": change.kind,
    }
    if change.sql is None:
        found["key"] = change.key
        found["before"] = change.before
        found["after"] = change.after
    else:
        found["sql"] = change.sql
    found["file"], found["position"] = change.position
    found["gtid"] = change.gtid
    found["commit_time"] = change.commit_time
    return found


def json_text(value: Any) -> str:
    """Return JSON without line breaks or spaces between its parts."""
    return _ENCODER.encode(value)


def _encoded(value: object) -> object:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return time_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)  # what the program made of JSON columns


def time_text(value: timedelta) -> str:
    """Return a TIME as MySQL writes it."""
    sign = "-" if value < timedelta() else ""
    value = abs(value)
    minutes, seconds = divmod(value.days * 24 * _HOUR_S + value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06}" if value.microseconds else ""
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=_encoded, check_circular=False
)
