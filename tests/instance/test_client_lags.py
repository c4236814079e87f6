"""How far each client lags, whatever serves it, and that all that watches shows it."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from observed import ago, instance_metrics, reading_of

from canal_server.alarms.alarm_conditions import AlarmLimits, conditions_of
from canal_server.instance.client_lags import (
    CATCHING_UP,
    CLIENT_STATES,
    EVICTED,
    IN_RING,
    LOST,
    ClientLag,
    client_lags,
    slowest_client,
)
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import (
    EntryPosition,
    LogIdentity,
    LogPosition,
    PositionRange,
)
from canal_server.observe.server_metrics import server_metrics
from canal_server.position.data_loss import LostClients
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.position.presence import Presence
from canal_server.source.pump.read_files import ReadFiles
from canal_server.store.counts import CursorCounts
from canal_server.web.destination_view import GTID_MAX, view_of

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
RINGED, AWAY, READ, REFUSED = 7, 8, 9, 10


class Clock:
    """A clock that is set."""

    now_s = 100.0

    def __call__(self) -> float:
        """Return its time."""
        return self.now_s


class Clients:
    """One client of each state; those outside of the ring acked some time ago."""

    def __init__(self) -> None:
        self.meta, self.clock = MemoryMetaManager(), Clock()
        self.presence = Presence(-1.0, clock=self.clock)
        self.lost = LostClients("shop", resets=False)
        self.passed: LogPosition | None = self.position(9000, 0)
        self.files = ReadFiles()
        store = instance_metrics().store
        cursor = CursorCounts(RINGED, 9, 6, 30, 1.5)
        self.store = replace(store, put_sequence=9, cursors=(cursor,))
        for client_id in (RINGED, AWAY, READ, REFUSED):
            self.meta.subscribe(ClientIdentity("shop", client_id))
            self.presence.enter(client_id)
        self.presence.on_connect(RINGED)
        self.presence.on_connect(READ)
        self.ack(AWAY, 100, 600)
        self.ack(READ, 200, 300)
        self.ack(REFUSED, 4, 9000)
        self.lost.refuse_because(ClientIdentity("shop", REFUSED), "nothing is known")

    def position(self, offset: int, seconds: float, gtid: str = "") -> LogPosition:
        """Return a position, of a transaction that was committed before now."""
        position = EntryPosition("bin.000007", offset, ago(seconds), 1, gtid)
        return LogPosition(LogIdentity("db", 3306), position)

    def ack(self, client_id: int, offset: int, seconds: float, gtid: str = "") -> None:
        """Have a client ack up to a position."""
        self.meta.update_cursor(
            ClientIdentity("shop", client_id), self.position(offset, seconds, gtid)
        )

    def lags(self) -> dict[int, ClientLag]:
        """Return all of them."""
        found = client_lags(
            self.meta.subscriptions("shop"),
            self.meta,
            self.store,
            {AWAY: False, READ: True},
            self.lost,
            self.presence,
            SimpleNamespace(passed_to=self.passed, files=self.files),
        )
        return {each.client_id: each for each in found}


def test_each_client_has_a_lag() -> None:
    """Clients that the ring does not serve lag since the commit of their cursor."""
    clients = Clients()
    clients.clock.now_s = 160.0
    found = clients.lags()
    assert {each.client_id: each.state for each in found.values()} == {
        RINGED: IN_RING,
        AWAY: EVICTED,
        READ: CATCHING_UP,
        REFUSED: LOST,
    }
    assert set(CLIENT_STATES) == {each.state for each in found.values()}
    ringed = found[RINGED]
    assert (ringed.lag_s, ringed.entries, ringed.rows) == (1.5, 3, 30)
    assert (ringed.connected, ringed.away_s) == (True, None)
    away = found[AWAY]
    assert away.lag_s == pytest.approx(600, abs=60)
    assert (away.connected, away.away_s, away.entries) == (False, 60.0, None)
    assert found[READ].lag_s == pytest.approx(300, abs=60)
    assert found[READ].connected
    assert found[REFUSED].lag_s == pytest.approx(9000, abs=60)


def test_where_a_client_stands() -> None:
    """What it was sent is the end of the last batch that it has not acked."""
    clients = Clients()
    identity = ClientIdentity("shop", AWAY)
    sent = clients.lags()[AWAY]
    assert (sent.sent, sent.open_batches) == (None, 0)
    for offset in (200, 300):
        start, end = clients.position(100, 60), clients.position(offset, 30)
        clients.meta.add_batch(identity, PositionRange(start, end, end, offset))
    sent = clients.lags()[AWAY]
    assert (sent.sent, sent.open_batches) == (end, 2)
    reading = reading_of(instance_metrics(clients=(sent, clients.lags()[RINGED])))
    away, ringed = view_of(reading)["clients"]
    assert away["acked"]["position"] == "bin.000007:100"
    assert away["sent"]["position"] == "bin.000007:300"
    assert away["sent"]["source"] == "db:3306"
    assert (ringed["acked"], ringed["sent"], ringed["open_batches"]) == (None, None, 0)


def test_a_large_gtid_set_is_left_out() -> None:
    """The list of clients is asked for every two seconds; positions have it whole."""
    clients = Clients()
    for characters, is_shown in ((GTID_MAX, True), (GTID_MAX + 1, False)):
        clients.ack(AWAY, 100, 600, "g" * characters)
        reading = reading_of(instance_metrics(clients=(clients.lags()[AWAY],)))
        (away,) = view_of(reading)["clients"]
        assert (away["acked"]["gtid"] is not None) is is_shown


def test_a_client_that_lacks_nothing() -> None:
    """Its lag does not grow while the source is idle; elsewhere it may lack much."""
    clients = Clients()
    clients.passed = clients.position(100, 600)
    assert clients.lags()[AWAY].lag_s == 0.0
    other = LogIdentity("other", 3306)
    clients.passed = LogPosition(other, EntryPosition("bin.000001", 4, 0))
    assert clients.lags()[AWAY].lag_s == pytest.approx(600, abs=60)
    clients.passed = None  # nothing was read yet
    assert clients.lags()[AWAY].lag_s == pytest.approx(600, abs=60)


def test_bytes_and_transactions() -> None:
    """They are known from positions; one that acked all lacks none."""
    clients = Clients()
    clients.ack(AWAY, 100, 600, f"{UUID}:1-5")
    clients.passed = clients.position(9000, 0, f"{UUID}:1-8")
    found = clients.lags()
    assert (found[AWAY].bytes, found[AWAY].transactions) == (8900, 3)
    assert (found[READ].bytes, found[READ].transactions) == (8800, None)  # no set
    assert (found[RINGED].bytes, found[RINGED].transactions) == (None, None)
    cursor = replace(clients.store.cursors[0], ack_sequence=9)
    clients.store = replace(clients.store, cursors=(cursor,))
    ringed = clients.lags()[RINGED]
    assert (ringed.bytes, ringed.transactions) == (0, 0)
    huge = ",".join(f"{number:08x}{UUID[8:]}:1-5" for number in range(200))
    clients.passed = clients.position(9000, 0, huge)
    found = clients.lags()
    assert (found[AWAY].bytes, found[AWAY].transactions) == (8900, None)


def test_the_slowest() -> None:
    """The status names the one that lags most, and since when it is not connected."""
    clients = Clients()
    clients.clock.now_s = 160.0
    found = slowest_client(tuple(clients.lags().values()))
    assert found is not None
    assert found["client"] == AWAY
    assert found["seconds"] == pytest.approx(600, abs=60)
    assert (found["entries"], found["connected"], found["away_s"]) == (None, False, 60)
    assert slowest_client([clients.lags()[RINGED]]) == {
        "client": RINGED,
        "entries": 3,
        "seconds": 1.5,
        "connected": True,
        "away_s": None,
    }
    acked = replace(clients.lags()[RINGED], entries=0, lag_s=0.0)
    assert slowest_client([acked]) is None
    assert slowest_client([replace(found_of(clients, AWAY), lag_s=0.0)]) is None


def found_of(clients: Clients, client_id: int) -> ClientLag:
    """Return one of them."""
    return clients.lags()[client_id]


def test_metrics_rest_and_alarms_show_the_same() -> None:
    """No client disappears from what watches once the ring no longer serves it."""
    clients = Clients()
    lags = clients.lags()
    reading = reading_of(
        instance_metrics(clients=tuple(lags.values())),
        clients=list(lags),
        lost_clients=clients.lost.as_json(),
    )
    samples = {
        (each.name, each.labels["client"], each.labels.get("state")): each.value
        for metric in server_metrics([reading])
        for each in metric.samples
        if "client" in each.labels
    }
    shown = {each["client_id"]: each for each in view_of(reading)["clients"]}
    for client_id, lag in lags.items():
        name = str(client_id)
        assert samples["canal_client_lag_seconds", name, None] == lag.lag_s
        assert samples["canal_client_state", name, lag.state] == 1
        assert shown[client_id]["lag_s"] == lag.lag_s
        assert shown[client_id]["state"] == lag.state
    limits = AlarmLimits(client_lag_s=60.0)
    raised = {
        (each.kind, each.about): each.text
        for each in conditions_of(reading, limits, time.time())
    }
    assert set(raised) == {
        ("client_lag", str(AWAY)),
        ("client_lag", str(READ)),
        ("client_lost", str(REFUSED)),
    }
    assert "nothing is known" in raised["client_lost", str(REFUSED)]
