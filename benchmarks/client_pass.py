"""Drains a destination once with the Python client; the task comes as JSON.

    port, destination, way, end     way: one of WAYS; end: the table that ends the load
    profile                         true: under Linux's `perf`

The answer on standard output: seconds from the first change to the last one, and of the
processor; resident memory now and at its highest; and the bytes of the largest message,
where messages are looked at; and the profile as text. Started by `client_programs`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, Literal

from cpu_profile import CpuProfile
from server_process import Memory

from canal_server.client import CanalClient

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_S = 30.0  # until the server listens
TAIL_BYTES = 4096  # the row that ends a load is within


class Pass:
    """One client, from the first change to the row that ends the load."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._options = {
            "port": task["port"],
            "destination": task["destination"],
            "reconnect_for_s": RETRY_S,
        }
        self._end: str = task["end"]
        self._first_at = self._first_cpu = 0.0
        self.seconds = self.cpu_seconds = 0.0
        self.message_bytes = 0
        self._profile = CpuProfile(os.getpid()) if task.get("profile") else None

    def typed(self, values: Literal["typed", "text"] = "typed") -> None:
        """Have the values of each row, in the types of Python."""
        end = self._end
        with closing(CanalClient(**self._options, values=values)) as client:
            changes = iter(client)
            next(changes).after  # noqa: B018  # decodes
            self._begin()
            for change in changes:
                change.after  # noqa: B018  # decodes
                if change.table == end:
                    break
            self._finish()

    def text(self) -> None:
        """Have the values of each row as texts."""
        self.typed("text")

    def keys(self) -> None:
        """Have the key of each row."""
        end = self._end
        with closing(CanalClient(**self._options)) as client:
            changes = iter(client)
            next(changes).key  # noqa: B018  # decodes
            self._begin()
            for change in changes:
                change.key  # noqa: B018  # decodes
                if change.table == end:
                    break
            self._finish()

    def count(self) -> None:
        """Count the rows of each message."""
        end = self._end.encode()
        with closing(CanalClient(**self._options)) as client:
            for message in client.messages():
                self._begin()
                message.rows  # noqa: B018  # counts
                self.message_bytes = max(self.message_bytes, len(message.body))
                if end in bytes(message.body[-TAIL_BYTES:]):
                    break
            self._finish()

    def arrow(self) -> None:
        """Have the rows of each message as record batches."""
        with closing(CanalClient(**self._options)) as client:
            for batch in client.arrow():
                self._begin()
                if batch.table == self._end:
                    break
            self._finish()

    def asynchronous(self) -> None:
        """Have typed values from the client of asyncio."""
        asyncio.run(self._asynchronous())

    async def _asynchronous(self) -> None:
        # The memory of the others is to be without asyncio.
        from canal_server.client import AsyncCanalClient  # noqa: PLC0415

        end = self._end
        client = AsyncCanalClient(**self._options)
        async with aclosing(client.changes()) as changes:
            (await anext(changes)).after  # noqa: B018  # decodes
            self._begin()
            async for change in changes:
                change.after  # noqa: B018  # decodes
                if change.table == end:
                    break
            self._finish()
        await client.close()

    @property
    def profile(self) -> str:
        """Where the time went; empty if it was not asked for."""
        return self._profile.text if self._profile else ""

    def _begin(self) -> None:
        if not self._first_at:
            if self._profile:
                self._profile.start()
            self._first_at, self._first_cpu = time.monotonic(), time.process_time()

    def _finish(self) -> None:
        self.seconds = time.monotonic() - self._first_at
        self.cpu_seconds = time.process_time() - self._first_cpu
        if self._profile:
            self._profile.stop()


WAYS: dict[str, Callable[[Pass], None]] = {
    "typed": Pass.typed,
    "text": Pass.text,
    "keys": Pass.keys,
    "count": Pass.count,
    "arrow": Pass.arrow,
    "asyncio": Pass.asynchronous,
}


def main() -> None:
    """Do the task of standard input."""
    task = json.load(sys.stdin)
    run = Pass(task)
    WAYS[task["way"]](run)
    memory = Memory.of(os.getpid())
    answer = {
        "seconds": run.seconds,
        "cpu_seconds": run.cpu_seconds,
        "memory": [memory.now, memory.highest],
        "message_bytes": run.message_bytes,
        "profile": run.profile,
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
