"""Contents and names of nodes, against recordings of the Java server's."""

from __future__ import annotations

import json

import pytest

from canal_server.model.positions import (
    EntryPosition,
    LogIdentity,
    LogPosition,
    PositionRange,
)
from canal_server.position import node_json
from canal_server.position.meta_file import decode_position

TYPED = '"@type":"com.alibaba.otter.canal.protocol.position.LogPosition",'
# As the Java server wrote it, but for the hint.
RECORDED = (
    '"identity":{"slaveId":-1,"sourceAddress":{"address":"localhost","port":33097}},'
    '"postion":{"gtid":"","included":false,"journalName":"binlog.000010",'
    '"position":283,"serverId":1,"timestamp":1795241239000}}'
)
POSITION = LogPosition(
    LogIdentity("localhost", 33097),
    EntryPosition("binlog.000010", 283, 1795241239000, 1, ""),
)


def test_cursor():
    """A cursor is written as the Java server does, with the name of its class first."""
    assert node_json.encode_cursor(POSITION).decode() == "{" + TYPED + RECORDED


def test_mark():
    """A batch names its class and that of each position in it."""
    batch = PositionRange(POSITION, POSITION, POSITION, 7)
    position = "{" + TYPED + RECORDED
    assert node_json.encode_mark(batch).decode() == (
        '{"@type":"com.alibaba.otter.canal.protocol.position.PositionRange",'
        f'"ack":{position},"end":{position},"endSeq":7,"start":{position}}}'
    )


def test_mark_without_ack():
    """A batch from which no client may resume has no ack."""
    batch = PositionRange(POSITION, POSITION, None, 7)
    assert list(json.loads(node_json.encode_mark(batch))) == [
        "@type",
        "end",
        "endSeq",
        "start",
    ]


@pytest.mark.parametrize("hint", ["", TYPED, '"@type":"x.Y","cid":3,'])
def test_reading_is_liberal(hint):
    """A position is read with any hint or none, and with unknown keys."""
    assert decode_position(("{" + hint + RECORDED).encode()) == POSITION


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", "x", '{"identity":1}'])
def test_damage(content):
    """Any other content is an error."""
    with pytest.raises(ValueError, match=r".+"):
        decode_position(content.encode())


def test_paths():
    """The paths of nodes are those of the Java server."""
    assert node_json.client_path("d", 1001) == "/otter/canal/destinations/d/1001"
    assert node_json.mark_name(1) == "0000000001"
    assert node_json.batch_id_of("0000000012") == 12
    assert node_json.batch_id_of("running") is None


@pytest.mark.parametrize(
    ("name", "client_id"),
    [
        ("0", 0),
        ("1001", 1001),
        ("32767", 32767),
        ("32768", None),
        ("01", None),
        ("٣", None),
        ("9" * 5000, None),
        ("cluster", None),
        ("", None),
    ],
)
def test_names_of_clients(name, client_id):
    """The name of a client's node is a number that a client can have."""
    assert node_json.client_id_of(name) == client_id
