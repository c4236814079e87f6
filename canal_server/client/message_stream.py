"""Messages without end: over connections that break, acked by a policy.

Each method is a conversation (`io_steps`), so that the client that blocks and the one
of asyncio do the same. Leaves out the requests themselves (`session`).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from canal_server.client.ack_progress import NO_BATCH, AckProgress
from canal_server.client.client_options import check_positive, check_seconds
from canal_server.client.connection.io_steps import Call, Pause
from canal_server.client.connection.login import LoginRefused
from canal_server.client.connection.session import Session
from canal_server.client.received_message import Message
from canal_server.client.retries import RequestWait, Retries, is_transient
from canal_server.client.whole_transactions import WholeTransactions
from canal_server.errors import ClientError, ProtocolError, TransactionTooLarge
from canal_server.messages import client_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canal_server.client.client_options import ClientOptions
    from canal_server.client.connection.io_steps import Steps
    from canal_server.client.connection.running_server import RunningServer
    from canal_server.client.connection.server_addresses import Address
    from canal_server.client.readers import Readers
    from canal_server.client.whole_transactions import Piece

logger = logging.getLogger("canal_server.client")

_WAIT_S: Final = 1.0  # of one get for changes


class _MovedError(ConnectionError):
    """Another server runs the destination now."""


class MessageStream:
    """The messages of one subscription; for one thread, but for `stop`."""

    def __init__(
        self, options: ClientOptions, readers: Readers, wake: Callable[[], None]
    ) -> None:
        """Call `wake` to interrupt a wait of the connection."""
        self.session = Session(options, readers, lambda: self._is_stopped)
        self.filter = options.filter
        self._table_filter = ""  # of the table that is iterated over
        self._options = options
        self._wake = wake
        self._finder: RunningServer | None = None
        if options.zookeeper is not None:
            self._finder = self._new_finder(options.zookeeper)
        self._may_have_moved = False
        self._is_stopped = False
        self._whole = WholeTransactions() if options.whole_transactions else None
        self._held_since: float | None = None  # nothing arrived for its transaction
        self._batch_size = options.batch_size
        self._request_wait = RequestWait(_WAIT_S)
        self._nothing: Message | None = None  # is yielded when nothing arrived
        # Failures
        self._retries = Retries(options.reconnect_for_s)
        self._server: Address | None = None  # until its loss was reported
        self._ack_error: OSError | None = None
        self._progress = AckProgress(
            options.ack, ends_transactions=options.whole_transactions
        )
        self._newest: Message | None = None  # that was received; empty: all is here

    # ----------------------------------------------------------------------------
    # Stopping, and the state for the program
    # ----------------------------------------------------------------------------

    def stop(self) -> None:
        """End the iteration after the message at hand; from any thread."""
        self._is_stopped = True
        self._wake()

    def begin(
        self,
        batch_size: int | None,
        wait_s: float | None,
        *,
        empty: bool = False,
        table_filter: str = "",
    ) -> None:
        """Begin an iteration, which yields empty messages on demand.

        `table_filter` is subscribed to if the client has no filter of its own.

        What an earlier one had at hand when it ended, by an error or a break, is
        delivered again, unless the program acks by itself.
        """
        self._progress.begin_iteration()
        self._table_filter = table_filter
        if batch_size is not None:
            check_positive("batch_size", batch_size)
        if wait_s is not None:
            check_seconds("timeout_s", wait_s, zero=True)
        self._batch_size = batch_size or self._options.batch_size
        self._request_wait = RequestWait(_WAIT_S if wait_s is None else wait_s)
        self._nothing = Message(NO_BATCH, b"", self.session.readers) if empty else None

    def _notice_move(self) -> None:
        self._may_have_moved = True
        self._wake()

    @property
    def lag_s(self) -> float | None:
        """Seconds since the source executed the newest change received."""
        if self._newest is None:
            return None
        if not self._newest:
            return 0.0
        return max(0.0, time.time() - self._newest.commit_time_ms / 1000)

    # ----------------------------------------------------------------------------
    # Connecting
    # ----------------------------------------------------------------------------

    def connect(self) -> Steps[None]:
        """Connect, for requests one by one or an iteration. Raises the last error.

        Does nothing after `stop`, which also ends an attempt.
        """
        self._progress.iterates = False
        if self._is_stopped:
            return
        try:
            yield from self._connect()
        except InterruptedError:
            if not self._is_stopped:
                raise

    def _connect(self, *, subscribes: bool = False) -> Steps[None]:
        """Connect to the first server that accepts, also the subscription if wanted.

        Raises the error of the last server, or that of one that may accept it later.
        """
        yield from self.session.close()
        self._forget_handed()
        self._ack_error = None
        found: list[Exception] = []
        for address in (yield from self._addresses()):
            try:
                yield from self.session.connect(address)
                self._server = address
                self._options.on_connect(str(address))
                if subscribes:
                    yield from self.subscribe()
            except (LoginRefused, InterruptedError):
                raise
            except (OSError, ClientError, ProtocolError) as error:
                yield from self._lose(error)
                found.append(error)
            else:
                return
        raise next(filter(is_transient, found), found[-1])

    def _addresses(self) -> Steps[Iterable[Address]]:
        finder = self._finder
        if finder is None:
            return self._options.addresses()
        self._may_have_moved = False
        return ((yield from self._find(finder)),)

    def _new_finder(self, servers: str) -> RunningServer:
        # Only clusters need it.
        from canal_server.client.connection.running_server import (  # noqa: PLC0415
            RunningServer,
        )

        return RunningServer(servers, self._options.destination, self._notice_move)

    def _find(self, finder: RunningServer) -> Steps[Address]:
        found = yield Call(finder.find)
        return found  # type: ignore[no-any-return]

    def subscribe(self) -> Steps[None]:
        """Subscribe with the current filter."""
        yield from self.session.subscribe(self._filter_now)
        self._forget_handed()
        self._retries.note_subscribed()

    @property
    def _filter_now(self) -> str:
        return self.filter or self._table_filter

    def close(self) -> Steps[None]:
        """Close the connection, and the session with ZooKeeper."""
        if self.session.address is not None:
            yield from self._ack_handled()
        yield from self.session.close()
        self._forget_handed()
        if self._finder is not None:
            yield Call(self._finder.close)

    def rollback(self, message_id: int) -> Steps[None]:
        """Expect everything again that is not acked."""
        yield from self.session.rollback(message_id)
        self._forget_handed()

    def _forget_handed(self) -> None:
        """Note that what was handed out and not acked comes again."""
        self._progress.forget(is_split=self._whole is not None and self._whole.is_split)
        self._held_since = None
        if self._whole is not None:
            self._whole.reset()

    # ----------------------------------------------------------------------------
    # Messages
    # ----------------------------------------------------------------------------

    def next(self) -> Steps[Message | None]:
        """Return the next message; None after `stop`.

        Raises ClientError, ProtocolError and OSError when a retry is of no use, or
        after `reconnect_for_s`; TransactionTooLarge.
        """
        while not self._is_stopped:
            try:
                self._raise_ack_error()
                if self.session.address is None:
                    yield from self._connect(subscribes=True)
                if self.session.subscribed_filter != self._filter_now:
                    yield from self.subscribe()
                if self._progress.is_abandoned:
                    yield from self._ack_handled()
                    yield from self.rollback(0)
                self._report_redelivery()
                message = yield from self._fetch()
            except (OSError, ClientError, ProtocolError) as error:
                yield from self._recover(error)
                continue
            if message is not None:
                self._progress.hand_out(message)
                return message
            if self._nothing is not None:
                return self._nothing
        return None

    def _report_redelivery(self) -> None:
        if self._progress.will_repeat or self.session.has_lost_ack:
            self._progress.will_repeat = self.session.has_lost_ack = False
            self._options.on_redelivery()

    def _fetch(self) -> Steps[Message | None]:
        """Return the next message to hand out; None if there is none yet."""
        wait, size = self._request_wait, self._batch_size
        started = time.monotonic()
        message = yield from self.session.wait(size, wait.seconds)
        if not message:
            # Also if it was not interrupted: the wake may have ended an earlier wait.
            yield from self._check_moved()
        if message is None:
            return None
        wait.note(time.monotonic() - started, has_changes=bool(message))
        self._retries.note_success()
        self._newest = message
        if message:
            yield from self.session.ask(size)
        yield from self._ack_by_policy(self._progress.due_id())
        if self._whole is None:
            return message or None
        return (yield from self._joined(self._whole, message))

    def _joined(
        self, whole: WholeTransactions, message: Message
    ) -> Steps[Message | None]:
        piece: Piece | None = None
        now = time.monotonic()
        if message:
            self._held_since = now
            piece = whole.add(message)
        if piece is None and whole.held_bytes:
            limit = self._options.transaction_bytes_max
            if whole.held_bytes > limit:
                piece = self._oversize(
                    whole,
                    f"has more than transaction_bytes_max = {limit} bytes; raise it",
                )
            elif now - (self._held_since or now) > self._options.timeout_s:
                self._held_since = now
                piece = yield from self._overdue(whole)
        if piece is None:
            return None
        return Message(piece.batch_id, piece.body, self.session.readers)

    def _overdue(self, whole: WholeTransactions) -> Steps[Piece | None]:
        """Return a part of a transaction whose end cannot come before an ack.

        None if the source, or the server, may only be slow. Raises TransactionTooLarge.
        """
        if self._progress.handled_id is not None:  # with acks every few seconds
            yield from self._ack_handled()
            return None
        held, waited_s = whole.held_bytes, self._options.timeout_s
        clients = yield from self.session.blocking_clients()
        if clients is None or self.session.client_id in clients:
            full = "" if clients is None else ", as the server's buffer is full"
            return self._oversize(
                whole,
                f"did not end within {waited_s:g} s after {held} bytes of it{full};"
                " raise the server's canal.instance.memory.buffer.size if the"
                " transaction is larger, and do not set"
                " canal.instance.filter.transaction.entry",
            )
        client_messages.TRANSACTION_WAITS.log(
            logger, self._options.destination, waited_s, held
        )
        return None

    def _oversize(self, whole: WholeTransactions, why: str) -> Piece:
        """Return a part of a transaction, or raise TransactionTooLarge."""
        if self._options.over_limit == "part":
            return whole.take()
        raise TransactionTooLarge(
            f"a transaction of destination {self._options.destination} {why}; or set"
            ' over_limit = "part" to receive it in parts'
        )

    # ----------------------------------------------------------------------------
    # Acks
    # ----------------------------------------------------------------------------

    def done(self, message: Message) -> Steps[None]:
        """Note that a message was handled, and ack by the policy."""
        yield from self._ack_by_policy(self._progress.handle(message))

    def _ack_handled(self) -> Steps[None]:
        yield from self._ack_by_policy(self._progress.handled_id)

    def _ack_by_policy(self, message_id: int | None) -> Steps[None]:
        if message_id is not None:
            yield from self.ack(message_id)

    def ack(self, message_id: int | None) -> Steps[None]:
        """Ack a message; None: all before the one at hand, else all received.

        In an iteration all before it are acked too, failures are left to the next
        message, and an id from before a reconnect is ignored, as the message comes
        again.
        """
        progress = self._progress
        is_single = message_id is not None and not progress.iterates
        if message_id is None:
            message_id = (
                self._before(progress.last) if progress.iterates else self._open()
            )
        if is_single:
            yield from self.session.ack(message_id)
        elif message_id in self.session.open_ids:
            yield from self._ack_to(message_id)

    def _ack_to(self, message_id: int) -> Steps[None]:
        self._progress.begin_ack(message_id)
        try:
            yield from self.session.ack_to(message_id)
        except OSError as error:
            self._ack_error = error
            return
        self._progress.end_ack(message_id)

    def _raise_ack_error(self) -> None:
        error, self._ack_error = self._ack_error, None
        if error is not None:
            raise error

    def _open(self) -> int:
        """Return the newest open message; -1 if there is none."""
        return self.session.open_ids[-1] if self.session.open_ids else NO_BATCH

    def _before(self, message: Message | None) -> int:
        """Return the newest open message before another one; -1 if there is none."""
        found = NO_BATCH
        for each in self.session.open_ids:
            if message is None or each >= message.id:
                break
            found = each
        return found

    # ----------------------------------------------------------------------------
    # Failures
    # ----------------------------------------------------------------------------

    def _check_moved(self) -> Steps[None]:
        """Raise an error if another server runs the destination than ours."""
        if self._finder is None or not self._may_have_moved:
            return
        self._may_have_moved = False
        try:
            found = yield from self._find(self._finder)
        except OSError:
            return  # while nobody else runs it, this server may
        if found != self.session.address:
            raise _MovedError(f"destination moved to {found}")

    def _recover(self, error: Exception) -> Steps[None]:
        """Wait before the next attempt, or raise the error."""
        server = self._server
        yield from self._lose(error)
        if self._is_stopped and isinstance(error, InterruptedError):
            return
        delay_s = self._retries.delay_s(error, time.monotonic())
        if isinstance(error, _MovedError):
            return
        client_messages.CLIENT_RECONNECTS.log(
            logger,
            self._options.destination,
            server or self._options.host,
            error,
            delay_s,
        )
        yield Pause(delay_s)

    def _lose(self, error: Exception) -> Steps[None]:
        """Close the connection after an error."""
        yield from self.session.drop()
        self._forget_handed()
        server, self._server = self._server, None
        if server is not None:
            self._options.on_disconnect(error)
