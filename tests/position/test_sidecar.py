"""GTID sets with tags: next to the cursors, and not in them."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import (
    EntryPosition,
    Executed,
    LogIdentity,
    LogPosition,
)
from canal_server.position import sidecar
from canal_server.position.file_meta import MetaFiles
from canal_server.position.meta_file import abridged, encode
from canal_server.position.node_json import encode_cursor
from canal_server.position.stored_meta import StoredClient
from canal_server.position.zookeeper_meta import MetaNodes
from canal_server.runtime.lifecycle import Stop

ONE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TWO = "c0ffee00-0000-11ee-8000-00000000cafe"
CLIENT = ClientIdentity("example", 1001)
PLAIN = f"{ONE}:1-7,{TWO}:1-5"
TAGGED = f"{ONE}:1-7:blue:1-3:9:red:4,{TWO}:1-5"


def position(gtids, offset=4):
    """Return a position on one server."""
    return LogPosition(
        LogIdentity("127.0.0.1", 3306),
        EntryPosition("bin.000001", offset, 1700000000000, 1, gtids),
    )


WHOLE = position(TAGGED)
CURSOR = position(PLAIN)
# Of a client that has acked nothing: the first event to deliver.
FIRST = replace(CURSOR, position=replace(CURSOR.position, included=True))


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        (TAGGED, PLAIN),
        (PLAIN, PLAIN),
        (f"{ONE}:blue:1-3", ""),
        (f"{ONE}:blue:1-3,{TWO}:5", f"{TWO}:5"),
        (f"{ONE}:_b2:1:3-4:7,{ONE}:8", f"{ONE}:8"),
        ("abcdefab-abcd-abcd-abcd-abcdefabcdef:1-2:3", None),
        (f" {ONE}:1 : Blue : 2 - 3 ,\n{TWO}:5", f" {ONE}:1 ,\n{TWO}:5"),
        ("0-1-5,1-2-3", None),
        ("", ""),
    ],
)
def test_abridged(whole, short):
    """Tags are dropped with their intervals, and so is a server without others."""
    expected = whole if short is None else short
    assert abridged(position(whole)).position.gtid == expected


def test_no_set_is_an_empty_one():
    """Without a set, the Java server's JSON has an empty text."""
    assert abridged(position(None)) == position("")


def test_an_acked_event_to_the_original():
    """No cursor names a first event to deliver: the Java server would fail at it."""
    assert abridged(FIRST) == CURSOR


def test_abridged_is_what_has_no_tag(rng):
    """What is left of any set are exactly the transactions without a tag."""
    for _ in range(200):
        plain, tagged = GtidSet(), GtidSet()
        for _ in range(rng.randint(1, 30)):
            sid = bytes([rng.randint(0xA8, 0xAC)]) * 16
            tag = rng.choice(["", "", "a", "_", "abc12"])
            number = rng.randint(1, 20)
            tagged.add(sid, number, tag)
            if not tag:
                plain.add(sid, number)
        assert abridged(position(str(tagged))).position.gtid == str(plain)


def test_content():
    """The content is one JSON object, which is read even with unknown keys."""
    entries = [position(TAGGED), position(TAGGED, 8)]
    content = sidecar.encode(entries)
    assert json.loads(content)["entries"][0]["position"]["postion"]["gtid"] == TAGGED
    assert sidecar.decode(content) == entries
    grown = json.loads(content)
    grown["new"] = grown["entries"][0]["new"] = {"x": 1}
    assert sidecar.decode(json.dumps(grown).encode()) == entries
    both = {7: entries, 1001: entries[:1]}
    assert sidecar.decode_clients(sidecar.encode_clients(both)) == both


EXECUTED = Executed("binlog.000001", 100, 131, PLAIN)


def test_content_of_executed_sets():
    """Outside of GTID mode a set is stored next to the position, with its boundary."""
    entry = replace(position(""), executed=EXECUTED)
    content = sidecar.encode([entry])
    assert json.loads(content)["entries"][0]["executed"] == {
        "event": 100,
        "gtids": PLAIN,
        "journalName": "binlog.000001",
        "stop": 131,
    }
    (found,) = sidecar.decode(content)
    assert found == entry
    assert found.executed == EXECUTED


def test_an_executed_set_belongs_to_its_cursor():
    """It applies only to the cursor that it was written for."""
    entry = replace(position("", 8), executed=EXECUTED)
    same, other = position("", 8), position("", 9)
    assert sidecar.completed(same, [entry]).executed == EXECUTED
    assert sidecar.completed(other, [entry]).executed is None


def test_held_with_executed_sets():
    """A cursor has a set next to it if one is known, else nothing."""
    known = replace(position("", 2), executed=EXECUTED)
    held = sidecar.Held(lambda each: known if each == known else each)
    held.stored("c", position("", 1))
    (found,) = held.entries("c", position("", 2))
    assert found.executed == EXECUTED
    held.tried("c", position("", 2))
    held.stored("c", position("", 2))
    assert held.entries("c", position("", 3)) == [known]


