"""Delivers one destination to a message queue: fetches, sends, acks.

::

    ring ──► fetch ──► messages ──► producer ──► broker
      ▲                                │
      └───── ack, in order ◄───────────┘ confirmations

Several batches are on their way at a time. One is acked when the broker has confirmed
all of it, and all before it. After a failure, once the broker has answered what was on
its way, the batches since the last ack are sent again, in the same order, but for
messages that it has confirmed (`sent_again`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.delivery.delivery_status import DeliveryCounts, DeliveryStatus, State
from canal_server.delivery.sent_again import OpenBatch, to_send_again, unconfirmed
from canal_server.delivery.too_large_note import note_message
from canal_server.errors import CanalError, ProtocolError
from canal_server.messages import delivery_messages
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    SchemaRefusedError,
    for_log,
)
from canal_server.runtime.backoff import Backoff
from canal_server.runtime.lifecycle import Deadline, Stop
from canal_server.runtime.log_context import log_about
from canal_server.runtime.log_throttle import LogThrottle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from canal_server.model.positions import LogPosition
    from canal_server.ports import RunningInstance
    from canal_server.queues.message_form import Encode
    from canal_server.queues.producers.queue_producer import (
        Message,
        Producer,
        Sending,
    )
    from canal_server.server.local_client import Fetched, LocalClient

log = logging.getLogger(__name__)

ABSENT_S: Final = 0.2  # between looks for a destination that does not run here
IDLE_FETCH_S: Final = 0.5  # that a fetch waits if nothing is on its way
BUSY_FETCH_S: Final = 0.01  # if something is: confirmations are noticed so late
POLL_S: Final = 0.05
BATCHES_MAX: Final = 256  # on their way at a time
BLOCKED_AFTER_S: Final = 10.0  # without a confirmation
RETRY_MAX_S: Final = 30.0
SCHEMA_RETRY_S: Final = 30.0  # after a schema was refused, which somebody has to change
ABANDON_S: Final = 1.0
CONNECTING: Final = "for an answer of the brokers"
END_S: Final = 2.0  # for what is on its way when the server stops


class WorkerLimits(NamedTuple):
    """How much is taken at a time, and how much may be on its way."""

    batch_size: int  # as of a client
    in_flight_bytes: int
    too_large_topic: str  # empty: stop
    few_bytes: int = 1  # a smaller batch was all that there is
    whole: bool = False  # a batch ends with a transaction, if that is possible
    # Partitions are in an order each, and the broker answers in it.
    by_partition: bool = False


class QueueWorker:
    """A stage: the thread that delivers one destination.

    `make_producer` is called by that thread. It begins when the worker `after`, which
    had other settings, has ended. `what` says what is sent where, for the log.
    """

    def __init__(
        self,
        client: LocalClient,
        queue: str,
        make_producer: Callable[[], Producer],
        encode: Encode,
        limits: WorkerLimits,
        *,
        what: str = "",
        after: QueueWorker | None = None,
        note: Callable[[str, Message, MessageRefusedError], Message] = note_message,
    ) -> None:
        self.destination = client.identity.destination
        self._client = client
        self._queue = queue
        self._make_producer = make_producer
        self._producer: Producer | None = None
        self._is_open = False
        self._encode = encode
        self._limits = limits
        self._note = note
        self._what = what
        self._begun: RunningInstance | None = None  # the log says so of it
        self._after = after
        self._stop = Stop()
        self._is_asked_again = False  # an operator has requested another try
        self._window: deque[OpenBatch] = deque()
        self._to_resend: deque[OpenBatch] = deque()  # before anything else
        # When delivery ended last: what was acked, and whether that was moved before.
        self._acked: tuple[LogPosition | None, ...] = ()
        self._was_moved = False
        self._counts = DeliveryCounts()
        self._state, self._reason = State.WAITING, ""
        self._since_ms = _now_ms()
        self._confirmed = 0  # by the producer, when it was looked at last
        self._progress_s = 0.0  # when that changed
        self._backoff = Backoff(max_s=RETRY_MAX_S)
        self._throttle = LogThrottle()
        self._thread = threading.Thread(
            target=self._live, name=f"{self.destination} queue", daemon=True
        )

    # --- Stage ------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """Ask to stop; returns at once."""
        self._stop.request()

    def join(self, deadline: Deadline) -> bool:
        """Wait until stopped; false when the deadline passed first."""
        if self._thread.ident is not None:
            self._thread.join(deadline.remaining_s())
        return not self._thread.is_alive()

    def retry(self) -> None:
        """Send again now what was refused for good, as an operator asks."""
        self._is_asked_again = True

    @property
    def has_ended(self) -> bool:
        """Return whether it was started and its thread has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def status(self) -> DeliveryStatus:
        """Return what it does; never blocks."""
        sendings = [each.sending for each in tuple(self._window)]
        counts = self._counts
        # In a group the cursor is of the source that was acked last, which it does not
        # name.
        acked = self._client.acked()
        position = "" if len(acked) != 1 or acked[0] is None else str(acked[0].position)
        return DeliveryStatus(
            queue=self._queue,
            state=self._state,
            reason=self._reason,
            since_ms=self._since_ms,
            position=position,
            in_flight=sum(each.pending for each in sendings),
            in_flight_bytes=sum(each.sent_bytes for each in sendings),
            batches=counts.batches,
            failures=counts.failures,
            too_large=counts.too_large,
            topics=dict(counts.topics),
        )

    # --- the thread -------------------------------------------------------------------

    def _live(self) -> None:
        log_about(self.destination, self._client.identity.client_id)
        while self._after is not None and not self._stop.requested():
            if self._after.join(Deadline(ABSENT_S)):
                self._after = None
        while not self._stop.requested():
            try:
                self._attempt()
            except Exception as error:  # noqa: BLE001  # a bug must not end it
                delivery_messages.DELIVERY_CRASHED.log(
                    log, self.destination, exc_info=True
                )
                # Its text may have values of rows, which not all may read who see this.
                self._wait_to_retry(
                    f"internal error {type(error).__name__}, see the log"
                )
        with contextlib.suppress(CanalError):
            self._finish()
        self._client.disconnect()

    def _attempt(self) -> None:
        """Deliver until something ends it, and wait as long as that asks for."""
        # A request that arrives from here on is for the next attempt, also while what
        # was sent is still answered.
        was_asked, self._is_asked_again = self._is_asked_again, False
        if was_asked:
            self._forget_refusals()
        try:
            if not self._connected():
                self._wait_until_here()
                return
            self._deliver(self._opened())
        except MessageRefusedError as error:
            self._stay_stopped(error)
        except SchemaRefusedError as error:
            self._pause_stopped(error)
        except CanalError as error:
            if self._stop.requested():
                return
            if not self._client.runs_here():
                self._wait_until_here()
                return
            if not isinstance(error, BrokerUnavailableError | ProtocolError):
                # Its cursor was moved, for example, or it may not subscribe. Not with
                # brokers that are away, or what no message can be made of: the
                # batches stay open, and what is confirmed of them stays known.
                self._client.disconnect()
            self._failed(error)

    def _forget_refusals(self) -> None:
        """Forget what is known to be refused: a limit may have been raised."""

    def _connected(self) -> bool:
        """Connect, if the destination runs here; forget batches that are void then."""
        before = self._client.instance
        if not self._client.connect():
            return False
        if self._client.instance is not before:
            self._to_resend.clear()  # a new connection gets all again
        elif self._to_resend and not self._client.holds(self._to_resend[0].batch_id):
            # The cursor was moved. Later ones may be open, fetched where it is now:
            # what follows them may not be sent before them.
            self._to_resend.clear()
            self._client.rollback()
        return True

    def _opened(self) -> Producer:
        """Return the producer, which is connected."""
        if self._producer is None:
            self._producer = self._make_producer()
        if not self._is_open:
            if self._state is State.WAITING:
                self._become(State.WAITING, CONNECTING)
            self._open(self._producer)
            self._is_open = True
        return self._producer

    def _open(self, producer: Producer) -> None:
        producer.open()

    def _wait_until_here(self) -> None:
        self._to_resend.clear()  # with what it keeps of the ring
        self._begun = None
        self._become(State.WAITING)
        self._stop.wait(ABSENT_S)

    def _deliver(self, producer: Producer) -> None:
        """Deliver until a stop. What else ends it is raised, with all given back."""
        if self._state is State.WAITING:
            self._become(State.DELIVERING)
        if self._begun is not self._client.instance:
            self._begun = self._client.instance
            cursor = self._client.cursor()
            log.info(
                "destination %s: delivery to %s begins %s: %s",
                self.destination,
                self._queue,
                f"after {cursor}" if cursor else "where reading begins",
                self._what,
            )
        self._progress_s = time.monotonic()
        try:
            while not self._stop.requested():
                self._check_served()
                if self._has_room():
                    self._send_next(producer)
                else:
                    producer.poll(POLL_S)
                self._settle(producer)
        except CanalError as error:
            sendings = [each.sending for each in self._window]
            self._give_back(producer, error)
            raise self._cause(error, sendings) from None
        except BaseException as error:
            # Of an unknown state: begin as after a restart.
            self._give_back(producer, error)
            self._client.disconnect()
            raise

    def _cause(self, error: CanalError, sendings: Iterable[Sending]) -> CanalError:
        """Return the first answer that explains an error, which may be the error.

        After a message that failed the producer refuses others, perhaps before that
        answer was looked at.
        """
        if isinstance(error, BrokerUnavailableError):
            for sending in sendings:
                for _, refused in sending.refused:
                    if self._limits.too_large_topic in ("", refused.topic):
                        return refused
                if sending.failure is not None:
                    return sending.failure
        return error

    def _check_served(self) -> None:
        """Raise CanalError when the destination no longer runs here.

        Perhaps another server delivers it by now: nothing more may be sent.
        """
        if not self._client.is_served():
            raise CanalError("the destination no longer runs here")

    def _has_room(self) -> bool:
        on_way = sum(each.sending.sent_bytes for each in self._window)
        return len(self._window) < BATCHES_MAX and on_way < self._limits.in_flight_bytes

    def _send_next(self, producer: Producer) -> None:
        """Hand the messages of the next batch over, if there is one."""
        if self._to_resend:
            producer.poll(0)
            self._hand_over(producer, self._to_resend.popleft())
            if not self._to_resend:
                producer.push()
            return
        wait_s = BUSY_FETCH_S if self._window else IDLE_FETCH_S
        fetched = self._client.fetch(
            self._limits.batch_size, wait_s, whole=self._limits.whole
        )
        producer.poll(0)
        if fetched is not None:
            self._dispatch(producer, fetched)
        elif not self._window:  # all is delivered
            self._become(State.DELIVERING)
            return
        if fetched is None or len(fetched.body) < self._limits.few_bytes:
            producer.push()

    def _dispatch(self, producer: Producer, fetched: Fetched) -> None:
        """Hand the messages of a batch over."""
        self._hand_over(producer, OpenBatch.of(fetched), fetched.body)

    def _hand_over(
        self, producer: Producer, batch: OpenBatch, body: bytes | None = None
    ) -> None:
        """Hand over what the broker does not have of a batch."""
        self._window.append(batch)  # from here on, it is given back after a failure
        if body is None:
            body = b"".join(batch.slices)
        messages = self._encode(batch.batch_id, body, _now_ms())
        if batch.confirmed:
            messages = unconfirmed(messages, batch.confirmed)
        self._prepare(producer, messages)
        if len(self._window) == 1:
            self._progress_s = time.monotonic()
        self._send_all(producer, messages, batch.sending)
        batch.sending.is_complete = True

    def _send_all(
        self, producer: Producer, messages: Sequence[Message], sending: Sending
    ) -> None:
        """Hand messages over, or the notes of what is too large."""
        for message in messages:
            try:
                # Here, not in `_send`: there may be many small ones.
                if not producer.try_send(message, sending):
                    self._send(producer, message, sending)
            except MessageRefusedError as error:
                self._send_note(producer, message, sending, error)

    def _prepare(self, producer: Producer, messages: Sequence[Message]) -> None:
        producer.prepare(messages)  # which may take a while
        self._check_served()
        if self._stop.requested():
            raise CanalError("stopped before messages were sent")

    def _send(self, producer: Producer, message: Message, sending: Sending) -> None:
        while not producer.try_send(message, sending):
            producer.push()  # the first message of a partition goes alone
            producer.poll(POLL_S)
            self._note_progress(producer)
            self._check_served()
            if self._stop.requested():
                raise CanalError("stopped while messages waited to be sent")

    def _send_note(
        self,
        producer: Producer,
        message: Message,
        sending: Sending,
        error: MessageRefusedError,
    ) -> None:
        """Send a note instead of a message that is too large, or raise its error."""
        topic = self._limits.too_large_topic
        if not topic or error.topic == topic:
            raise error
        note = self._note(topic, message, error)
        # Should this fail, the message is refused once more.
        sending.stop(message[:2])
        sending.stop(note[:2])
        self._prepare(producer, [note])
        self._send(producer, note, sending)
        sending.notes.append(for_log(error))

    def _settle(self, producer: Producer) -> None:
        """Ack what is confirmed. Raises the first failure of a message."""
        for each in self._window:
            while each.sending.refused:
                message, error = each.sending.refused[0]
                self._send_note(producer, message, each.sending, error)
                del each.sending.refused[0]
            if each.sending.failure is not None:
                raise each.sending.failure
        self._ack_confirmed()
        self._note_progress(producer)

    def _ack_confirmed(self) -> None:
        while self._window and self._window[0].sending.is_confirmed:
            self._client.ack(self._window[0].batch_id)
            sending = self._window.popleft().sending
            self._counts.acked(sending)
            self._count_notes(sending.notes)
            self._backoff.reset()
            self._become(State.DELIVERING)

    def _count_notes(self, notes: Sequence[str]) -> None:
        """Count and log notes that stay: not those of a batch that is sent again."""
        topic = self._limits.too_large_topic
        for why in notes:
            delivery_messages.MESSAGE_TOO_LARGE.log(log, self.destination, why, topic)
        self._counts.too_large += len(notes)

    def _note_progress(self, producer: Producer) -> None:
        """Say so when the broker confirms nothing for long."""
        now_s = time.monotonic()
        if not self._window or producer.confirmed != self._confirmed:
            self._confirmed, self._progress_s = producer.confirmed, now_s
        if now_s - self._progress_s < BLOCKED_AFTER_S:
            return
        if not any(each.sending.pending for each in self._window):
            self._progress_s = now_s  # it waits for the source
            return
        self._note_silence(producer)

    def _note_silence(self, producer: Producer) -> None:
        """Say that the broker has confirmed nothing for long."""
        why = producer.last_error or f"no confirmation for {BLOCKED_AFTER_S:g} s"
        if self._state is not State.BLOCKED:
            delivery_messages.DELIVERY_BLOCKED.log(
                log, self.destination, self._queue, why
            )
        self._become(State.BLOCKED, why)

    def _give_back(self, producer: Producer, error: BaseException) -> None:
        """Keep what is not acked, once the broker has answered, to send it again."""
        del error  # whatever it was
        is_known = False
        try:
            while (
                any(each.sending.pending for each in self._window)
                and not self._stop.requested()
                and self._client.is_served()
            ):
                producer.poll(POLL_S)
                self._note_progress(producer)
            with contextlib.suppress(CanalError):
                self._ack_confirmed()
            if any(each.sending.pending for each in self._window):
                producer.abandon(ABANDON_S)
            producer.renew()
            is_known = self._limits.by_partition
        finally:
            window = (*self._window, *self._to_resend)
            self._acked = self._client.acked()
            # While the broker answered, before anything here would notice.
            self._was_moved = bool(window) and not self._client.holds(
                window[0].batch_id
            )
            self._window.clear()
            self._to_resend.clear()
            for each in window:
                if not each.sending.pending:
                    self._counts.confirmed(each.sending)
            if is_known:
                self._to_resend.extend(to_send_again(window))
            else:
                self._roll_back()

    def _roll_back(self) -> None:
        try:
            self._client.rollback()
        except CanalError:
            self._client.disconnect()  # the next `connect` does it

    def _failed(self, error: CanalError) -> None:
        """Log a failure, and wait before the next attempt."""
        self._counts.failures += 1
        text = str(error)
        if self._throttle.is_news(text, time.monotonic()):
            delivery_messages.DELIVERY_FAILED.log(
                log, self.destination, self._queue, for_log(error)
            )
        self._wait_to_retry(text)

    def _wait_to_retry(self, why: str) -> None:
        self._become(State.BLOCKED, why)
        self._stop.wait(self._backoff.delay_s(time.monotonic()))

    def _stay_stopped(self, error: MessageRefusedError) -> None:
        """Deliver nothing until an operator acts.

        That is a start of the destination, `retry`, or a move of the cursor.
        """
        self._counts.failures += 1
        delivery_messages.DELIVERY_STOPPED.log(log, self.destination, for_log(error))
        self._become(State.STOPPED, str(error))
        self._wait_stopped()

    def _wait_stopped(self, seconds: float = float("inf")) -> None:
        end_s = time.monotonic() + seconds
        while not (
            self._is_asked_again
            or self._was_moved
            or not self._client.is_served()
            or self._client.was_moved_since(self._acked)
        ):
            if time.monotonic() > end_s:
                return  # nothing has changed yet
            if self._stop.wait(ABSENT_S):
                return
        self._become(State.BLOCKED, f"it is tried again: {self._reason}")

    def _pause_stopped(self, error: SchemaRefusedError) -> None:
        """Deliver nothing for a while, or until an operator acts; then ask again."""
        self._counts.failures += 1
        text = str(error)
        if self._throttle.is_news(text, time.monotonic()):
            delivery_messages.SCHEMA_REFUSED.log(log, self.destination, text)
        self._become(State.STOPPED, text)
        self._wait_stopped(SCHEMA_RETRY_S)

    def _finish(self) -> None:
        """Ack what is confirmed soon, and forget the rest."""
        producer = self._producer
        if producer is None:
            return
        end_s = time.monotonic() + END_S
        while (
            any(each.sending.pending for each in self._window)
            and time.monotonic() < end_s
        ):
            producer.poll(POLL_S)
        try:
            self._ack_confirmed()
        finally:
            producer.close(0.0)

    def _become(self, state: State, reason: str = "") -> None:
        if state is not self._state:
            if self._state in (State.BLOCKED, State.STOPPED) and (
                state is State.DELIVERING
            ):
                log.info(
                    "destination %s: delivery to %s continues",
                    self.destination,
                    self._queue,
                )
                self._throttle.forget()
            self._since_ms = _now_ms()
        self._state, self._reason = state, reason


def _now_ms() -> int:
    return round(time.time() * 1000)
