"""The values of settings, compared with the list that librdkafka itself prints."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from canal_server.queues.producers.kafka_setting_values import (
    CHOICES,
    DECIMALS,
    INTEGERS,
    choices_of,
    number_of,
)

_KIND = re.compile(r"\*Type: ([^*]+)\*")
_WORDS = {"acks", "request.required.acks"}  # integers that may be a word


class Property(NamedTuple):
    """A setting as librdkafka documents it."""

    name: str
    values: str
    kind: str


@pytest.fixture(scope="module")
def properties(tmp_path_factory: pytest.TempPathFactory) -> list[Property]:
    """Give what the library prints of all settings of a producer."""
    kafka = pytest.importorskip("confluent_kafka", reason="no extra `kafka`")
    folder = Path(kafka.__file__).parents[1] / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*"))
    if not found:
        pytest.skip("the library is not part of the package confluent_kafka here")
    library, libc = ctypes.CDLL(str(found[0])), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [
        ctypes.c_void_p
    ]
    path = tmp_path_factory.mktemp("librdkafka") / "properties.md"
    file = libc.fopen(str(path).encode(), b"w")
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    return [
        Property(cells[0], cells[2], kind[1])
        for line in path.read_text().splitlines()
        if (kind := _KIND.search(line))
        and (cells := [each.strip() for each in line.split("|")])[1] in ("P", "*")
    ]


def test_tables_are_those_of_librdkafka(properties: list[Property]) -> None:
    """No setting is missing in them, and none is there that the library has not."""
    of_kind: dict[str, set[str]] = {}
    for each in properties:
        of_kind.setdefault(each.kind, set()).add(each.name)
    assert of_kind["integer"] - _WORDS == INTEGERS
    assert of_kind["float"] == DECIMALS
    assert of_kind["enum value"] == CHOICES.keys()
    for each in properties:
        if each.kind == "enum value":
            assert set(CHOICES[each.name]) <= set(each.values.split(", ")), each.name


@pytest.mark.parametrize("value", ["12k", "1e3", "0x10", "1.5", "5 000", "", "five"])
def test_no_whole_number(value: str) -> None:
    """What librdkafka would read in part is refused, with what to write."""
    with pytest.raises(ValueError, match="write a number, without a unit"):
        number_of("batch.size", value)


def test_numbers() -> None:
    """They have one form, in which a leading zero means nothing; words stay."""
    assert number_of("batch.size", " 010 ") == "10"
    assert number_of("topic.metadata.refresh.interval.ms", "-1") == "-1"
    assert number_of("linger.ms", "0.5") == "0.5"
    assert number_of("client.id", "12k") == "12k"
    with pytest.raises(ValueError, match="write a number"):
        number_of("linger.ms", "5ms")


def test_choices_in_an_error() -> None:
    """They are listed where there are some."""
    assert choices_of("queuing.strategy") == "fifo or lifo"
    assert choices_of("compression.type") == "none, gzip, snappy, lz4 or zstd"
    assert choices_of("client.id") == ""
