"""Where a catch-up reader may hand over, with a ring and a fake pump."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fix_store import StoreUnderTest

from canal_server.catchup.handoff import Handoff
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition

CLIENT = 1001
SID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SERVER = "one"


@pytest.fixture
def scene():
    """Give a handoff to a ring that has all after 1:99, and its pump."""
    pump: Any = SimpleNamespace(
        server=SERVER, whole_from=None, reads_after=(1, 99), reads_after_set=None
    )
    pump.begins_after = lambda acked: acked and acked.position
    t = StoreUnderTest()
    handoff = Handoff(t.store, pump, gtid_on=True)
    handoff.begin_run()
    return SimpleNamespace(pump=pump, handoff=handoff, t=t)


def meets(scene, position, gtids="", server=SERVER):
    """Return whether a client may be handed over there; it does not stay."""
    here = position, gtids, server
    met = scene.handoff.join(CLIENT, None, *here)
    assert scene.handoff.is_near(*here) is met
    scene.t.store.unsubscribe(CLIENT)
    return met


def test_by_position(scene):
    """Where the pump began at a position, it lacks what lies before it."""
    assert meets(scene, (1, 99))
    assert not meets(scene, (1, 98))
    assert meets(scene, (2, 0))


def test_another_server(scene):
    """Positions of another server are not valid, even at the same address."""
    assert not meets(scene, (1, 99), server="two")


@pytest.mark.parametrize(
    ("left_out", "enough", "too_little"),
    [
        (GtidSet.parse(f"{SID}:1-7"), f"{SID}:1-8", f"{SID}:1-6"),
        (MariaGtidSet.parse("0-1-7"), "0-1-7", "0-1-6"),
    ],
    ids=["mysql", "mariadb"],
)
def test_by_set(scene, left_out, enough, too_little):
    """Where it began by a set, a client must have all of the set, wherever it lies."""
    scene.pump.reads_after, scene.pump.reads_after_set = None, left_out
    scene.handoff.begin_run()
    assert meets(scene, (1, 4), enough)
    for gtids in (too_little, "", "no set"):
        assert not meets(scene, (9, 4), gtids)
    # From that file on nothing is left out.
    scene.pump.whole_from = 9
    assert meets(scene, (9, 4), too_little)
    assert not meets(scene, (8, 4), too_little)


def test_by_set_outside_of_gtid_mode(scene):
    """Sets of clients are not followed there: files that are whole decide alone."""
    left_out = GtidSet.parse(f"{SID}:1-7")
    scene.pump.reads_after, scene.pump.reads_after_set = None, left_out
    handoff = Handoff(scene.t.store, scene.pump, gtid_on=False)
    handoff.begin_run()
    assert not handoff.join(CLIENT, None, (9, 4), f"{SID}:1-8", SERVER)
    scene.pump.whole_from = 9
    assert handoff.join(CLIENT, None, (9, 4), "", SERVER)


def rejoins(scene, offset):
    """Return whether a client that has acked to a position finds what follows."""
    position = EntryPosition("bin.000001", offset)
    acked = LogPosition(LogIdentity("127.0.0.1", 3306), position)
    return scene.handoff.rejoin(CLIENT, None, acked)


def test_rejoin(scene):
    """One whose entries are all here needs no reader, one at a freed entry does."""
    assert not rejoins(scene, 99)
    assert rejoins(scene, 100)
    scene.t.entries.transaction(rows=1)
    scene.t.put()
    scene.t.ack_next(CLIENT, 3)  # at 0, 100 and 200
    assert not rejoins(scene, 200)
    assert rejoins(scene, 201)


def test_rejoin_without_a_position(scene):
    """A client whose position means nothing here does not find it in the ring."""
    scene.pump.begins_after = lambda _: None
    assert not rejoins(scene, 100)
    scene.pump.begins_after = lambda _: EntryPosition(gtid=f"{SID}:1-7")
    assert not rejoins(scene, 100)
    scene.pump.begins_after = lambda acked: acked.position
    scene.pump.server = ""  # no session has started
    assert not rejoins(scene, 100)