def test_idle_cursors_cost_nothing(monkeypatch):
    """A set is looked up and a text made only for cursors that have moved."""
    looked, made = [], []

    def completed(each):
        looked.append(each)
        return replace(each, executed=EXECUTED)

    def entry_to_json(each):
        made.append(each)
        return to_json(each)

    to_json = sidecar.entry_to_json
    monkeypatch.setattr(sidecar, "entry_to_json", entry_to_json)
    held, encoder = sidecar.Held(completed), sidecar.Encoder()
    cursors = {n: position("", n) for n in range(1, 51)}
    # The cursor that moves is looked up with what the file has, then with its backup.
    steps = [(0, 50), (0, 0), (9, 2), (0, 2), (0, 1), (0, 0)]
    for moves_to, expected in steps:
        if moves_to:
            cursors[7] = position("", 7 * moves_to)
        looked.clear()
        made.clear()
        entries = {n: held.entries(n, each) for n, each in cursors.items()}
        content = encoder.encode(entries)
        assert (len(looked), len(made)) == (expected, expected)
        assert content == sidecar.encode_clients(entries)
        assert {n: each[-1] for n, each in entries.items()} == cursors
        for n, each in cursors.items():
            held.tried(n, each)
            held.stored(n, each)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"entries":1}', '{"entries":[{}]}', '{"clients":[{}]}', "\0" * 9],
)
def test_damage(content):
    """Any other content is an error."""
    for decode in (sidecar.decode, sidecar.decode_clients):
        with pytest.raises(ValueError, match=r".+"):
            decode(content.encode())


@pytest.mark.parametrize(
    ("cursor", "used"),
    [
        (CURSOR, True),
        (
            position(f"{TWO}:1-5,{ONE.upper()}:1-7"),
            True,
        ),  # unsorted by Java
        (replace(CURSOR, identity=LogIdentity("localhost", 3306)), True),
        (position(PLAIN, 8), False),
        (position(f"{ONE}:1-8,{TWO}:1-5"), False),
        (position(""), False),
        (replace(CURSOR, identity=LogIdentity("127.0.0.1", 3307)), False),
        (replace(CURSOR, position=replace(CURSOR.position, timestamp=1)), False),
        (replace(CURSOR, position=replace(CURSOR.position, server_id=2)), False),
    ],
)
def test_used_while_the_cursor_says_the_same(cursor, used):
    """A complete position matches a cursor that differs from it only in tags."""
    found = sidecar.completed(cursor, [position(TAGGED, 99), WHOLE])
    assert found == (WHOLE if used else cursor)


@pytest.mark.parametrize("cursor", [CURSOR, FIRST])
def test_a_first_cursor(cursor):
    """The start of a client stays known, even in the form of older versions."""
    assert sidecar.completed(cursor, [FIRST]) == FIRST


def test_held():
    """What a cursor may hold is stored from before its write until it is certain."""
    positions = [position(f"{TAGGED}:blue:{10 + 2 * n}", n) for n in range(9)]
    held = sidecar.Held()
    held.stored("c", positions[0])
    assert held.entries("c", positions[1]) == positions[:2]
    held.tried("c", positions[1])  # and failed
    assert held.entries("c", positions[2]) == positions[:3]
    held.tried("c", positions[2])
    held.stored("c", positions[2])  # the file before it may have been either
    assert held.entries("c", positions[3]) == positions[:4]
    held.tried("c", positions[3])
    held.stored("c", positions[3])
    assert held.entries("c", positions[4]) == positions[2:5]
    assert held.entries("c", CURSOR) == positions[2:4]
    held.forget("c")
    assert held.entries("c", positions[5]) == [positions[5]]


def test_held_is_bounded():
    """After many failures the first cursor is kept, which is the likeliest."""
    held = sidecar.Held()
    for number in range(100):
        held.tried("c", position(TAGGED, number))
    found = [each.position.position for each in held.entries("c", WHOLE)]
    assert found[0] == 0
    assert len(found) == sidecar.HELD_MAX + 1


# --- in files and nodes -------------------------------------------------------------


class Files:
    """Files of one destination."""

    def __init__(self, folder):
        self.folder = folder

    def storage(self):
        """Return a new reader and writer of cursors."""
        return MetaFiles(self.folder)

    def content(self, name):
        """Return what is stored."""
        return (self.folder / "example" / name).read_bytes()

    def put(self, name, content):
        """Store as another program does."""
        (self.folder / "example" / name).write_bytes(content)

    @staticmethod
    def cursor(position):
        """Return the Java server's content for a cursor."""
        return encode("example", [(CLIENT, position)])

    CURSOR = "meta.dat"


