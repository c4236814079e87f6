"""A connection to RabbitMQ with one channel, driven by the calls of one thread.

Nothing here waits for a confirmation. What the broker answers comes in `run`.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from canal_server.queues.producers.queue_producer import BrokerUnavailableError
from canal_server.queues.producers.rabbit_settings import address_text
from canal_server.runtime.optional_packages import optional_module

if TYPE_CHECKING:
    from canal_server.queues.producers.rabbit_settings import RabbitSettings

logger = logging.getLogger(__name__)

CLOSE_S: Final = 1.0  # for the broker's answer when a connection is closed
STEP_S: Final = 0.05
_LIBRARY: Final = "pika"
_REPLY: Final = re.compile(r"\((\d+)\)\s*['\"](.*?)['\"]\)?$", re.DOTALL)
_NOT_FOUND: Final = 404
_REFUSED: Final = 403


class Answers(Protocol):
    """Takes what the broker says of messages."""

    def on_confirm(self, tag: int, *, multiple: bool, is_ack: bool) -> None:
        """Take the answer to a message, or to all up to this one."""

    def on_return(self, topic: str, body: bytes, why: str) -> None:
        """Take back a message that reached no queue; its confirmation comes later."""

    def on_lost(self, why: str) -> None:
        """Note that the connection ended, with all that was not confirmed."""


class RabbitConnection:
    """One connection: `open` it once, `close` or `abort` it once."""

    def __init__(
        self, settings: RabbitSettings, answers: Answers, *, purpose: str
    ) -> None:
        """Load the library. Raises CanalError when it is not installed."""
        self._pika = optional_module(_LIBRARY, purpose, extra="rabbitmq")
        select = optional_module(
            "pika.adapters.select_connection", purpose, extra="rabbitmq"
        )
        _keep_library_quiet()
        self._settings = settings
        self._answers = answers
        self._loop: Any = select.IOLoop()
        self._loop.activate_poller()
        self._make = _joining(select.SelectConnection)
        self._connection: Any = None
        self._channel: Any = None
        self._properties = self._pika.BasicProperties(
            content_type="text/plain", delivery_mode=2, priority=0
        )
        self._where = f"RabbitMQ at {settings.servers}"
        self.is_open = False  # with a channel for messages
        self.blocked = ""  # why the broker takes nothing now
        self._why = ""  # it was lost
        self._was_open = False
        self._is_ended = False  # the library is done with it

    # --- opening ----------------------------------------------------------------------

    def open(self, host: str, port: int, give_up_at: float) -> None:
        """Connect and log in. Raises BrokerUnavailableError."""
        where = self._where = f"RabbitMQ at {address_text(host, port)}"
        left_s = max(give_up_at - time.monotonic(), STEP_S)
        settings = self._settings
        tls = self._pika.SSLOptions(settings.tls, host) if settings.tls else None
        parameters = self._pika.ConnectionParameters(
            host,
            port,
            settings.virtual_host,
            self._pika.PlainCredentials(settings.username, settings.password),
            heartbeat=settings.heartbeat_s,
            ssl_options=tls,
            connection_attempts=1,
            socket_timeout=left_s,
            stack_timeout=left_s,
            client_properties={"connection_name": "canal-server"},
        )
        self._connection = self._make(
            parameters,
            on_open_callback=lambda _: None,
            on_open_error_callback=self._on_end,
            on_close_callback=self._on_end,
            custom_ioloop=self._loop,
        )
        self._connection.add_on_connection_blocked_callback(self._on_blocked)
        self._connection.add_on_connection_unblocked_callback(self._on_unblocked)
        while not self._connection.is_open and not self._is_ended:
            self._step(STEP_S)
            # The library has a limit of its own, with a better reason.
            if time.monotonic() > give_up_at + CLOSE_S:
                break
        if not self._connection.is_open:
            why = self._why or f"{where} does not answer in time"
            raise BrokerUnavailableError(why)
        self._was_open = True

    def open_channel(self, give_up_at: float) -> None:
        """Open a channel, again after one was closed. Raises BrokerUnavailableError."""
        self._why = ""
        opened: list[object] = []
        try:
            channel = self._connection.channel(on_open_callback=opened.append)
        except self._pika.exceptions.AMQPError as error:
            raise BrokerUnavailableError(f"{self._where}: {error}") from None
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_return_callback(self._on_return)
        self._channel = channel
        self._wait(opened, give_up_at)

    def call(self, method: str, give_up_at: float, **arguments: object) -> None:
        """Call a method of the channel, and wait until the broker has done it.

        Raises BrokerUnavailableError with the broker's reason; the channel is closed
        then.
        """
        done: list[object] = []
        try:
            getattr(self._channel, method)(callback=done.append, **arguments)
        except self._pika.exceptions.AMQPError as error:
            raise BrokerUnavailableError(f"{self._where}: {error}") from None
        self._wait(done, give_up_at)

    def confirm(self, give_up_at: float) -> None:
        """Have messages confirmed from now on. Raises BrokerUnavailableError."""
        self.call("confirm_delivery", give_up_at, ack_nack_callback=self._on_confirm)
        self.is_open = True

    def _wait(self, done: list[object], give_up_at: float) -> None:
        while not done and not self._why:
            if time.monotonic() > give_up_at:
                raise BrokerUnavailableError(f"{self._where} does not answer in time")
            self._step(STEP_S)
        if not done:
            raise BrokerUnavailableError(self._why)

    # --- running ----------------------------------------------------------------------

    def publish(self, topic: str, body: bytes, *, mandatory: bool = True) -> None:
        """Hand a message over: it is sent in `run`."""
        self._channel.basic_publish(
            self._settings.exchange, topic, body, self._properties, mandatory
        )

    @property
    def unsent_bytes(self) -> int:
        """Return how much was handed over and is not sent."""
        if not self.is_open:
            return 0
        return int(self._connection.unsent_bytes())

    def run(self, timeout_s: float) -> None:
        """Send and receive; waits for the first event."""
        self._step(timeout_s)

    def _step(self, timeout_s: float) -> None:
        """Run the loop once, as the library's own blocking connection does."""
        self._connection.write_frames()
        timer = self._loop.call_later(timeout_s, _nothing)
        self._loop.poll()
        self._loop.process_timeouts()
        self._loop.remove_timeout(timer)
        self._connection.write_frames()  # answers, and heartbeats

    # --- ending -----------------------------------------------------------------------

    def close(self) -> None:
        """Say good-bye, and disconnect."""
        if self._connection is not None and not self._is_ended:
            self.is_open = False
            if self._connection.is_open:
                self._connection.close()
            give_up_at = time.monotonic() + CLOSE_S
            while not self._is_ended and time.monotonic() < give_up_at:
                self._step(STEP_S)
        self.abort()

    def abort(self) -> None:
        """Disconnect at once: nothing of what is not sent will be."""
        self.is_open = False
        if self._connection is not None and not self._is_ended:
            error = self._pika.exceptions.StreamLostError("disconnected")
            # As the library itself ends a connection without heartbeats.
            self._connection._terminate_stream(error)  # noqa: SLF001
            give_up_at = time.monotonic() + CLOSE_S
            while not self._is_ended and time.monotonic() < give_up_at:
                self._step(0)
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    # --- what the library calls -------------------------------------------------------

    def _on_end(self, _: object, error: BaseException) -> None:
        self._is_ended = True
        found = self._reason_of(error)
        verb = "closed the connection" if self._was_open else "does not answer"
        self._lost(found or f"{self._where} {verb}: {_text_of(error)}")

    def _on_channel_closed(self, _: object, error: BaseException) -> None:
        found = self._reason_of(error)
        is_alone = isinstance(error, self._pika.exceptions.ChannelClosed)
        what = "channel" if is_alone else "connection"
        self._lost(found or f"{self._where} closed the {what}: {_text_of(error)}")

    def _lost(self, why: str) -> None:
        was_open, self.is_open = self.is_open, False
        self._why = self._why or why
        if was_open:
            self._answers.on_lost(self._why)

    def _on_blocked(self, _: object, frame: Any) -> None:
        why = frame.method.reason or "no reason"
        self.blocked = (
            f"{self._where} blocks publishers: {why}: free memory or disk of the"
            " broker, or raise its limits"
        )

    def _on_unblocked(self, *_: object) -> None:
        self.blocked = ""

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        is_ack = isinstance(method, self._pika.spec.Basic.Ack)
        self._answers.on_confirm(
            method.delivery_tag, multiple=method.multiple, is_ack=is_ack
        )

    def _on_return(self, _: object, method: Any, __: object, body: bytes) -> None:
        self._answers.on_return(method.routing_key, body, method.reply_text)

    # --- reasons ----------------------------------------------------------------------

    def _reason_of(self, error: BaseException) -> str:
        """Return why something ended, with the remedy; empty: there is no known one."""
        settings, errors = self._settings, self._pika.exceptions
        error = _innermost(error)
        code, text = _reply_of(error)
        if isinstance(error, errors.ProbableAuthenticationError):
            return (
                f"{self._where} refuses the account {settings.username}: {text}: check"
                " rabbitmq.username and rabbitmq.password"
            )
        if isinstance(error, errors.ProbableAccessDeniedError):
            return (
                f"{self._where} refuses the virtual host {settings.virtual_host}:"
                f" {text}: check rabbitmq.virtual.host, and the permissions of account"
                f" {settings.username} there"
            )
        if code == _NOT_FOUND and "exchange" in text:
            return (
                f"exchange {settings.exchange} does not exist in virtual host"
                f" {settings.virtual_host} of {self._where}: create it (durable), or"
                " set rabbitmq.queue, rabbitmq.routingKey and rabbitmq.deliveryMode as"
                " well, which declare it"
            )
        if code == _REFUSED:
            return (
                f"{self._where} refuses access to account {settings.username}: {text}:"
                " give it the permission (rabbitmqctl set_permissions)"
            )
        return ""


