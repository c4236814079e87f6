"""Finds the server that runs a destination, and stays with it while it does.

A request goes to the servers of option `servers` in turn until one answers it, for as
long as option `retryTimeoutMs` says. Every request of ranged reads may be repeated,
so a connection that breaks costs time and nothing else.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Final, TypeVar

from canal_server.client.range_client import IN_USE, NOT_HERE, REFUSED, RangedClient
from canal_server.errors import ClientError, ProtocolError
from canal_server.runtime.backoff import Backoff
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.runtime.lifecycle import Stop
    from canal_server.spark.options.source_options import Address, SourceOptions

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_DELAY_S: Final = 0.05
DELAY_MAX_S: Final = 2.0
# The claim of a query that was killed ends when its connection does, which the server
# learns a moment later.
BUSY_TIMEOUT_S: Final = 15.0
CONNECT_TIMEOUT_S: Final = 10.0


class Patience:
    """For how long failures in a row are borne, and the pauses between them.

    A stop ends it.
    """

    def __init__(self, timeout_s: float, stop: Stop | None = None) -> None:
        self._timeout_s = timeout_s
        self._stop = stop
        self._deadline: Deadline | None = None  # from the first failure on
        self._backoff = Backoff(FIRST_DELAY_S, DELAY_MAX_S)

    def renew(self) -> None:
        """Take note of a success."""
        self._deadline = None
        self._backoff.reset()

    def bear(self) -> bool:
        """Wait before another try; false when it has failed for too long."""
        if self._deadline is None:
            self._deadline = Deadline(self._timeout_s)
        if self._deadline.passed():
            return False
        delay_s = self._backoff.delay_s(time.monotonic())
        delay_s = min(delay_s, self._deadline.remaining_s() or 0.0)
        if self._stop is not None:
            return not self._stop.wait(delay_s)
        # Nothing could wake this: Spark ends the process when the query is to end.
        time.sleep(delay_s)
        return True


class Channel:
    """The way to one destination; for one thread.

    `greet` is called with each new connection before anything else is asked on it. A
    stop ends what waits for a server.
    """

    def __init__(
        self,
        options: SourceOptions,
        destination: str,
        greet: Callable[[RangedClient], object] | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.destination = destination
        self._stop = stop
        self._options = options
        self._greet = greet
        self._turn = 0  # of which server
        self.relays = True  # the server; false when it refused the form `binlog`
        self._client: RangedClient | None = None

    @property
    def server(self) -> Address:
        """The server that is asked, or will be asked next."""
        return self._options.servers[self._turn % len(self._options.servers)]

    def call(self, request: Callable[[RangedClient], T]) -> T:
        """Return what a request returns, asked of whichever server answers it.

        Raises ClientError when it is refused, ProtocolError by what is no such server,
        and OSError or ClientError of the last try when no server answered in time.
        """
        patience = self.patience()
        busy = Deadline(BUSY_TIMEOUT_S)
        problems: dict[Address, Exception] = {}  # the last one of each server
        while True:
            try:
                return request(self._connected())
            except ClientError as error:
                is_busy = error.code == IN_USE and not busy.passed()
                if error.code == REFUSED:
                    raise ClientError(self._told(error), code=REFUSED) from error
                if error.code != NOT_HERE and not is_busy:
                    raise
                problem: Exception = error
            except ProtocolError as error:
                raise ProtocolError(
                    f"{self._told(error)}; see that option servers has the address and "
                    "the port of a canal-server"
                ) from error
            except OSError as error:
                problem = error
            problems[self.server] = problem
            self.leave(problem)
            if not patience.bear():
                raise self._given_up(problem, problems)

    def patience(self) -> Patience:
        """Return the patience with failures in a row that the options give."""
        return Patience(self._options.retry_timeout_ms / 1000, self._stop)

    def another(self) -> Channel:
        """Return one to the same destination, that is asked while this one is read."""
        return Channel(self._options, self.destination, stop=self._stop)

    def leave(self, problem: Exception) -> None:
        """Give the server at hand up, and turn to the next one."""
        log.info("%s: server %s: %s", self.destination, self.server, problem)
        self.close()
        self._turn += 1
        self.relays = True

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> RangedClient:
        if self._client is None:
            options = self._options
            timeout_s = options.request_timeout_ms / 1000
            client = RangedClient(
                *self.server,
                options.username,
                options.password,
                connect_timeout_s=min(CONNECT_TIMEOUT_S, timeout_s),
                timeout_s=timeout_s,
            )
            client.connect()
            self._client = client
            if self._greet is not None:
                self._greet(client)
        return self._client

    def _told(self, problem: Exception) -> str:
        """Return a problem with the server that has it, and the destination."""
        server = f"{self.server}: "
        return f"destination {self.destination} at {server}" + str(
            problem
        ).removeprefix(server)

    def _given_up(
        self, problem: Exception, problems: Mapping[Address, Exception]
    ) -> Exception:
        """Return the error of the last try, with what each server said.

        The last one may say only that it does not run the destination, and the one
        that does why it cannot answer.
        """
        servers = ", ".join(map(str, self._options.servers))
        seconds = self._options.retry_timeout_ms / 1000
        answers = "; ".join(
            f"{server}: {str(each).removeprefix(f'{server}: ')}"
            for server, each in problems.items()
        )
        last = f"answer was: {problem}"
        if len(problems) > 1:
            last = f"answers were: {answers}"
        text = (
            f"no server runs destination {self.destination}: {servers} were asked for "
            f"{seconds:g} s (retryTimeoutMs), the last {last}"
        )
        if isinstance(problem, ClientError):
            return ClientError(text, code=problem.code)
        return ConnectionError(text)


# --------------------------------------------------------------------------------
# In executors
# --------------------------------------------------------------------------------

# A worker process of Spark runs one task after the other: their connections are kept
# here from one to the next. By process, as a child must not use its parent's.
_kept: dict[tuple[int, SourceOptions, str], Channel] = {}
KEPT_MAX: Final = 16


def kept_channel(options: SourceOptions, destination: str) -> Channel:
    """Return the channel of this process to a destination."""
    key = (os.getpid(), options, destination)
    channel = _kept.get(key)
    if channel is None:
        if len(_kept) >= KEPT_MAX:
            _kept.pop(next(iter(_kept))).close()
        channel = _kept[key] = Channel(options, destination)
    return channel