class Nodes:
    """Nodes of one destination."""

    def __init__(self, zookeeper):
        self.session = zookeeper

    def storage(self):
        """Return a new reader and writer of cursors."""
        return MetaNodes(self.session)

    def content(self, name):
        """Return what is stored."""
        return self.session.read(f"/otter/canal/destinations/example/{name}").data

    def put(self, name, content):
        """Store as another program does."""
        path = f"/otter/canal/destinations/example/{name}"
        self.session.write(path, content, self.session.read(path).version)

    @staticmethod
    def cursor(position):
        """Return the Java server's content for a cursor."""
        return encode_cursor(position)

    CURSOR = "1001/cursor"


SHELVES: dict[str, tuple[type[Files | Nodes], str]] = {
    "files": (Files, "tmp_path"),
    "nodes": (Nodes, "zookeeper"),
}


@pytest.fixture(params=SHELVES)
def shelf(request):
    """Return a storage with a tagged cursor in it."""
    kind, fixture = SHELVES[request.param]
    found = kind(request.getfixturevalue(fixture))
    cursors = found.storage()
    cursors.open(["example"], Stop())
    cursors.write("example", [StoredClient(CLIENT, WHOLE)])
    yield found
    cursors.close()


def stored(shelf):
    """Return the cursor as it is found after a restart."""
    cursors = shelf.storage()
    [client] = cursors.read("example")
    return client.cursor


def test_stored(shelf):
    """The Java server finds what it can read, this server finds everything."""
    assert shelf.content(shelf.CURSOR) == shelf.cursor(CURSOR)
    assert b"blue" not in shelf.content(shelf.CURSOR)
    assert stored(shelf) == WHOLE


def test_without_tags_there_is_nothing_beside(tmp_path):
    """A cursor that holds everything has nothing next to it."""
    cursors = Files(tmp_path).storage()
    cursors.write("example", [StoredClient(CLIENT, CURSOR)])
    names = sorted(path.name for path in (tmp_path / "example").iterdir())
    assert names == ["meta.dat"]


def test_moved_by_the_original(shelf):
    """A cursor that the Java server moved counts, and is written again."""
    moved = position(f"{ONE}:1-8,{TWO}:1-5", 8)
    shelf.put(shelf.CURSOR, shelf.cursor(moved))
    assert stored(shelf) == moved
    cursors = shelf.storage()
    cursors.read("example")
    cursors.write("example", [StoredClient(CLIENT, WHOLE)])
    assert stored(shelf) == WHOLE


def test_written_again_by_the_original(shelf):
    """A cursor that the Java server wrote unchanged keeps its tags."""
    same = LogPosition(
        LogIdentity("localhost", 3306),
        replace(CURSOR.position, gtid=f"{TWO}:1-5,{ONE}:1-7"),
    )
    shelf.put(shelf.CURSOR, shelf.cursor(same))
    assert stored(shelf) == WHOLE


@pytest.mark.parametrize("damage", [b"{", b"", b"\0" * 50, b'{"entries":[1]}'])
def test_damage_beside_a_cursor(shelf, damage, caplog):
    """It is logged and not used; the next write repairs it."""
    shelf.put(f"{shelf.CURSOR}.full", damage)
    assert stored(shelf) == CURSOR
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    shown = ["is damaged" in each.message for each in warnings]
    assert shown == ([True] if damage or isinstance(shelf, Files) else [])
    cursors = shelf.storage()
    cursors.read("example")
    cursors.write("example", [StoredClient(CLIENT, WHOLE)])
    assert stored(shelf) == WHOLE


def test_begins_with_an_event(shelf):
    """A client that has acked nothing begins where it began, even after a restart."""
    cursors = shelf.storage()
    cursors.read("example")
    cursors.write("example", [StoredClient(CLIENT, FIRST)])
    assert stored(shelf) == FIRST
    assert b'"included":false' in shelf.content(shelf.CURSOR)


def test_unsubscribed(zookeeper):
    """The node next to a cursor is removed with its client's node."""
    cursors = MetaNodes(zookeeper)
    cursors.write("example", [StoredClient(CLIENT, WHOLE)])
    cursors.write("example", [])
    assert zookeeper.children("/otter/canal/destinations/example") == []


def test_a_client_to_no_one_else(shelf):
    """Our nodes are below a client, or their names are not client ids."""
    if isinstance(shelf, Nodes):
        root = "/otter/canal/destinations/example"
        assert shelf.session.children(root) == ["1001"]
        assert shelf.session.children(f"{root}/1001") == ["cursor", "cursor.full"]
    else:
        names = sorted(path.name for path in (shelf.folder / "example").iterdir())
        assert names == ["meta.dat", "meta.dat.full"]
