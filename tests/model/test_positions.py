"""Positions in a binlog: their order, their text, their JSON."""

from __future__ import annotations

import json

import pytest

from canal_server.model.positions import (
    EntryPosition,
    LogIdentity,
    LogPosition,
    base_name,
    binlog_file_number,
    entry_position_from_json,
    entry_position_to_json,
    log_position_from_json,
    log_position_to_json,
)

WHOLE = EntryPosition("binlog.000003", 4, 1_700_000_000_123, 7, "0-1-2", included=True)
IDENTITY = LogIdentity("db.example", 3306, 5)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("binlog.000001", 1),
        ("binlog.999999", 999_999),
        ("binlog.1000000", 1_000_000),
        ("host-1-bin.000042", 42),
        ("binlog", 0),
        ("binlog.000001.gz", 0),
        ("", 0),
    ],
)
def test_file_numbers(name: str, number: int) -> None:
    """The number is at the end of the name, however many digits it has."""
    assert binlog_file_number(name) == number


def test_order() -> None:
    """Files are ordered by their number, not their text, and then by offset."""
    positions = [
        EntryPosition("b.1000000", 200),
        EntryPosition("b.1000000", 30),
        EntryPosition("b.1000000", 4),
        EntryPosition("b.999999", 900),
    ]
    assert sorted(positions, key=EntryPosition.order) == positions[::-1]


def test_order_of_unknown_positions() -> None:
    """A position without a file or an offset is ordered first."""
    assert EntryPosition(gtid="x").order() == (0, 0)
    assert EntryPosition("b.000001").order() == (1, 0)


def test_text() -> None:
    """The log shows the server, the file and the offset."""
    assert str(LogPosition(IDENTITY, WHOLE)) == "db.example:3306/binlog.000003:4"


def test_json() -> None:
    """It equals what the Java server writes, including the misspelling."""
    assert json.dumps(log_position_to_json(LogPosition(IDENTITY, WHOLE))) == (
        '{"identity": {"slaveId": 5, "sourceAddress": '
        '{"address": "db.example", "port": 3306}}, "postion": {"gtid": "0-1-2", '
        '"included": true, "journalName": "binlog.000003", "position": 4, '
        '"serverId": 7, "timestamp": 1700000000123}}'
    )


@pytest.mark.parametrize(
    "position", [WHOLE, EntryPosition(), EntryPosition("b.000001", 0, 0, 0, "")]
)
def test_round_trip(position: EntryPosition) -> None:
    """What was written is read as the same; zero and null stay distinct."""
    assert entry_position_from_json(entry_position_to_json(position)) == position
    whole = LogPosition(IDENTITY, position)
    assert log_position_from_json(log_position_to_json(whole)) == whole


def test_unknown_and_missing_keys() -> None:
    """Keys of newer servers are ignored; missing keys of older ones are null."""
    value = {
        "identity": {"sourceAddress": {"address": "db", "port": "3306"}, "x": 1},
        "postion": {"journalName": "b.000001", "unknown": [1]},
    }
    assert log_position_from_json(value) == LogPosition(
        LogIdentity("db", 3306, -1), EntryPosition("b.000001")
    )


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"identity": {}, "postion": {}},
        {"identity": {"sourceAddress": {"address": "db"}}, "postion": {}},
        {"identity": {"sourceAddress": {"address": "db", "port": 1}}},
        {"identity": {"sourceAddress": {"address": "db", "port": 1}}, "postion": None},
        {"identity": {"sourceAddress": "db"}, "postion": {}},
    ],
)
def test_damage(value: dict[str, object]) -> None:
    """A part that is missing or has another type is one of the promised errors."""
    with pytest.raises((KeyError, TypeError, AttributeError)):
        log_position_from_json(value)


@pytest.mark.parametrize(
    ("file", "base"),
    [("binlog.000001", "binlog."), ("a.1.b.000002", "a.1.b."), ("odd", "odd")],
)
def test_base_name(file: str, base: str) -> None:
    """The base name is everything except the number at the end."""
    assert base_name(file) == base
