"""The metrics of leases on destinations, and of the ZooKeeper sessions they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.doors.prometheus.metric_families import Families

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.doors.prometheus.metric_families import Metric
    from canal_server.observe.readings import Reading


def lease_metrics(readings: Sequence[Reading]) -> Iterator[Metric]:
    """Yield them, as the status has them; none of a server without ZooKeeper."""
    families = Families()
    sessions = {}  # destinations share them
    for reading in readings:
        lease = reading.status.get("lease")
        if lease is None:
            continue
        families.gauge(
            "canal_lease_held",
            "Whether this server certainly has the right to run the destination",
            float(lease["held"]),
            destination=reading.destination,
        )
        families.gauge(
            "canal_lease_certain_seconds",
            "For how long the lease is certainly held if ZooKeeper answers no more; 0"
            " if it is not held",
            lease["certain_s"],
            destination=reading.destination,
        )
        sessions[lease["zookeeper"]["servers"]] = lease["zookeeper"]
    for servers, session in sessions.items():
        families.gauge(
            "canal_zookeeper_connected",
            "Whether there is a connection to ZooKeeper",
            float(session["state"] == "connected"),
            zookeeper=servers,
        )
        families.counter(
            "canal_zookeeper_expired_sessions_total",
            "Sessions with ZooKeeper that ended, after which other servers may run the"
            " destinations",
            session["expired"],
            zookeeper=servers,
        )
    yield from families.all()
