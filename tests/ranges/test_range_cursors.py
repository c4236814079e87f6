"""Cursors of ranged reads and their epochs, in a file and in nodes of ZooKeeper."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from canal_server.doors.sqlite import Database
from canal_server.errors import MetaStoreError, NodeExists
from canal_server.model.ranges import Epoch, EpochPosition, Subscription
from canal_server.model.znodes import lease_path
from canal_server.ranges.range_cursors import (
    FILE_NAME,
    FORM,
    SubscriptionFile,
    SubscriptionNodes,
    Subscriptions,
)
from canal_server.runtime.lifecycle import Stop

AT = EpochPosition(0, "bin.000009", 4711)
LAKE = Subscription("lake", r"shop\..*", AT)
PATH = "/otter/canal/destinations/example/spark"


@pytest.fixture(params=["file", "nodes"])
def make_storage(request, tmp_path):
    """Yield `make()`: the storage, as another process would open it."""
    if request.param == "file":
        return lambda: SubscriptionFile(tmp_path / "example" / FILE_NAME)
    zookeeper = request.getfixturevalue("zookeeper")
    zookeeper.create(lease_path("example", zookeeper.session), ephemeral=True)
    return lambda: SubscriptionNodes(zookeeper, "example")


@pytest.fixture
def opened(make_storage):
    """Yield `open()`: subscriptions, started; the previous ones are stopped."""
    found: list[Subscriptions] = []

    def start():
        for each in found:
            each.stop()
        found.append(Subscriptions(make_storage()))
        found[-1].start(Stop())
        return found[-1]

    yield start
    for each in found:
        each.stop()


def test_a_temporary_one_is_in_memory_only(opened):
    """It moves and ends like others, and nothing of it is stored."""
    first = opened()
    first.put(replace(LAKE, temporary=True))
    assert first.ack("lake", replace(AT, position=9000))
    found = first.find("lake")
    assert found is not None
    assert found.cursor.position == 9000
    first.put(replace(LAKE, name="sea", temporary=True))
    assert first.remove("sea")
    assert opened().all() == []


def test_what_was_put_is_there_again(opened):
    """A subscription survives the process as it was stored last."""
    first = opened()
    assert (first.all(), first.find("lake"), first.epoch()) == ([], None, None)
    first.put(LAKE)
    other = Subscription("other.one", "", EpochPosition(0, "bin.000001", 4))
    first.put(other)
    again = opened()
    assert sorted(again.all(), key=lambda each: each.name) == [LAKE, other]
    changed = Subscription("lake", "", AT)
    again.put(changed)
    assert opened().find("lake") == changed


def test_the_set_of_a_cursor(opened):
    """The GTID set of a position is stored with the cursor there."""
    first = opened()
    first.put(LAKE)
    assert first.ack("lake", EpochPosition(1, "bin.000001", 4, gtids="0-1-7"))
    assert opened().find("lake").cursor.gtids == "0-1-7"


def test_acks_only_move_on(opened):
    """An ack before the cursor changes nothing; files are ordered by number."""
    found = opened()
    found.put(LAKE)
    for position, cursor in (
        (EpochPosition(0, "bin.000009", 4800), EpochPosition(0, "bin.000009", 4800)),
        (AT, EpochPosition(0, "bin.000009", 4800)),
        (EpochPosition(0, "bin.000010", 4), EpochPosition(0, "bin.000010", 4)),
        (EpochPosition(0, "bin.000009", 9000), EpochPosition(0, "bin.000010", 4)),
        (EpochPosition(1, "bin.000001", 4, 4), EpochPosition(1, "bin.000001", 4)),
    ):
        assert found.ack("lake", position)
        assert found.find("lake").cursor == cursor
    assert opened().find("lake").cursor == cursor
    assert not found.ack("nobody", AT)


def test_the_time_of_the_last_ack(make_storage):
    """It is stored with the cursor, and is that of acks which moved it."""

    def kept():
        (one,) = found.all()
        return one.acked_ms

    found = Subscriptions(make_storage(), clock=lambda: 1700.0)
    found.start(Stop())
    found.put(LAKE)
    assert kept() == 0
    found.ack("lake", EpochPosition(0, "bin.000010", 4))
    found.stop()
    found = Subscriptions(make_storage(), clock=lambda: 1800.0)
    found.start(Stop())
    assert kept() == 1_700_000
    found.ack("lake", AT)
    found.put(replace(found.all()[0], filter="a.b"))
    assert kept() == 1_700_000
    found.stop()


def test_a_file_of_the_first_form(tmp_path):
    """A file from a server without times is read, and used further."""
    path = tmp_path / "example" / FILE_NAME
    old = Database(path, replace(FORM, steps=FORM.steps[:1]))
    old.open()
    with old.transaction():
        old.execute(
            "INSERT INTO subscription VALUES (?, ?, 0, 'bin.000009', 4711)",
            ("lake", LAKE.filter),
        )
    old.close()
    found = Subscriptions(SubscriptionFile(path))
    found.start(Stop())
    assert found.all() == [LAKE]
    assert found.ack("lake", EpochPosition(0, "bin.000010", 4))
    found.stop()


def test_nothing_is_written_after_the_end(opened):
    """A request that is still running reopens nothing, and fails."""
    found = opened()
    found.put(LAKE)
    found.stop()
    for call in (
        lambda: found.ack("lake", EpochPosition(0, "bin.000010", 4)),
        lambda: found.put(Subscription("other", "", AT)),
        lambda: found.remove("lake"),
        lambda: found.begin_epoch("a", "bin.000001", 100),
    ):
        with pytest.raises(MetaStoreError, match="closed"):
            call()
    assert opened().all() == [LAKE]


def test_removed_for_good(opened):
    """A removed subscription stays removed, and may be created again."""
    found = opened()
    found.put(LAKE)
    assert found.remove("lake")
    assert not found.remove("lake")
    again = opened()
    assert again.all() == []
    again.put(LAKE)
    assert opened().all() == [LAKE]


def test_epochs_count_from_0(opened):
    """Each epoch has the next number, and the last one is known after a restart."""
    found = opened()
    assert found.begin_epoch("a", "bin.000001", 100) == Epoch(0, "a", "bin.000001", 100)
    found.put(LAKE)
    assert opened().begin_epoch("b", "bin.000007", 200).number == 1
    again = opened()
    assert again.epoch() == Epoch(1, "b", "bin.000007", 200)
    assert again.find("lake") == LAKE


def test_a_file_is_made_when_it_is_needed(tmp_path):
    """Without ranged reads there is no file; a damaged one is an error."""
    path = tmp_path / "example" / FILE_NAME
    found = Subscriptions(SubscriptionFile(path))
    found.start(Stop())
    assert not path.exists()
    found.put(LAKE)
    assert path.stat().st_mode & 0o777 == 0o600
    found.stop()
    with path.open("r+b") as file:
        file.write(os.urandom(4096))
    with pytest.raises(MetaStoreError, match="subscriptions"):
        Subscriptions(SubscriptionFile(path)).start(Stop())


def test_nodes_are_json(zookeeper_root, zookeeper):
    """The content of ZooKeeper is readable for people, and for the next server."""
    session = zookeeper.session
    zookeeper.create(lease_path("example", session), ephemeral=True)
    found = Subscriptions(SubscriptionNodes(zookeeper, "example"))
    found.start(Stop())
    found.begin_epoch("a", "bin.000001", 100)
    found.put(LAKE)
    epochs = [{"began_s": 100, "file": "bin.000001", "number": 0, "source": "a"}]
    assert json.loads(zookeeper.read(PATH).data) == epochs
    assert json.loads(zookeeper.read(f"{PATH}/lake").data) == {
        "cursor": {"epoch": 0, "journal": "bin.000009", "position": 4711},
        "filter": r"shop\..*",
    }
    found.stop()


def test_nothing_is_written_without_the_lease(zookeeper_root, zookeeper):
    """A server that lost the lease moves no cursor, and starts with none."""
    fence = lease_path("example", zookeeper.session)
    zookeeper.create(fence, ephemeral=True)
    found = Subscriptions(SubscriptionNodes(zookeeper, "example"))
    found.start(Stop())
    found.put(LAKE)
    zookeeper.delete(fence)
    with pytest.raises(MetaStoreError, match=r"lease|run"):
        found.ack("lake", EpochPosition(0, "bin.000010", 4))
    assert found.find("lake") == LAKE
    with pytest.raises(MetaStoreError, match=r"lease|run"):
        found.remove("lake")
    found.stop()
    with pytest.raises(MetaStoreError, match=r"lease|run"):
        Subscriptions(SubscriptionNodes(zookeeper, "example")).start(Stop())


def test_nodes_of_another_server_are_left(zookeeper_root, zookeeper):
    """What another client wrote meanwhile is kept; content that is not JSON fails."""
    zookeeper.create(lease_path("example", zookeeper.session), ephemeral=True)
    found = Subscriptions(SubscriptionNodes(zookeeper, "example"))
    found.start(Stop())
    found.put(LAKE)
    node = zookeeper.read(f"{PATH}/lake")
    zookeeper.write(f"{PATH}/lake", b"{}", node.version)
    with pytest.raises(MetaStoreError, match="another client"):
        found.ack("lake", EpochPosition(0, "bin.000010", 4))
    found.stop()
    with pytest.raises(MetaStoreError, match="not a valid subscription"):
        Subscriptions(SubscriptionNodes(zookeeper, "example")).start(Stop())
    with pytest.raises(NodeExists):
        zookeeper.create(f"{PATH}/lake")
