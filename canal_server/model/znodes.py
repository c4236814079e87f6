"""The paths of the ZooKeeper nodes: those of the Java server, and ours.

::

    /otter/canal/cluster/<address>      a server, as long as its session lives
    /otter/canal/destinations/<destination>
        cluster/<address>               a server that may run it, as long as …
        running                         the server that runs it, as long as …
        lease-<session>                 the session may write here (ours)
        parse, <client id>/…            positions and cursors
        seen                            how long clients were disconnected (ours)

Leaves out their contents (`canal_server.ha`, `canal_server.position`).
"""

from __future__ import annotations

from typing import Final

ROOT: Final = "/otter/canal/destinations"
SERVERS: Final = "/otter/canal/cluster"


def server_path(address: str) -> str:
    """Return the path of the node that registers a server."""
    return f"{SERVERS}/{address}"


def destination_path(destination: str) -> str:
    """Return the path of the node of a destination."""
    return f"{ROOT}/{destination}"


def running_path(destination: str) -> str:
    """Return the path of the node that names the server running a destination."""
    return f"{ROOT}/{destination}/running"


def candidates_path(destination: str) -> str:
    """Return the path of the node whose children are servers that may run it."""
    return f"{ROOT}/{destination}/cluster"


def candidate_path(destination: str, address: str) -> str:
    """Return the path of the node that registers a server for a destination."""
    return f"{candidates_path(destination)}/{address}"


def seen_path(destination: str) -> str:
    """Return the path of the node that stores how long clients were disconnected."""
    return f"{ROOT}/{destination}/seen"


def lease_path(destination: str, session: int) -> str:
    """Return the path of the node without which a session must not write.

    The name contains the session, unlike that of `running`: a write that is checked
    against it cannot come from a server that lost the lease.
    """
    return f"{ROOT}/{destination}/lease-{session & (2**64 - 1):x}"