class _Details(logging.Handler):
    """Takes what the library logs: its errors are in those of messages and calls."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log it for those who look for details."""
        logger.debug("%s", record.getMessage())


def _joining(adapter: Any) -> Any:
    """Return a class of connections that write many frames at a time: faster.

    A message has three frames, and the library makes a system call for each.
    """

    class JoiningConnection(adapter):  # type: ignore[misc]
        """Collects frames; `write_frames` hands them to the socket."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            self._frames: list[bytes] = []
            self._frames_bytes = 0
            super().__init__(*arguments, **named)

        def _adapter_emit_data(self, data: bytes) -> None:
            self._frames.append(data)
            self._frames_bytes += len(data)

        def write_frames(self) -> None:
            """Write what was collected, unless the connection has ended."""
            if self._frames:
                data = b"".join(self._frames)
                self._frames.clear()
                self._frames_bytes = 0
                if self._transport is not None:
                    super()._adapter_emit_data(data)

        def unsent_bytes(self) -> int:
            """Return how much the socket has not taken."""
            return self._frames_bytes + int(self._get_write_buffer_size())

    return JoiningConnection


def _keep_library_quiet() -> None:
    library = logging.getLogger(_LIBRARY)
    if not any(isinstance(each, _Details) for each in library.handlers):
        library.addHandler(_Details())
        library.propagate = False
    # Below that, it logs each frame.
    library.setLevel(logging.INFO if logger.isEnabledFor(logging.DEBUG) else 100)


def _innermost(error: BaseException) -> BaseException:
    """Return the cause of an error that the library has wrapped, maybe repeatedly."""
    while True:
        inner = getattr(error, "exception", None)
        if inner is None and (several := getattr(error, "exceptions", None)):
            inner = several[-1]
        if inner is None and error.args and isinstance(error.args[0], BaseException):
            inner = error.args[0]
        if inner is None:
            return error
        error = inner


def _reply_of(error: BaseException) -> tuple[int, str]:
    """Return the code and text of the broker's reply; 0 and what else is known."""
    code = getattr(error, "reply_code", None)
    if isinstance(code, int):
        return code, str(getattr(error, "reply_text", "")).rstrip(".")
    if isinstance(error, OSError):
        return 0, error.strerror or str(error)
    text = str(error.args[0]) if error.args else type(error).__name__
    if found := _REPLY.search(text):
        return int(found[1]), found[2].rstrip(".")
    return 0, text


def _text_of(error: BaseException) -> str:
    code, text = _reply_of(_innermost(error))
    return f"{text} ({code})" if code else text


def _nothing() -> None:
    """Wake the loop."""
