"""What a conversation with a server asks of its connection, without doing it.

A conversation is a generator. It yields steps (send this, wait for a frame), is sent
their results, and gets their errors at the `yield`. Who drives it owns the socket:
`run` with a connection that blocks, `run_async` with one of asyncio. The rules of the
protocol are therefore written once (`session`, `message_stream`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from canal_server.protocol.framing import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from canal_server.client.connection.server_addresses import Address

T = TypeVar("T")


class Connection(Protocol):
    """A connection that blocks; raises OSError if the network fails."""

    def connect(
        self, address: Address, timeout_s: float, gives_up: Callable[[], bool]
    ) -> None:
        """Connect, after closing an earlier connection.

        Raises InterruptedError if it is interrupted and `gives_up` says so.
        """

    def send(self, data: bytes) -> None:
        """Send all of the data."""

    def receive(
        self, timeout_s: float | None, limit: int, *, wakeable: bool
    ) -> memoryview | None:
        """Wait for the next frame and return its body.

        None if a wakeable wait was interrupted before the frame began. Raises
        ProtocolError if the frame is longer than `limit` bytes, TimeoutError.
        """

    def expect(self) -> None:
        """Announce that a frame will arrive before `receive` is called."""

    def finish(self, timeout_s: float) -> None:
        """Wait until the server has processed all requests, then close."""

    def close(self) -> None:
        """Close at once."""

    def pause(self, seconds: float) -> None:
        """Wait; ends early when interrupted."""

    def call(self, work: Callable[[], object]) -> object:
        """Return the result of a function that blocks."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to an address, unless interrupted."""

    address: Address
    timeout_s: float
    gives_up: Callable[[], bool]

    def on(self, connection: Any) -> Any:
        """Do it."""
        return connection.connect(self.address, self.timeout_s, self.gives_up)


@dataclass(frozen=True, slots=True)
class Send:
    """Send frames."""

    data: bytes

    def on(self, connection: Any) -> Any:
        """Do it."""
        return connection.send(self.data)


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for a frame; the result is its body, or None if interrupted."""

    timeout_s: float | None
    limit: int = FRAME_BYTES_MAX
    wakeable: bool = False

    def on(self, connection: Any) -> Any:
        """Do it."""
        return connection.receive(self.timeout_s, self.limit, wakeable=self.wakeable)


@dataclass(frozen=True, slots=True)
class Expect:
    """Announce that a frame will arrive while the program does other things."""

    def on(self, connection: Any) -> Any:
        """Do it."""
        return connection.expect()


@dataclass(frozen=True, slots=True)
class Finish:
    """Wait until the server has processed everything, then close; never fails."""

    timeout_s: float

    def on(self, connection: Any) -> Any:
        """Do it."""
        return connection.finish(self.timeout_s)


@dataclass(frozen=True, slots=True)
class Close:
    """Close at once."""

    def on(self, connection: Any) -> Any:
        """Do it."""
        return connection.close()


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, unless interrupted."""

    seconds: float

    def on(self, connection: Any) -> Any:
        """Do it."""
        return connection.pause(self.seconds)


@dataclass(frozen=True, slots=True)
class Call:
    """Call a function that blocks, such as a query to ZooKeeper."""

    work: Callable[[], object]

    def on(self, connection: Any) -> Any:
        """Do it."""
        return connection.call(self.work)


Step: TypeAlias = Connect | Send | Receive | Expect | Finish | Close | Pause | Call
Steps: TypeAlias = "Generator[Step, Any, T]"


def run(steps: Steps[T], connection: Connection) -> T:
    """Drive a conversation with a connection that blocks; return its result."""
    try:
        step = next(steps)
        while True:
            try:
                result = step.on(connection)
            except BaseException as error:  # noqa: BLE001  # the conversation decides
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def run_async(steps: Steps[T], connection: Any) -> T:
    """Drive a conversation with a connection whose methods are coroutines."""
    try:
        step = next(steps)
        while True:
            try:
                result = await step.on(connection)
            except BaseException as error:  # noqa: BLE001  # also a cancellation
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
