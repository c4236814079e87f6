"""A client whose changes are purged: that it lost them has to be reported to it.

It acks one batch and stays away. At the end of a run the binlog is purged on both
servers of its source, and the canal-servers are restarted.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pymysql

from canal_server.client import CanalClient
from canal_server.errors import CanalError, ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from soak.cluster import Node
    from soak.sources import Source

    Ask = Callable[[CanalClient], str | None]

CLIENT_ID = 1009
TIMEOUT_S = 20.0
PATIENCE_S = 120.0
AGAIN_S = 0.5
REPORTED = "which the source no longer has"  # in what the server answers
# A dump whose reader no longer exists behind a silent link ends by net_write_timeout, a
# minute.
PURGE_S = 180.0


class LostClient:
    """The client of one source."""

    def __init__(self, source: Source, nodes: Sequence[Node]) -> None:
        self._source, self._nodes = source, nodes

    def begin(self) -> None:
        """Subscribe and ack something that was written. Raises TimeoutError."""
        said = self._asked(self._took)
        if said != "":
            raise TimeoutError(f"a client of {self._source.flavour}: {said}")

    def purge(self) -> None:
        """Have no binlog left but a new file, on both servers."""
        for server in self._source.servers:
            server.execute("FLUSH BINARY LOGS")
            file, _ = server.binlog_position()
            give_up_at = time.monotonic() + PURGE_S
            # A dump that ended may hold a file for a while.
            while str(server.execute("SHOW BINARY LOGS")[0][0]) != file:
                if time.monotonic() > give_up_at:
                    raise TimeoutError(f"{self._source.flavour} purges nothing")
                with contextlib.suppress(pymysql.err.MySQLError):
                    server.execute(f"PURGE BINARY LOGS TO '{file}'")
                time.sleep(AGAIN_S)

    def verdict(self) -> str:
        """Come again; returns what is wrong with what the server says to it."""
        said = self._asked(self._refused)
        if said == "":
            return ""
        return f"a client of {self._source.flavour} whose changes are purged: {said}"

    def _took(self, client: CanalClient) -> str | None:
        message = client.get(50, 1.0)
        if not message:
            return None
        client.ack(message.id)
        client.get(1)  # after which the ack was dealt with
        return ""

    def _refused(self, client: CanalClient) -> str | None:
        entries = client.get(50, 1.0).entries
        return f"it is given {len(entries)} entries, and no error" if entries else None

    def _asked(self, ask: Ask) -> str:
        """Ask all servers until one has a verdict: "" when all is well."""
        give_up_at = time.monotonic() + PATIENCE_S
        said = "no server answers"
        while time.monotonic() < give_up_at:
            for node in self._nodes:
                try:
                    with CanalClient(
                        "127.0.0.1", node.port, self._source.flavour, CLIENT_ID,
                        timeout_s=TIMEOUT_S,
                    ) as client:  # fmt: skip
                        client.subscribe(rf"{self._source.schema}\..*")
                        found = ask(client)
                except ClientError as error:
                    if REPORTED in str(error):
                        return "" if ask == self._refused else str(error)
                    said = str(error)
                except (OSError, CanalError) as error:
                    said = str(error)
                else:
                    if found is not None:
                        return found
                    said = "nothing comes, and no error"
            time.sleep(AGAIN_S)
        return said
