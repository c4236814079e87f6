"""Our nodes in ZooKeeper are, byte by byte, those recorded of a Java server."""

from __future__ import annotations

import json
import re

import pytest
from fix_cluster import WIRING
from node_states import CLIENT, Walk, named, recorded

from canal_server.model import znodes
from canal_server.model.positions import PositionRange, log_position_from_json
from canal_server.model.running import decode
from canal_server.position import meta_file, node_json

# Nodes that only ours has: that it may write here, and what a cursor cannot say.
OURS = re.compile(r"/lease-[0-9a-f]+$|\.full$|/seen$")
# Ours gives a client a cursor before its first ack; the Java server does not.
NO_CURSOR = ("subscribed", "received")


@pytest.fixture
def pipeline(make_pipeline, mysql_server, database, zookeeper_root):
    """Give a server with its cursors in ZooKeeper, not started."""
    made = make_pipeline(mysql_server, database)
    made.configure(
        {"canal.zkServers": zookeeper_root, "canal.zookeeper.flush.period": 20},
        wiring=WIRING,
    )
    return made


@pytest.mark.parametrize("way", ["by_position", "by_gtid"])
def test_nodes(pipeline, zookeeper, way):
    """In each state there are the same nodes with the same content and life time."""
    if way == "by_gtid":
        pipeline.configure({"canal.instance.gtidon": "true"}, wiring=WIRING)
    states = Walk(pipeline, zookeeper).states()
    expected = recorded()[way]
    assert list(states) == list(expected)
    for state, nodes in states.items():
        shared = [
            (path, text, ephemeral)
            for path, text, ephemeral in nodes
            if not OURS.search(path)
            and not (state in NO_CURSOR and path == f"{CLIENT}/cursor")
        ]
        assert named(shared) == named(expected[state]), state


def contents(pattern):
    """Return the recorded contents of nodes, once each."""
    found = {
        text
        for states in recorded().values()
        for nodes in states.values()
        for path, text, _ in nodes
        if re.search(pattern, path) and text is not None
    }
    assert found
    return sorted(found)


def test_cursors():
    """A cursor that the Java server wrote is read, and written again as it was."""
    for text in contents("/1001/cursor$"):
        position = meta_file.decode_position(text.encode())
        assert node_json.encode_cursor(position).decode() == text
    assert any('"gtid":""' not in text for text in contents("/1001/cursor$"))


def test_batches():
    """So is a batch, which has the name of its node by its id."""
    for text in contents("/1001/mark/0000000001$"):
        shown = json.loads(text)
        batch = PositionRange(
            log_position_from_json(shown["start"]),
            log_position_from_json(shown["end"]),
            log_position_from_json(shown["ack"]),
            shown["endSeq"],
        )
        assert node_json.encode_mark(batch).decode() == text
    assert node_json.mark_name(1) == "0000000001"


def test_who_runs_it():
    """So is who runs a destination."""
    for text in contents(znodes.running_path("example")):
        running = decode(text.encode())
        assert running is not None
        assert running.encode().decode() == text
