"""Finds the server that runs a destination, by the ZooKeeper of its cluster."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from canal_server.client.connection.server_addresses import Address, parse_address
from canal_server.errors import ZooKeeperError
from canal_server.model import running, znodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.doors.zookeeper import ZooKeeper

_ANSWER_S: Final = 5.0  # for each answer of ZooKeeper; `stop` waits for one
_NO_PORT: Final = 11111  # canal's, for a node that names none


class RunningServer:
    """Reads and watches the node `running` of a destination.

    `changed` is called, on a thread of its own, when the node may have changed. The
    session with ZooKeeper begins with the first `find`. Its methods block.
    """

    def __init__(
        self, servers: str, destination: str, changed: Callable[[], None]
    ) -> None:
        self._servers = servers
        self._destination = destination
        self._changed = changed
        self._zookeeper: ZooKeeper | None = None

    def find(self) -> Address:
        """Return the server, and watch for another one.

        Raises ConnectionError if none runs, or if ZooKeeper does not answer in 5 s.
        """
        path = znodes.running_path(self._destination)
        try:
            zookeeper = self._session()
            node = zookeeper.watch(path, self._notice)
            found = running.decode(node.data if node else None)
            # A Java server may start a destination only when a client asks for it.
            names = (
                [found.address]
                if found
                else zookeeper.children(znodes.candidates_path(self._destination))
            )
        except ZooKeeperError as error:
            raise ConnectionError(str(error)) from error
        if not names:
            raise ConnectionError(
                f"no server runs destination {self._destination}: {path} in ZooKeeper"
                f" at {self._servers} does not exist"
            )
        name = random.choice(names)  # noqa: S311  # no secret
        try:
            return parse_address(name, _NO_PORT)
        except ValueError as error:
            raise ConnectionError(
                f"{path} in ZooKeeper at {self._servers} names {name[:200]!r}, expected"
                " an address such as 10.0.0.1:11111"
            ) from error

    def _session(self) -> ZooKeeper:
        # Only clients of a cluster load kazoo.
        from canal_server.doors.zookeeper import ZooKeeper  # noqa: PLC0415

        if self._zookeeper is None:
            self._zookeeper = ZooKeeper(self._servers, request_timeout_s=_ANSWER_S)
            self._zookeeper.start()
        self._zookeeper.wait_for_connection(_ANSWER_S)
        return self._zookeeper

    def _notice(self, _: object) -> None:
        self._changed()

    def close(self) -> None:
        """End the session."""
        if self._zookeeper is not None:
            self._zookeeper.close()
            self._zookeeper = None
