"""The JSON of changes: what it has, and how values look."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest
from change_messages import Maker, changes_of

from canal_server.client.handlers.change_json import json_object, json_text, time_text


def test_a_row():
    """A row has its key, its images and its origin."""
    maker = Maker()
    entry = maker.update({"id": 1, "name": "a"}, {"id": 1, "name": None})
    (change,) = changes_of(maker.message(1, entry))
    assert json.loads(json_text(json_object(change))) == {
        "schema": "shop",
        "table": "orders",
        "kind": "update",
        "key": {"id": 1},
        "before": {"id": 1, "name": "a"},
        "after": {"id": 1, "name": None},
        "file": "binlog.000001",
        "position": 110,
        "gtid": "",
        "commit_time": "2023-11-14T22:13:20+00:00",
    }


def test_a_statement():
    """A statement has its text."""
    maker = Maker()
    entry = maker.statement("ALTER TABLE orders ADD n INT")
    (change,) = changes_of(maker.message(1, entry))
    found = json.loads(json_text(json_object(change)))
    assert found["kind"] == "ddl"
    assert found["sql"] == "ALTER TABLE orders ADD n INT"
    assert not {"key", "before", "after"} & found.keys()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**64 - 1, "18446744073709551615"),
        (0.1, "0.1"),
        ("ü\n\"'", '"ü\\n\\"\'"'),
        (None, "null"),
        (Decimal("5.00"), '"5.00"'),
        (dt.date(2026, 2, 28), '"2026-02-28"'),
        (dt.datetime(2026, 2, 28, 1, 2, 3), '"2026-02-28T01:02:03"'),  # noqa: DTZ001
        (
            dt.datetime(2026, 2, 28, 1, 2, 3, 4, dt.UTC),
            '"2026-02-28T01:02:03.000004+00:00"',
        ),
        (dt.timedelta(hours=-838, minutes=-59, seconds=-59), '"-838:59:59"'),
        (b"\x00\xff", '"AP8="'),
        ({"a": [1]}, '{"a":[1]}'),
    ],
)
def test_values(value, text):
    """Each type has one form."""
    assert json_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (dt.timedelta(), "00:00:00"),
        (dt.timedelta(microseconds=1), "00:00:00.000001"),
        (dt.timedelta(microseconds=-1), "-00:00:00.000001"),
        (dt.timedelta(hours=838, minutes=59, seconds=59), "838:59:59"),
        (-dt.timedelta(hours=100, seconds=1, microseconds=500000), "-100:00:01.500000"),
    ],
)
def test_times(value, text):
    """A TIME is written as MySQL writes it."""
    assert time_text(value) == text
