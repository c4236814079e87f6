"""Offsets: one text for each position, and back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from canal_server.client.range_client import RangePosition
from canal_server.errors import PositionError
from canal_server.spark.options.offsets import (
    offset_from_json,
    offset_to_json,
    version_of,
)

AT = RangePosition(3, "mysql-bin.000012", 4567)
TEXT = (
    '{"d": {"example": {"e": 3, "j": "mysql-bin.000012", "p": 4567,'
    ' "s": 216172833653395927}}, "v": 1}'
)


def test_the_text_is_this_one() -> None:
    """What a checkpoint holds stays readable: the form does not change."""
    assert json.dumps(offset_to_json({"example": AT})) == TEXT
    assert offset_from_json(json.loads(TEXT)) == {"example": AT}


def test_a_set_is_kept_beside_the_position() -> None:
    """The GTID set is kept, and is not part of the position."""
    with_set = replace(AT, gtids="0-1-7")
    shown = offset_to_json({"example": with_set})
    assert shown["d"]["example"]["g"] == "0-1-7"
    found = offset_from_json(shown)
    assert (found, found["example"].gtids) == ({"example": AT}, "0-1-7")


def test_the_order_of_destinations_makes_no_difference() -> None:
    """Spark compares texts, so equal positions have equal ones."""
    other = RangePosition(0, "b.1", 4)
    one = json.dumps(offset_to_json({"b": AT, "a": other}))
    assert one == json.dumps(offset_to_json({"a": other, "b": AT}))


def test_versions_order_the_positions_of_a_destination() -> None:
    """Epoch, then the number of the file, then the offset."""
    positions = [
        RangePosition(0, "bin.999999", 5),
        RangePosition(0, "bin.1000000", 4),
        RangePosition(0, "bin.1000000", 5),
        RangePosition(1, "bin.000001", 4),
    ]
    assert sorted(positions, key=version_of) == positions
    assert version_of(AT) == json.loads(TEXT)["d"]["example"]["s"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "form None"),
        ({"v": 2, "d": {}}, "form 2"),
        ({"v": 1}, "has an invalid offset"),
        ({"v": 1, "d": {"a": {"e": 1}}}, "has an invalid offset"),
        ({"v": 1, "d": {"a": {"e": "x", "j": "b.1", "p": 4}}}, "has an invalid offset"),
        ({"v": 1, "d": [1]}, "has an invalid offset"),
    ],
)
def test_an_offset_of_others_is_refused(value, words) -> None:
    """A checkpoint of something else is named as such."""
    with pytest.raises(PositionError, match=words):
        offset_from_json(value)
