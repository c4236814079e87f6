"""The nodes of ZooKeeper in the states that a destination goes through.

`Walk` takes a server through these states, whichever kind it is, and shows the nodes
of each: path, content, and whether the node goes with a session. In
`data/java_nodes.json` is what the Java server left there. What differs from run to run
(addresses, binlog positions, times, ids) is replaced by a name before it is
compared; all else are the bytes as they were.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

from fix_pipeline import DESTINATION, UNIT_S
from interop_form import insert, make_table
from support_paths import TESTS

from canal_server.client import EntryType
from canal_server.model.running import owner_of
from canal_server.model.znodes import (
    candidates_path,
    destination_path,
    running_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fix_pipeline import Pipeline

    from canal_server.client import CanalClient, Message
    from canal_server.doors.zookeeper import ZooKeeper

Node = tuple[str, "str | None", bool]
Nodes = list[Node]
States = dict[str, Nodes]

RECORDED = TESTS / "data" / "java_nodes.json"
ROOT = "/otter"
CLIENT = f"{destination_path(DESTINATION)}/1001"
MARKS = f"{CLIENT}/mark"
PARSED = f"{destination_path(DESTINATION)}/parse"
PATIENCE_S = 12 * UNIT_S
POLL_S = 0.02
GET_S = 0.2
NAMES = (
    (
        r'"address":"(localhost|127\.0\.0\.1)","port":\d+',
        '"address":"HOST","port":PORT',
    ),
    (r"127\.0\.0\.1:\d+", "SERVER"),
    (r'"journalName":"[^"]+"', '"journalName":"FILE"'),
    (r'"position":\d+', '"position":OFFSET'),
    (r'"serverId":\d+', '"serverId":ID'),
    (r'"timestamp":\d+', '"timestamp":TIME'),
    (r'"gtid":"[^"]+"', '"gtid":"SET"'),
    (r'"endSeq":\d+', '"endSeq":SEQUENCE'),
    (r"\bt\d+_\d+_[0-9a-f]+\b", "SCHEMA"),
)


def recorded() -> dict[str, States]:
    """Return what the Java server left, by the way in which it was run."""
    return {
        way: {
            state: [(path, text, ephemeral) for path, text, ephemeral in nodes]
            for state, nodes in states.items()
        }
        for way, states in json.loads(RECORDED.read_text()).items()
    }


def record(ways: dict[str, States]) -> None:
    """Write what `recorded` reads, a line for each node."""
    ends = {
        way: {
            state: [json.dumps(node) for node in nodes] for state, nodes in of.items()
        }
        for way, of in ways.items()
    }
    text = json.dumps(ends, indent=1)
    # A node, which is a text here, becomes what the text says.
    lines = [re.sub(r'^ *("\[.*\]")', _as_said, line) for line in text.splitlines()]
    RECORDED.write_text("\n".join(lines) + "\n")


def _as_said(found: re.Match[str]) -> str:
    return str(json.loads(found[1]))


def nodes_of(zookeeper: ZooKeeper, path: str = ROOT) -> Nodes:
    """Return a node and all below it."""
    node = zookeeper.read(path)
    if node is None:
        return []
    content = None if node.data is None else node.data.decode()
    found = [(path, content, node.owner != 0)]
    for name in zookeeper.children(path):
        found += nodes_of(zookeeper, f"{path}/{name}")
    return found


def named(nodes: Nodes) -> Nodes:
    """Return nodes with names instead of what differs from run to run."""
    return [(_named(path) or "", _named(text), lives) for path, text, lives in nodes]


def _named(text: str | None) -> str | None:
    if text is None:
        return None
    for pattern, name in NAMES:
        text = re.sub(pattern, name, text)
    return text


class Walk:
    """A server that goes from state to state, and its nodes in each.

    With `has_all` batches and the position of the parser have nodes as well.
    """

    def __init__(
        self, server: Pipeline, zookeeper: ZooKeeper, *, has_all: bool = False
    ) -> None:
        self._server = server
        self._zookeeper = zookeeper
        self._has_all = has_all

    def states(self) -> States:
        """Start the server, take it through all states and stop it."""
        return dict(self._states())

    def _states(self) -> Iterator[tuple[str, Nodes]]:
        server = self._server
        table = make_table(server)
        server.start()
        self._wait(self._is_run, "its run")
        yield "started", self._nodes()
        with server.unsubscribed_client() as client:
            client.subscribe(rf"{server.schema}\.item")
            self._wait(lambda: self._content("filter"), "the filter")
            yield "subscribed", self._nodes()
            insert(server, table, 1)
            message = self._receive(client)
            if self._has_all:
                self._wait(
                    lambda: self._zookeeper.read(PARSED), "the parser's position"
                )
                self._wait(lambda: self._zookeeper.children(MARKS), "the batch")
            yield "received", self._nodes()
            before = self._content("cursor")
            client.ack(message.id)
            self._wait(lambda: self._content("cursor") != before, "the cursor")
            self._wait(lambda: not self._zookeeper.children(MARKS), "the batch's end")
            yield "acked", self._nodes()
            client.unsubscribe()
            self._wait(lambda: self._zookeeper.read(CLIENT) is None, "its end")
            yield "unsubscribed", self._nodes()
            client.subscribe()
            insert(server, table, 2)
            client.ack(self._receive(client).id)
            self._wait(lambda: self._content("cursor"), "the cursor")
        server.stop()
        yield "stopped", self._nodes()

    def _nodes(self) -> Nodes:
        return nodes_of(self._zookeeper)

    def _content(self, name: str) -> bytes | None:
        node = self._zookeeper.read(f"{CLIENT}/{name}")
        return node.data if node else None

    def _is_run(self) -> bool:
        node = self._zookeeper.read(running_path(DESTINATION))
        own = f":{self._server.server_port}"
        if node is None or not owner_of(node.data).endswith(own):
            return False
        # The server creates two nodes: as a candidate, and as the owner.
        return bool(self._zookeeper.children(candidates_path(DESTINATION)))

    def _receive(self, client: CanalClient) -> Message:
        """Receive a row, which is not acked, with the end of its transaction."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            message = client.get(100, GET_S)
            if any(each.entry_type == EntryType.ROWDATA for each in message.entries):
                return message
            if message:
                client.ack(message.id)
            assert time.monotonic() < give_up_at, "nothing arrived"

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at, f"{what} never happened"
            time.sleep(POLL_S)
