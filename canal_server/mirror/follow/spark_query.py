"""Spark's query: restarts it after a failure, and ends it in order.

A query fails if a server, the database or the lake is unavailable for longer than
Spark's source retries. Its checkpoint has the position at which it resumes.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import CanalError
from canal_server.messages.mirror import mirror_stream_messages
from canal_server.mirror.follow.stream_start import (
    DataLossError,
    reset_subscription,
    subscription_of,
)
from canal_server.mirror.session.idle import listen
from canal_server.mirror.session.spark_errors import reason
from canal_server.mirror.session.spark_session import in_settings, stream_options
from canal_server.runtime.backoff import Backoff
from canal_server.spark.reading.range_tasks import LOST, loss_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.follow.micro_batches import ChangeStream
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.state.feed import Feed
    from canal_server.mirror.state.state import States
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 30.0
# Spark's error if it was ended, for example by a full disk, before it had recorded the
# first batch: it does not start with the files that are left.
_HALF_STARTED: Final = "CHECKPOINT_LOCATION_NOT_EMPTY"


class Query:
    """The stream of all tables' changes; for one thread."""

    def __init__(
        self,
        settings: MirrorSettings,
        spark: Any,
        stream: ChangeStream,
        store: States,
        stop: Stop,
        *,
        on_start: Callable[[], None] = lambda: None,
        on_failure: Callable[[str], None] = lambda _why: None,
        on_idle: Callable[[], None] = lambda: None,
        end: Callable[[], RangePosition] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the parts of the stream.

        `on_start` is called after each start, `on_failure` with the reason of each
        failure; `on_idle` is called in a thread of Spark, after each poll that brought
        nothing. With `end`, which returns the end of the binlog, the stream ends when
        it has applied what was there when it started.
        """
        self._settings = settings
        self._spark = spark
        self._stream = stream
        self._stop = stop
        self._on_start = on_start
        self._on_failure = on_failure
        self._on_idle = on_idle
        self._end = end
        self._now = now
        self._aim: RangePosition | None = None  # the end of the binlog at the start
        self.reached: RangePosition | None = None  # that end, when the stream has ended
        self._is_heard = False  # whether `on_idle` is registered with Spark
        self._generation = store.generation()
        self._checkpoint = f"{settings.checkpoint}/{self._generation}"
        self._query: Any = None
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._due = 0.0
        # Whether a checkpoint that did not match the lake was abandoned, and whether
        # the subscription, which advanced with it, still has to be moved back.
        self._has_reset = self._must_move_back = False
        self._reset_at: Feed | None = None
        self._started_at: Feed | None = None  # replaced as soon as a batch is applied

    def start(self) -> None:
        """Start at the checkpoint's position, or at the end of the binlog."""
        name = subscription_of(self._settings, self._generation)
        frame = (
            self._spark.readStream.format("canal")
            .options(**stream_options(self._settings, name))
            .load()
        )
        writer = (
            frame.writeStream.foreachBatch(self._stream.apply)
            .option("checkpointLocation", self._checkpoint)
            .queryName(f"mirror {self._settings.name}")
        )
        if self._end is None:
            trigger_ms = round(self._settings.stream.trigger_s * 1000)
            writer = writer.trigger(processingTime=f"{trigger_ms} milliseconds")
        else:
            self._aim = self._end()  # Spark's own end is this one or a later one
            writer = writer.trigger(availableNow=True)
        with self._stream.joining:  # no batch is applied before its query is known
            self._query = writer.start()
            self._started_at = self._stream.feed
            # The checkpoint's id: the same as before, unless the checkpoint was
            # removed.
            self._stream.open(str(self._query.id))
        self._on_start()
        if not self._is_heard:
            listen(self._spark, self._on_idle)
            self._is_heard = True

    def look(self) -> None:
        """Restart a query that failed a while ago.

        Raises DataLossError if that would not help, CanalError if Spark has ended, and
        what py4j raises when its JVM has ended.
        """
        if self.reached is not None:
            return
        if self._query is not None and self._query.isActive:
            return
        if self._has_ended():
            self._query, self.reached = None, self._aim
            return
        now = self._now()
        if self._query is not None:
            self._handle_failure(now)
        if now >= self._due:
            try:
                if self._must_move_back:
                    reset_subscription(self._settings, self._stream.feed, self._stop)
                    self._must_move_back = False
                self.start()
            except DataLossError:
                raise
            except Exception as error:  # noqa: BLE001  # Spark's, of many kinds
                self._check_spark()
                self._due = now + self._backoff.delay_s(now)
                text = _reason(error)
                mirror_stream_messages.MIRROR_STREAM_NOT_STARTED.log(log, text)
                self._on_failure(text)

    def start_again(self) -> None:
        """Let a stream that has ended start for what came after that, in `look`."""
        self.reached = None

    def stop(self) -> None:
        """End the query, after the current batch."""
        self._stream.close()
        if self._query is not None:
            # A batch that arrives now is rejected, which Spark logs with stack traces.
            self._spark.sparkContext.setLogLevel("OFF")
            self._query.stop()
            self._query = None

    def _has_ended(self) -> bool:
        """Return whether the query, which is not active, ended without a failure."""
        return (
            self._end is not None
            and self._query is not None
            and not self._stream.gap
            and self._query.exception() is None
        )

    def _handle_failure(self, now: float) -> None:
        """Report why the query failed, and repair what can be repaired."""
        text = _reason(self._query.exception())
        self._query = None
        if self._stream.gap:
            self._leave_checkpoint()
            text = "its checkpoint did not match the lake"
        elif LOST in text:
            raise DataLossError(text)
        elif _HALF_STARTED in text:
            log.info("the stream has not started: clearing %s", self._checkpoint)
            self._clear()
        if self._stream.feed is not self._started_at:
            self._backoff.reset()  # it worked in between
        delay_s = self._backoff.delay_s(now)
        self._due = now + delay_s
        mirror_stream_messages.MIRROR_STREAM_FAILED.log(log, text, delay_s)
        self._on_failure(text)

    def _check_spark(self) -> None:
        """Raise CanalError if Spark has ended, what py4j raises if its JVM has."""
        if self._spark.sparkContext._jsc.sc().isStopped():  # noqa: SLF001
            raise CanalError("Spark has ended the application; start the mirror again")

    def _leave_checkpoint(self) -> None:
        """Start at the lake's position, as the checkpoint does not match the lake.

        Raises DataLossError if that was done before and something would still be
        missing.
        """
        gap, self._stream.gap = self._stream.gap, ""
        if self._has_reset and self._stream.feed is self._reset_at:
            raise DataLossError(gap)
        self._has_reset = self._must_move_back = True
        self._reset_at = self._stream.feed  # replaced as soon as a batch is applied
        mirror_stream_messages.MIRROR_CHECKPOINT_CLEARED.log(log, gap, self._checkpoint)
        self._clear()

    def _clear(self) -> None:
        """Delete the checkpoint: the stream starts at its cursor.

        What was applied since then is recognized by its position when it is read again.
        """
        path = self._spark._jvm.org.apache.hadoop.fs.Path(self._checkpoint)  # noqa: SLF001
        files = path.getFileSystem(self._spark._jsc.hadoopConfiguration())  # noqa: SLF001
        files.delete(path, True)


def _reason(error: object) -> str:
    """Return an error of Spark, with the names of the mirror's settings."""
    return in_settings(loss_message(reason(error)))
