"""Upkeep of the lake's tables: merges small files, deletes old versions.

On a separate schedule, one table at a time, between two batches of the stream, as both
write the same files.
"""

from __future__ import annotations

import logging
import time
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.errors import LakeError
from canal_server.messages.mirror import mirror_table_messages
from canal_server.mirror.follow.table_faults import fault_of
from canal_server.mirror.state.lake_tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.mirror.follow.micro_batches import ChangeStream
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.lake_tables import LakeTable
    from canal_server.mirror.state.upkeep_times import UpkeepTimes
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

VACUUM_EVERY_S: Final = 3600.0
PARTITIONS_MANY: Final = 2_000
STORE_EVERY_S: Final = 60.0  # of the times; a job is repeated if the process is killed


class _Duty(NamedTuple):
    """A job for a table."""

    overdue_s: float  # overdue time; below 0: not due yet
    name: TableName
    done: dict[TableName, float]
    do: Callable[[TableName], None]


class Upkeep:
    """Does the jobs that are due; for one thread."""

    def __init__(
        self,
        settings: MirrorSettings,
        stream: ChangeStream,
        times: UpkeepTimes,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the tables and where times of jobs are kept. Raises LakeError."""
        self._settings = settings
        self._stream = stream
        self._times = times
        self._now = now
        at = now()
        self._stored_s = at
        self._partitioned: set[TableName] = set()  # with too many partitions
        # Last time, or when first seen.
        self._compacted, self._vacuumed = (
            {name: at - ago_s for name, ago_s in each.items()} for each in times.read()
        )

    def run_all(self, stop: Stop) -> None:
        """Do all jobs that are due, until a stop is requested. Raises LakeError."""
        while not stop.requested() and self._run_next():
            pass
        self._store(self._now())

    def run_next(self) -> None:
        """Do one job of at most one table, if it is due; the most overdue comes first.

        A failure is logged, also an internal one, and the job is repeated after its
        period. Raises LakeError if the times cannot be stored.
        """
        self._run_next()
        now = self._now()
        if now - self._stored_s >= STORE_EVERY_S:
            self._store(now)

    def _store(self, now: float) -> None:
        self._stored_s = now
        self._times.write(
            *(
                {name: now - each[name] for name in self._stream.tables if name in each}
                for each in (self._compacted, self._vacuumed)
            )
        )

    def _run_next(self) -> bool:
        now = self._now()
        duty = max(self._duties(now), key=attrgetter("overdue_s"), default=None)
        if duty is None or duty.overdue_s < 0:
            return False
        duty.done[duty.name] = now
        try:
            duty.do(duty.name)
        except LakeError as error:
            mirror_table_messages.MIRROR_UPKEEP_FAILED.log(log, duty.name, error)
        except BaseException as error:
            fault = fault_of(error)
            if fault is None:
                raise
            mirror_table_messages.MIRROR_UPKEEP_CRASHED.log(
                log, duty.name, fault, exc_info=True
            )
        return True

    def _duties(self, now: float) -> Iterator[_Duty]:
        lake = self._settings.lake
        vacuum_every_s = VACUUM_EVERY_S if lake.vacuum_after_s else 0.0
        for done, period_s, do in (
            (self._compacted, lake.compact_every_s, self._compact),
            (self._vacuumed, vacuum_every_s, self._vacuum),
        ):
            for name in self._stream.tables if period_s else ():
                overdue_s = now - done.setdefault(name, now) - period_s
                yield _Duty(overdue_s, name, done, do)

    def _compact(self, name: TableName) -> None:
        with self._stream.joining:
            follower = self._stream.follower(name)
            if follower is not None:
                lake = open_table(self._settings, follower.table)
                lake.compact()
                if follower.table.partitions and name not in self._partitioned:
                    self._check_partitions(name, lake)

    def _check_partitions(self, name: TableName, lake: LakeTable) -> None:
        """Log that a table has too many partitions, once."""
        size = lake.size()
        if size is not None and size.partitions > PARTITIONS_MANY:
            self._partitioned.add(name)
            mirror_table_messages.MIRROR_TABLE_PARTITIONED.log(
                log, name, size.partitions
            )

    def _vacuum(self, name: TableName) -> None:
        with self._stream.joining:
            follower = self._stream.follower(name)
            if follower is not None:
                hours = self._settings.lake.vacuum_after_s / 3600
                open_table(self._settings, follower.table).vacuum(hours)
