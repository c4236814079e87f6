"""An iterating client in a thread of its own, whose changes are checked as they come.

::

    with following(writer, kind=AsyncCanalClient, host="zk://…") as follower:
        cluster.one.kill()
        follower.wait_for_more()
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self

from fix_pipeline import DESTINATION, UNIT_S
from followed_ledger import Followed
from load import Load

from canal_server.client import AsyncCanalClient, CanalClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledger import Writer

    from canal_server.client import Message

PATIENCE_S = 12 * UNIT_S
PAUSE_S = 0.05  # between two writes: all of it runs on the machine of the test
WAIT_S = 0.1  # for changes


class IteratingFollower:
    """The client and its thread; a context manager that starts and stops it."""

    def __init__(
        self,
        writer: Writer,
        kind: type[CanalClient | AsyncCanalClient],
        **options: Any,
    ) -> None:
        self.ledger = Followed(writer)
        self.servers: list[str] = []  # to which it connected
        self._whole = bool(options.get("whole_transactions"))
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self.client = kind(
            destination=DESTINATION,
            values="text",
            timeout_s=UNIT_S,
            on_connect=self.servers.append,
            on_redelivery=self.ledger.may_repeat,
            **options,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            if isinstance(self.client, CanalClient):
                with contextlib.closing(self.client):
                    for message in self.client.messages(timeout_s=WAIT_S):
                        self._take(message)
            else:
                asyncio.run(self._follow(self.client))
        except BaseException as error:  # noqa: BLE001  # shown by the test's own thread
            with self._changed:
                self._error = error
                self._changed.notify_all()

    async def _follow(self, client: AsyncCanalClient) -> None:
        async with aclosing(client.messages(timeout_s=WAIT_S)) as messages:
            async for message in messages:
                self._take(message)
        await client.close()

    def _take(self, message: Message) -> None:
        with self._changed:
            self.ledger.take(message.changes())
            assert not self._whole or self.ledger.is_at_end_of_transaction
            self._changed.notify_all()

    def wait_for_more(self, count: int = 50) -> None:
        """Wait until so many more changes arrived for the first time."""
        with self._changed:
            due = self.ledger.reached + count
            self._wait(lambda: self.ledger.reached >= due)

    def has_server(self, address: str, timeout_s: float) -> bool:
        """Wait for a change after a connection to this server; else false."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._error is not None or self.servers[-1] == address,
                timeout_s,
            )

    def wait_for_server(self, address: str) -> None:
        """Wait until a change arrived after the last connection, to this server."""
        with self._changed:
            self._wait(lambda: self.servers[-1] == address)

    def wait_for_all(self) -> None:
        """Wait until everything that was written arrived."""
        with self._changed:
            self._wait(lambda: self.ledger.is_complete)

    def _wait(self, condition: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._error or condition(), PATIENCE_S)
        if self._error:
            raise self._error
        assert condition(), f"{self.ledger.next} changes arrived from {self.servers}"


@contextlib.contextmanager
def following(
    writer: Writer, kind: type[CanalClient | AsyncCanalClient], **options: Any
) -> Iterator[IteratingFollower]:
    """Write transactions and follow them; in the end everything has arrived."""
    with IteratingFollower(writer, kind, **options) as follower:
        with Load(writer, PAUSE_S):
            yield follower
        follower.wait_for_all()
    ledger = follower.ledger
    print(
        f"{ledger.next} changes, {ledger.repeated} arrived again in {ledger.resumes}"
        f" redeliveries; servers: {follower.servers}"
    )
