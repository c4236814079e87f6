"""Where things stand in ZooKeeper: the paths of the original's nodes, and ours.

::

    /otter/canal/cluster/<address>      a server, as long as its session lives
    /otter/canal/destinations/<destination>
        cluster/<address>               a server that may run it, as long as …
        running                         who runs it, as long as …
        lease-<session>                 that the session may write here (ours)
        parse, <client id>/…            positions and cursors
        seen                            for how long clients were away (ours)

Leaves out what is in them (`canal_server.ha`, `canal_server.position`).
"""

from __future__ import annotations

from typing import Final

ROOT: Final = "/otter/canal/destinations"
SERVERS: Final = "/otter/canal/cluster"


def server_path(address: str) -> str:
    """Return the node that says that a server is there."""
    return f"{SERVERS}/{address}"


def destination_path(destination: str) -> str:
    """Return the node of a destination."""
    return f"{ROOT}/{destination}"


def running_path(destination: str) -> str:
    """Return the node that says who runs a destination."""
    return f"{ROOT}/{destination}/running"


def candidates_path(destination: str) -> str:
    """Return the node whose children are servers that may run a destination."""
    return f"{ROOT}/{destination}/cluster"


def candidate_path(destination: str, address: str) -> str:
    """Return the node that says that a server may run a destination."""
    return f"{candidates_path(destination)}/{address}"


def seen_path(destination: str) -> str:
    """Return the node that says for how long the clients of a destination were away."""
    return f"{ROOT}/{destination}/seen"


def lease_path(destination: str, session: int) -> str:
    """Return the node without which a session must not write to a destination.

    The name differs from session to session, as that of `running` does not: a write
    that is checked against it cannot be one of a server that lost the lease.
    """
    return f"{ROOT}/{destination}/lease-{session & (2**64 - 1):x}"
