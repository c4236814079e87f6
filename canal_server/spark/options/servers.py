"""Finds the server that runs a destination, and keeps using it while it does.

A request is sent to the servers of option `servers` in turn until one answers, for up
to `retryTimeoutMs`. Every request of ranged reads may be repeated, so a broken
connection costs only time.
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
# The claim of a killed query ends with its connection, which the server notices with a
# short delay.
BUSY_TIMEOUT_S: Final = 15.0
CONNECT_TIMEOUT_S: Final = 10.0


class Patience:
    """The time for which consecutive failures are tolerated, and the pauses in between.

    A stop ends it.
    """

    def __init__(self, timeout_s: float, stop: Stop | None = None) -> None:
        self._timeout_s = timeout_s
        self._stop = stop
        self._deadline: Deadline | None = None  # since the first failure
        self._backoff = Backoff(FIRST_DELAY_S, DELAY_MAX_S)

    def renew(self) -> None:
        """Reset the time after a success."""
        self._deadline = None
        self._backoff.reset()

    def wait_to_retry(self) -> bool:
        """Wait before a retry; false if it has failed for too long."""
        if self._deadline is None:
            self._deadline = Deadline(self._timeout_s)
        if self._deadline.passed():
            return False
        delay_s = self._backoff.delay_s(time.monotonic())
        delay_s = min(delay_s, self._deadline.remaining_s() or 0.0)
        if self._stop is not None:
            return not self._stop.wait(delay_s)
        # Nothing could wake this: Spark kills the process at the end of the query.
        time.sleep(delay_s)
        return True


class Channel:
    """The access to one destination; for one thread.

    `greet` is called with each new connection before its first request. A stop ends the
    wait for a server.
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
        self._turn = 0  # index of the current server
        self.relays = True  # whether the server accepts the form `binlog`
        self._client: RangedClient | None = None

    @property
    def server(self) -> Address:
        """The current or next server."""
        return self._options.servers[self._turn % len(self._options.servers)]

    def call(self, request: Callable[[RangedClient], T]) -> T:
        """Return the result of a request to whichever server answers it.

        Raises ClientError if it is refused, ProtocolError if the other side is not such
        a server, and the last OSError or ClientError if no server answers in time.
        """
        patience = self.patience()
        busy = Deadline(BUSY_TIMEOUT_S)
        problems: dict[Address, Exception] = {}  # the last problem of each server
        while True:
            try:
                return request(self._connected())
            except ClientError as error:
                is_busy = error.code == IN_USE and not busy.passed()
                if error.code == REFUSED:
                    raise ClientError(self._message(error), code=REFUSED) from error
                if error.code != NOT_HERE and not is_busy:
                    raise
                problem: Exception = error
            except ProtocolError as error:
                raise ProtocolError(
                    f"{self._message(error)}; check that option servers has the "
                    "address and port of a canal-server"
                ) from error
            except OSError as error:
                problem = error
            problems[self.server] = problem
            self.leave(problem)
            if not patience.wait_to_retry():
                raise self._timed_out(problem, problems)

    def patience(self) -> Patience:
        """Return the configured patience with consecutive failures."""
        return Patience(self._options.retry_timeout_ms / 1000, self._stop)

    def another(self) -> Channel:
        """Return another channel to the destination, to use while this one reads."""
        return Channel(self._options, self.destination, stop=self._stop)

    def leave(self, problem: Exception) -> None:
        """Leave the current server, and switch to the next one."""
        log.info("%s: server %s: %s", self.destination, self.server, problem)
        self.close()
        self._turn += 1
        self.relays = True

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
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
                tls=options.tls,
                tls_ca_file=options.tls_ca_file,
                tls_cert_file=options.tls_cert_file,
                tls_key_file=options.tls_key_file,
            )
            client.connect()
            self._client = client
            if self._greet is not None:
                self._greet(client)
        return self._client

    def _message(self, problem: Exception) -> str:
        """Return a problem with its server and destination."""
        server = f"{self.server}: "
        return f"destination {self.destination} at {server}" + str(
            problem
        ).removeprefix(server)

    def _timed_out(
        self, problem: Exception, problems: Mapping[Address, Exception]
    ) -> Exception:
        """Return the last error, with the answer of each server.

        The last answer may only be that the server does not run the destination, while
        another server reports why it cannot answer.
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
            f"no server runs destination {self.destination}: tried {servers} for "
            f"{seconds:g} s (retryTimeoutMs), the last {last}"
        )
        if isinstance(problem, ClientError):
            return ClientError(text, code=problem.code)
        return ConnectionError(text)


# --------------------------------------------------------------------------------
# In executors
# --------------------------------------------------------------------------------

# A Spark worker process executes one task after another: their connections are kept
# here in between. By process id, because a child must not use those of its parent.
_kept: dict[tuple[int, SourceOptions, str], Channel] = {}
KEPT_MAX: Final = 16


def kept_channel(options: SourceOptions, destination: str) -> Channel:
    """Return the channel to a destination that this process keeps."""
    key = (os.getpid(), options, destination)
    channel = _kept.get(key)
    if channel is None:
        if len(_kept) >= KEPT_MAX:
            _kept.pop(next(iter(_kept))).close()
        channel = _kept[key] = Channel(options, destination)
    return channel
