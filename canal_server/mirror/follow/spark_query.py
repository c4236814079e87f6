"""Spark's query: begun again when it fails, ended in good order.

A query fails when a server, the database or the lake is not to be had for longer than
the source of Spark bears it. The checkpoint tells where it goes on.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import CanalError
from canal_server.messages import mirror_stream_messages
from canal_server.mirror.follow.stream_start import (
    DataLossError,
    begin_again,
    subscription_of,
)
from canal_server.mirror.session.idle import listen
from canal_server.mirror.session.spark_errors import reason
from canal_server.mirror.session.spark_session import in_settings, stream_options
from canal_server.runtime.backoff import Backoff
from canal_server.spark.reading.range_tasks import told_of_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.mirror.follow.micro_batches import ChangeStream
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.state.feed import Feed
    from canal_server.mirror.state.state import States
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 30.0
# How the source of Spark begins to tell of changes that are gone (`spark.ranges.loss`);
# its errors come through the JVM, as texts.
_LOSS: Final = "cannot be read any more"
# How Spark tells that it was ended, as by a full disk, before it had noted the first
# batch, and left files beside which it does not begin.
_HALF_BEGUN: Final = "CHECKPOINT_LOCATION_NOT_EMPTY"


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
        on_failure: Callable[[str], None] = lambda _why: None,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        """Take what the stream is made of.

        `on_failure` is called with why it fails, each time that it does, `on_idle` in
        a thread of Spark's, each time it has looked and nothing had come.
        """
        self._settings = settings
        self._spark = spark
        self._stream = stream
        self._stop = stop
        self._on_failure = on_failure
        self._on_idle = on_idle
        self._is_heard = False  # `on_idle`, by Spark
        self._generation = store.generation()
        self._checkpoint = f"{settings.checkpoint}/{self._generation}"
        self._query: Any = None
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._due = 0.0
        # Whether it left a checkpoint that was not of what the lake has, and whether
        # the subscription, which went along with that, has to be moved back yet.
        self._has_left = self._has_to_go_back = False
        self._left_at: Feed | None = None
        self._begun_at: Feed | None = None  # another one as soon as a batch is taken

    def start(self) -> None:
        """Begin where the checkpoint is, or at the end of the binlog."""
        name = subscription_of(self._settings, self._generation)
        frame = (
            self._spark.readStream.format("canal")
            .options(**stream_options(self._settings, name))
            .load()
        )
        writer = (
            frame.writeStream.foreachBatch(self._stream.take)
            .option("checkpointLocation", self._checkpoint)
            .queryName(f"mirror {self._settings.name}")
        )
        trigger_s = self._settings.stream.trigger_s
        writer = writer.trigger(
            processingTime=f"{round(trigger_s * 1000)} milliseconds"
        )
        with self._stream.joining:  # no batch is taken before its query is known
            self._query = writer.start()
            self._begun_at = self._stream.feed
            # Of the checkpoint: the same as before, unless somebody removed it.
            self._stream.open(str(self._query.id))
        if not self._is_heard:
            listen(self._spark, self._on_idle)
            self._is_heard = True

    def look(self) -> None:
        """Begin again when the query failed a while ago.

        Raises DataLossError where that would not help, CanalError where Spark has
        ended, and what py4j raises when its JVM is gone.
        """
        if self._query is not None and self._query.isActive:
            return
        now = time.monotonic()
        if self._query is not None:
            self._take_failure(now)
        if now >= self._due:
            try:
                if self._has_to_go_back:
                    begin_again(self._settings, self._stream.feed, self._stop)
                    self._has_to_go_back = False
                self.start()
            except DataLossError:
                raise
            except Exception as error:  # noqa: BLE001  # Spark's, of many kinds
                self._check_spark()
                self._due = now + self._backoff.delay_s(now)
                text = _reason(error)
                mirror_stream_messages.MIRROR_STREAM_NOT_STARTED.log(log, text)
                self._on_failure(text)

    def stop(self) -> None:
        """End the query; a batch that is being taken is ended first."""
        self._stream.close()
        if self._query is not None:
            # A batch that comes now is refused, which Spark tells with stack traces.
            self._spark.sparkContext.setLogLevel("OFF")
            self._query.stop()
            self._query = None

    def _take_failure(self, now: float) -> None:
        """Tell why the query failed, and see to what can be seen to."""
        text = _reason(self._query.exception())
        self._query = None
        if self._stream.gap:
            self._leave_checkpoint()
            text = "its checkpoint was not of what is in the lake"
        elif _LOSS in text:
            raise DataLossError(text)
        elif _HALF_BEGUN in text:
            log.info("the stream was not begun: clearing %s", self._checkpoint)
            self._clear()
        if self._stream.feed is not self._begun_at:
            self._backoff.reset()  # it was well in between
        delay_s = self._backoff.delay_s(now)
        self._due = now + delay_s
        mirror_stream_messages.MIRROR_STREAM_FAILED.log(log, text, delay_s)
        self._on_failure(text)

    def _check_spark(self) -> None:
        """Raise CanalError when Spark has ended, what py4j raises when its JVM has."""
        if self._spark.sparkContext._jsc.sc().isStopped():  # noqa: SLF001
            raise CanalError("Spark has ended the application; start the mirror again")

    def _leave_checkpoint(self) -> None:
        """Begin where the lake is, as the checkpoint is not of what that has.

        Raises DataLossError when that was done, and something would still be missing.
        """
        gap, self._stream.gap = self._stream.gap, ""
        if self._has_left and self._stream.feed is self._left_at:
            raise DataLossError(gap)
        self._has_left = self._has_to_go_back = True
        self._left_at = self._stream.feed  # another one as soon as a batch is taken
        mirror_stream_messages.MIRROR_CHECKPOINT_CLEARED.log(log, gap, self._checkpoint)
        self._clear()

    def _clear(self) -> None:
        """Forget the checkpoint: the stream begins at its cursor.

        What was taken since then is known by its place when it comes again.
        """
        path = self._spark._jvm.org.apache.hadoop.fs.Path(self._checkpoint)  # noqa: SLF001
        files = path.getFileSystem(self._spark._jsc.hadoopConfiguration())  # noqa: SLF001
        files.delete(path, True)


def _reason(error: object) -> str:
    """Return what an error of Spark says, in the words of the mirror's settings."""
    return in_settings(told_of_loss(reason(error)))
