"""Delivers one destination in transactions of the message queue: each change once.

::

    fetch ──► messages ─┐
    fetch ──► messages ─┼─► transaction ──► commit ──► acks
    position of the end ┘

A transaction ends where one of the source does, and has the position of that place. It
is committed when nothing more waits, or when it has become large, or when the end of
the source's next one is not near. Acks follow: after a crash between them, the position
in the message queue decides (`stored_position`).

A transaction of the source may be larger than the ring. Then its parts are freed when
the broker has them. After a failure that leaves the ring with less or more than what is
not committed, the instance is *spoiled*: it delivers nothing more, and another one
takes its place, which reads from the position in the message queue.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.delivery import queue_worker
from canal_server.delivery.delivery_status import State
from canal_server.delivery.queue_worker import QueueWorker
from canal_server.delivery.stored_position import (
    decoded,
    encoded,
    is_newer,
    is_same,
)
from canal_server.delivery.too_large_note import note_message
from canal_server.errors import CanalError
from canal_server.queues.message_content import subject_of
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    MessageRefusedError,
    OutcomeUnknownError,
    SchemaRefusedError,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from canal_server.delivery.queue_worker import WorkerLimits
    from canal_server.model.positions import LogPosition
    from canal_server.ports import RunningInstance
    from canal_server.queues.message_form import Encode
    from canal_server.queues.producers.queue_producer import (
        Message,
        Producer,
        Sending,
        Subject,
        TransactionalProducer,
    )
    from canal_server.server.local_client import Fetched, LocalClient

COMMIT_S: Final = 0.5  # of one call
ABORT_S: Final = 1.0  # when the server stops
OPEN_RETRY_S: Final = 1.0
REFUSED_MAX: Final = 1000  # messages whose refusal is remembered
_DIFFERENCE_MAX: Final = 64  # bytes by which a message differs when it is sent again
AHEAD_BYTES_MAX: Final = 4 << 20  # that are kept while an end is looked for
_REFUSED: Final = (MessageRefusedError, SchemaRefusedError)


class RoomInRing(NamedTuple):
    """How much of the ring a transaction may hold: then it ends, or is freed."""

    size: int  # bytes
    entries: int


class Refused(NamedTuple):
    """A message that a note replaces."""

    error: MessageRefusedError
    topic: str
    partition: int
    size: int
    subject: Subject

    def is_of(self, message: Message) -> bool:
        """Check whether a message can be the one that was refused.

        Its id and time differ when it is sent again. It is another one if a filter was
        changed meanwhile.
        """
        is_near = abs(size_of(message) - self.size) <= _DIFFERENCE_MAX
        return (
            is_near
            and message[:2] == (self.topic, self.partition)
            and subject_of(message) == self.subject
        )


class TransactionWorker(QueueWorker):
    """A `QueueWorker` for a producer with transactions.

    `restart` has another instance take the place of one.
    """

    def __init__(
        self,
        client: LocalClient,
        queue: str,
        make_producer: Callable[[], TransactionalProducer],
        encode: Encode,
        limits: WorkerLimits,
        *,
        room: RoomInRing,
        restart: Callable[[RunningInstance], None],
        what: str = "",
        after: QueueWorker | None = None,
        note: Callable[[str, Message, MessageRefusedError], Message] = note_message,
    ) -> None:
        super().__init__(
            client,
            queue,
            make_producer,
            encode,
            limits,
            what=what,
            after=after,
            note=note,
        )
        self._room = room
        self._restart = restart
        self._spoiled: RunningInstance | None = None
        self._opened_for: RunningInstance | None = None
        self._ahead: deque[Fetched] = deque()  # fetched, of no transaction yet
        # By the number of the message since the last commit: when it is sent again, its
        # bytes differ.
        self._refused: dict[int, Refused] = {}
        self._counted_from: LogPosition | None = None  # the last commit, or the begin
        # Of this delivery: why the next one has more notes, and why one is impossible.
        self._retried: BrokerUnavailableError | None = None
        self._unnoted: MessageRefusedError | None = None
        self._unstored: LogPosition | None = None  # whose commit is not known
        self._begin()

    def _begin(self) -> None:
        """Note that no transaction is open."""
        self._is_begun = False
        self._is_due = False  # it takes nothing more
        self._is_waiting = False  # the source has no more of it now
        self._is_open_in_source = False
        self._held = RoomInRing(0, 0)
        self._has_freed = False
        self._freed_notes: list[str] = []
        self._sent = 0  # messages since the last commit
        # By sending: the number of its first message, and the messages; for notes.
        self._sendings: dict[int, tuple[int, Sequence[Message]]] = {}
        self._position: LogPosition | None = None  # of its end

    # --- the producer -----------------------------------------------------------------

    def _open(self, producer: TransactionalProducer) -> None:  # type: ignore[override]
        self._opened_for = self._client.instance
        producer.open()
        value = producer.position(self._stop)
        stored = None if value is None else decoded(value)
        begin = stored or self._client.cursor()
        if not is_same(begin, self._counted_from):
            # Messages are counted from elsewhere. Else it is read again from there, as
            # after a part of a transaction was lost.
            self._refused.clear()
        self._counted_from = begin
        if stored is not None and is_newer(stored, self._client.cursor()):
            self._spoiled = self._client.instance
            raise self._restarted("the message queue has more than was acked")

    def _forget_refusals(self) -> None:
        self._refused.clear()

    def _deliver(self, producer: TransactionalProducer) -> None:  # type: ignore[override]
        self._retried = self._unnoted = None
        if self._spoiled is not None and self._spoiled is self._client.instance:
            raise self._restarted("it has lost a part of a transaction")
        self._spoiled = None
        if self._opened_for is not self._client.instance:
            # Before it began, the other instance has read the position, and has ended
            # what this producer could do.
            self._is_open = False
            self._opened()
        super()._deliver(producer)

    def _restarted(self, why: str) -> CanalError:
        """Restart the spoiled instance; returns the error to raise."""
        assert self._spoiled is not None, "there is a reason"
        self._client.disconnect()
        self._restart(self._spoiled)
        return CanalError(f"the destination is restarted: {why}")

    # --- messages ---------------------------------------------------------------------

    def _has_room(self) -> bool:
        on_way = sum(e.sending.sent_bytes for e in self._window if e.sending.pending)
        return not self._is_due and on_way < self._limits.in_flight_bytes

    def _send_next(self, producer: TransactionalProducer) -> None:  # type: ignore[override]
        if not self._is_begun:
            # Before anything is fetched: a later move makes that void.
            self._store_move(producer)
        fetched = self._kept() or self._fetched(producer)
        if fetched is None:
            return
        if fetched.is_broken or (self._is_open_in_source and fetched.begins_anew):
            self._spoiled = self._client.instance
            raise CanalError("the source was replaced in the middle of a transaction")
        if fetched.is_open and self._is_begun and not self._is_open_in_source:
            self._ahead.appendleft(fetched)
            if not self._is_end_near():
                self._is_due = True  # what is complete does not wait for the end
                return
            self._ahead.popleft()
        if not self._is_begun:
            producer.begin()
            self._is_begun = True
        self._is_open_in_source = fetched.is_open
        self._is_waiting = False
        if not fetched.is_open and fetched.position is not None:
            self._position = fetched.position
        self._held = RoomInRing(
            self._held.size + len(fetched.body), self._held.entries + fetched.entries
        )
        self._dispatch(producer, fetched)
        if self._is_full() and not fetched.is_open:
            self._is_due = True

    def _kept(self) -> Fetched | None:
        """Return the next batch that was fetched ahead, if it is still valid."""
        if self._ahead and not self._client.holds(self._ahead[0].batch_id):
            self._ahead.clear()
        return self._ahead.popleft() if self._ahead else None

    def _is_end_near(self) -> bool:
        """Look for the end of the source's transaction of which a part was fetched.

        It is near when it is there, and the room has space for all up to it. What is
        fetched for this is kept.
        """
        size = self._held.size + sum(len(each.body) for each in self._ahead)
        entries = self._held.entries + sum(each.entries for each in self._ahead)
        size_max = min(self._room.size, self._held.size + AHEAD_BYTES_MAX)
        while size < size_max and entries < self._room.entries:
            fetched = self._client.fetch(self._limits.batch_size, 0.0, whole=True)
            if fetched is None:
                return False
            self._ahead.append(fetched)
            if fetched.is_broken or fetched.begins_anew:
                return False
            if not fetched.is_open:
                return True
            size += len(fetched.body)
            entries += fetched.entries
        return False

    def _fetched(self, producer: Producer) -> Fetched | None:
        """Return the next batch; without one, a complete transaction is due."""
        wait_s = queue_worker.IDLE_FETCH_S
        if self._is_begun:
            wait_s = queue_worker.BUSY_FETCH_S if self._is_open_in_source else 0.0
        fetched = self._client.fetch(self._limits.batch_size, wait_s, whole=True)
        producer.poll(0)
        if fetched is None:
            self._is_due = self._is_begun and not self._is_open_in_source
            self._is_waiting = True
            if not self._is_begun:  # all is delivered
                self._become(State.DELIVERING)
        return fetched

    def _is_full(self) -> bool:
        return self._held.size >= self._room.size or (
            self._held.entries >= self._room.entries
        )

    def _send_all(
        self, producer: Producer, messages: Sequence[Message], sending: Sending
    ) -> None:
        first = self._sent
        self._sent += len(messages)
        if self._limits.too_large_topic:
            self._sendings[id(sending)] = first, messages
        if not self._refused:
            super()._send_all(producer, messages, sending)
            return
        for number, message in enumerate(messages, first):
            refused = self._refused.get(number)
            if refused is not None and refused.is_of(message):
                self._send_note(producer, message, sending, refused.error)
            else:
                self._refused.pop(number, None)
                super()._send_all(producer, [message], sending)

    def _wait_stopped(self, seconds: float = float("inf")) -> None:
        cursor = self._client.cursor()
        if cursor is not None and cursor.moved:
            # While the brokers answered. It is stored before anything else is sent.
            self._become(State.BLOCKED, f"it is tried again: {self._reason}")
            return
        super()._wait_stopped(seconds)

    # --- commits ----------------------------------------------------------------------

    def _settle(self, producer: TransactionalProducer) -> None:  # type: ignore[override]
        """Commit what is due and confirmed. Raises the first failure of a message."""
        for each in self._window:
            if each.sending.refused:
                self._note_refused(each.sending)
            if self._retried is not None:
                raise self._retried
            if each.sending.failure is not None:
                raise each.sending.failure
        if self._is_due and all(each.sending.is_confirmed for each in self._window):
            self._commit(producer)
        elif self._is_open_in_source and (self._is_full() or self._is_waiting):
            self._free_parts()  # for what follows
        self._note_progress(producer)

    def _note_refused(self, sending: Sending) -> None:
        """Have notes sent in the next try, if that is set.

        Raises the error of a message that no note may replace.
        """
        first, sent = self._sendings.get(id(sending), (0, []))
        while sending.refused:
            message, error = sending.refused[0]
            numbers = (
                number
                for number, each in enumerate(sent, first)
                if each[:4] == message[:4] and number not in self._refused
            )
            at = next(numbers, None)
            if at is None or len(self._refused) >= REFUSED_MAX:
                raise error  # no note may replace it, or it is one
            self._refused[at] = Refused(
                error, *message[:2], size_of(message), subject_of(message)
            )
            self._retried = self._retried or BrokerUnavailableError(
                f"{error}; the transaction is sent again", error.key
            )
            del sending.refused[0]

    def _cause(self, error: CanalError, sendings: Iterable[Sending]) -> CanalError:
        """Return what the transaction is sent again for, if a note is sent then."""
        if not isinstance(error, BrokerUnavailableError):
            return error
        return self._unnoted or self._retried or super()._cause(error, sendings)

    def _free_parts(self) -> None:
        """Free the oldest parts of a transaction of the source that are confirmed."""
        while self._window and self._window[0].sending.is_confirmed:
            first = self._window[0]
            self._has_freed = True
            self._client.ack(first.batch_id, is_part=True)
            self._window.popleft()
            self._sendings.pop(id(first.sending), None)
            self._freed_notes += first.sending.notes
            self._counts.acked(first.sending)

    def _commit(self, producer: TransactionalProducer) -> None:
        """Commit the transaction, and ack what is in it."""
        self._check_kept()
        if (position := self._position) is not None:
            producer.send_position(encoded(position))
        self._unstored = position
        self._finish_commit(producer)
        self._ack_window()

    def _check_kept(self) -> None:
        """Raise CanalError when what is in the transaction may not be committed."""
        self._check_served()
        cursor = self._client.cursor()
        # One that only differs was not moved: the first one is where the server began
        # to read, and that of a client that has all follows the binlog to its next
        # file.
        if (cursor is not None and cursor.moved) or not (
            self._window and self._client.holds(self._window[0].batch_id)
        ):
            raise CanalError("its position was moved")

    def _finish_commit(self, producer: TransactionalProducer) -> None:
        began_s = time.monotonic()
        while not producer.try_commit(COMMIT_S):
            if time.monotonic() - began_s >= queue_worker.BLOCKED_AFTER_S:
                self._note_silence(producer)
            if self._stop.requested():
                raise OutcomeUnknownError("stopped before a commit was answered")
        self._counted_from = self._unstored or self._counted_from
        self._unstored = None

    def _ack_window(self) -> None:
        """Ack the batches of a transaction that was committed."""
        self._refused = {
            number - self._sent: refused
            for number, refused in self._refused.items()
            if number >= self._sent
        }
        notes = self._freed_notes
        for each in self._window:
            notes += each.sending.notes
        self._count_notes(notes)
        self._begin()
        try:
            while self._window:
                self._client.ack(self._window[0].batch_id)
                self._counts.acked(self._window.popleft().sending)
        except BaseException:
            self._spoiled = self._client.instance  # it would deliver them again
            raise
        self._backoff.reset()
        self._become(State.DELIVERING)

    def _store_move(self, producer: TransactionalProducer) -> None:
        """Store the position to which an operator has moved the cursor, if any."""
        cursor = self._client.cursor()
        if cursor is None or not cursor.moved:
            return
        producer.begin()
        self._is_begun = True
        producer.send_position(encoded(cursor))
        self._finish_commit(producer)
        self._begin()
        self._refused.clear()
        self._counted_from = cursor
        self._client.confirm_cursor(cursor)
        if self._state is State.BLOCKED:
            self._become(State.DELIVERING)

    # --- failures and the end ---------------------------------------------------------

    def _give_back(  # type: ignore[override]
        self, producer: TransactionalProducer, error: BaseException
    ) -> None:
        """End the transaction, and have all of it delivered again.

        If it was committed after all, its batches are acked.
        """
        if self._has_freed:
            self._spoiled = self._client.instance
        try:
            if self._unstored is not None or not producer.abort(stop=self._stop):
                self._is_open = False
            if self._unstored is not None and self._was_committed(producer):
                self._spoiled = None
                self._counted_from = self._unstored
                self._ack_window()
            # After the first one the producer refuses what follows, perhaps before that
            # answer was looked at; others were answered now.
            for each in self._window:
                try:
                    self._note_refused(each.sending)
                except MessageRefusedError as refused:
                    self._unnoted = self._unnoted or refused  # `_cause` returns it
            if self._retried is not None:
                self._backoff.reset()  # each try has more notes than the one before
        finally:
            self._unstored = None
            self._acked = self._client.acked()
            self._ahead.clear()
            self._window.clear()
            self._begin()
            if self._spoiled is None:
                self._roll_back()
            elif not (
                isinstance(error, _REFUSED)
                or self._unnoted is not None  # which `_cause` returns
                or self._stop.requested()
            ):
                # What is refused would come again: an operator has to act.
                self._client.disconnect()
                self._restart(self._spoiled)

    def _was_committed(self, producer: TransactionalProducer) -> bool:
        """Ask the broker, until it answers; false when that is not to be known here.

        Then the next start finds it out.
        """
        while not self._stop.requested() and self._client.is_served():
            try:
                producer.open()
                value = producer.position(self._stop)
            except BrokerUnavailableError as error:
                self._become(State.BLOCKED, str(error))
                self._stop.wait(OPEN_RETRY_S)
                continue
            self._is_open = True
            return value is not None and is_same(decoded(value), self._unstored)
        return False

    def _finish(self) -> None:
        """Commit what is complete and confirmed soon, and forget the rest."""
        producer = self._producer
        if producer is None:
            return
        with contextlib.suppress(CanalError):
            self._commit_soon(producer)  # type: ignore[arg-type]
        producer.abort(ABORT_S)  # type: ignore[attr-defined]
        self._window.clear()
        producer.close(0.0)

    def _commit_soon(self, producer: TransactionalProducer) -> None:
        end_s = time.monotonic() + queue_worker.END_S
        if not self._is_begun or self._is_open_in_source:
            return
        while (
            any(each.sending.pending for each in self._window)
            and time.monotonic() < end_s
        ):
            producer.poll(queue_worker.POLL_S)
        if all(each.sending.is_confirmed for each in self._window):
            self._check_kept()
            if self._position is not None:
                producer.send_position(encoded(self._position))
            if producer.try_commit(queue_worker.END_S):
                self._ack_window()
