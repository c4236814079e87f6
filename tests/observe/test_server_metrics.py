"""The metrics of destinations, leases and sessions, from what is known of each."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from observed import instance_metrics, reading_of

from canal_server.delivery.delivery_status import DeliveryStatus, State
from canal_server.instance.client_lags import IN_RING, ClientLag
from canal_server.observe.lease_metrics import lease_metrics
from canal_server.observe.server_metrics import server_metrics


def samples_of(metrics):
    """Return the values by name and labels; the destination is left out."""
    return {
        (
            each.name,
            *(v for k, v in sorted(each.labels.items()) if k != "destination"),
        ): each.value
        for metric in metrics
        for each in metric.samples
    }


def test_a_source():
    """Its table history, redeliveries, and unreadable events by their type."""
    found = instance_metrics()
    source = replace(
        found.sources[0],
        unreadable={(30, "skip"): 2, (31, "raw"): 1},
        repeated_transactions=3,
        repeated_rows=9,
        history_tables=40,
        history_bytes=4096,
        uncertain_tables=1,
    )
    samples = samples_of(
        server_metrics([reading_of(replace(found, sources={0: source}))])
    )
    events = "canal_instance_unreadable_events_total"
    assert samples[events, "skip", "0", "30"] == 2
    assert samples[events, "raw", "0", "31"] == 1
    assert samples["canal_instance_repeated_transactions_total", "0"] == 3
    assert samples["canal_instance_repeated_rows_total", "0"] == 9
    assert samples["canal_instance_history_tables", "0"] == 40
    assert samples["canal_instance_history_bytes", "0"] == 4096
    assert samples["canal_instance_uncertain_tables", "0"] == 1


def test_what_is_not_known_is_left_out():
    """A history in a database has no size here, a client no known distance."""
    client = ClientLag(7, IN_RING, connected=True)
    found = instance_metrics(clients=(client,))
    names = {name for name, *_ in samples_of(server_metrics([reading_of(found)]))}
    assert "canal_client_connected" in names
    assert not names & {
        "canal_client_lag_bytes",
        "canal_client_lag_transactions",
        "canal_client_lag_seconds",
        "canal_instance_history_bytes",
        "canal_instance_history_tables",
        "canal_instance_lost_clients",
        "canal_range_subscriptions",
    }


def test_a_client():
    """Its lag is shown in bytes and transactions, too."""
    client = ClientLag(7, IN_RING, connected=True, bytes=500, transactions=2)
    samples = samples_of(
        server_metrics([reading_of(instance_metrics(clients=(client,)))])
    )
    assert samples["canal_client_lag_bytes", "7"] == 500
    assert samples["canal_client_lag_transactions", "7"] == 2


def test_lost_clients_and_ranges():
    """They are counted; temporary subscriptions have no lag, as they come and go."""
    ranges = {
        "subscriptions": {
            "lake": {"temporary": False, "unacked_s": 90.0},
            "new": {"temporary": False, "unacked_s": None},
            "a1b2": {"temporary": True, "unacked_s": 3.0},
        },
        "from_memory": 5,
        "from_binlog": 1,
    }
    reading = reading_of(
        instance_metrics(), lost_clients={"7": "its position"}, ranges=ranges
    )
    samples = samples_of(server_metrics([reading]))
    assert samples["canal_instance_lost_clients",] == 1
    assert samples["canal_range_subscriptions",] == 3
    assert samples["canal_range_answers_total", "memory"] == 5
    assert samples["canal_range_answers_total", "binlog"] == 1
    lags = {
        key: v for key, v in samples.items() if key[0] == "canal_range_unacked_seconds"
    }
    assert lags == {("canal_range_unacked_seconds", "lake"): 90.0}


def test_leases():
    """Destinations have a lease each, and share the session; others have none."""
    session = {"servers": "zk1:2181", "state": "connected", "expired": 2}
    held = {"held": True, "certain_s": 50.5, "zookeeper": session}
    waits = {"held": False, "certain_s": 0.0, "zookeeper": session}
    readings = [
        reading_of(None, lease=held),
        replace(reading_of(None, lease=waits), destination="crm"),
        replace(reading_of(None, lease=None), destination="alone"),
    ]
    found = list(lease_metrics(readings))
    by_destination = {
        (each.name, each.labels.get("destination")): each.value
        for metric in found
        for each in metric.samples
    }
    assert by_destination == {
        ("canal_lease_held", "shop"): 1,
        ("canal_lease_held", "crm"): 0,
        ("canal_lease_certain_seconds", "shop"): 50.5,
        ("canal_lease_certain_seconds", "crm"): 0,
        ("canal_zookeeper_connected", None): 1,
        ("canal_zookeeper_expired_sessions_total", None): 2,
    }
    session["state"] = "suspended"
    assert (
        samples_of(lease_metrics(readings))["canal_zookeeper_connected", "zk1:2181"]
        == 0
    )


@pytest.mark.parametrize(
    ("state", "fails"),
    [
        (State.WAITING, False),
        (State.DELIVERING, False),
        (State.BLOCKED, True),
        (State.STOPPED, True),
    ],
)
def test_a_delivery(state: State, *, fails: bool) -> None:
    """Its state, and for how long it has been one in which nothing is delivered."""
    delivery = DeliveryStatus(
        queue="kafka at k:9092", state=state, reason="", since_ms=0, position="",
        in_flight=0, in_flight_bytes=0, batches=1, failures=2, too_large=0,
        topics={"shop": (3, 9)},
    )  # fmt: skip
    reading = reading_of(instance_metrics())
    status = {**reading.status, "delivery": delivery.as_json()}
    samples = samples_of(server_metrics([replace(reading, status=status)]))
    assert samples["canal_delivery_state", state.value] == 1
    failing_s = samples["canal_delivery_failing_seconds",]
    assert failing_s == pytest.approx(time.time() if fails else 0, abs=600)
    assert samples["canal_delivery_messages_total", "shop"] == 3
