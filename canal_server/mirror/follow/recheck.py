"""Compares tables as a whole, by their keys, to find rows to read again.

Foreign keys change what a row refers to, or delete the row; so both sides are compared
by the primary key and the columns of foreign keys. A row that differs is suspect: it
may be stale, or the stream has not reached it yet; reading it again is right for both.

A separate thread reads the database and the lake, once the stream has reached the
source's position at the time of the request. Leaves out what is done with suspects
(`reread`).
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.errors import CanalError, LakeError
from canal_server.messages.mirror import mirror_stream_messages
from canal_server.mirror.lake import masks
from canal_server.mirror.lake.conditions import Where
from canal_server.mirror.lake.hashes import row_hashes
from canal_server.mirror.lake.lake_table import DELETED
from canal_server.mirror.rows.chunk_read import read_chunk
from canal_server.mirror.rows.chunks import Chunk
from canal_server.mirror.rows.copy_positions import latest
from canal_server.mirror.session.spark_session import table_options
from canal_server.mirror.state.lake_tables import open_table
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable, TableName
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

PAUSE_S: Final = 30.0  # minimum between two comparisons of a table
PAUSE_SHARE: Final = 20  # comparisons use at most this part of the time
RETRY_S: Final = 10.0


@dataclass(slots=True)
class _Request:
    """A request to compare a table."""

    due_s: float
    head: int | None = None  # required position of the stream; None: not queried yet
    repeat: bool = False  # requested again, after that position


class Recheck:
    """Compares tables on request; `poll` is for one thread."""

    def __init__(
        self,
        settings: MirrorSettings,
        stop: Stop,
        *,
        table_of: Callable[[TableName], tuple[MirrorTable, tuple[str, ...]] | None],
        position: Callable[[], int],
        suspect: Callable[[TableName, pa.Table], None],
        pause_s: float = PAUSE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the callbacks.

        `table_of` returns how a followed table is mirrored, and the columns that count;
        `position` returns the stream's. `suspect` accepts keys, on any thread.
        """
        self._settings = settings
        self._stop = stop
        self._table_of = table_of
        self._position = position
        self._suspect = suspect
        self._pause_s = pause_s
        self._now = now
        self._lock = threading.Lock()
        self._requests: dict[TableName, _Request] = {}
        self._ended: dict[TableName, float] = {}  # when a table may be compared again
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="recheck")
        self._work: tuple[TableName, Future[None]] | None = None

    def request(self, names: Iterable[TableName], delay_s: float = 0.0) -> None:
        """Request a comparison of tables; thread-safe."""
        now = self._now()
        with self._lock:
            for name in names:
                request = self._requests.get(name)
                if request is None:
                    self._requests[name] = _Request(now + delay_s)
                elif request.head is not None:
                    request.repeat = True
                else:
                    request.due_s = max(request.due_s, now + delay_s)

    @property
    def is_busy(self) -> bool:
        """Whether there are requests."""
        with self._lock:
            return bool(self._requests or self._work)

    @property
    def awaits_stream(self) -> bool:
        """Whether a request needs a stream that is further."""
        position = self._position()
        with self._lock:
            return any(
                request.head is not None and request.head > position
                for request in self._requests.values()
            )

    def poll(self) -> None:
        """Continue with the requests."""
        if self._work is not None:
            name, work = self._work
            if not work.done():
                return
            self._work = None
            self._ended_with(name, work)
        now = self._now()
        with self._lock:
            for name, request in self._requests.items():
                if request.due_s > now or self._ended.get(name, 0.0) > now:
                    continue
                if request.head is None:
                    self._work = name, self._pool.submit(self._locate, name, request)
                elif request.head <= self._position():
                    self._work = name, self._pool.submit(self._compare, name)
                else:
                    continue
                return

    def close(self) -> None:
        """End the thread; the stop was requested before."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _ended_with(self, name: TableName, work: Future[None]) -> None:
        try:
            work.result()
        except (CanalError, OSError) as error:
            with self._lock:
                self._requests[name].due_s = self._now() + RETRY_S
            mirror_stream_messages.MIRROR_FOREIGN_KEYS_NOT_COMPARED.log(
                log, name, error, RETRY_S
            )

    def _locate(self, name: TableName, request: _Request) -> None:
        channel = Channel(
            table_options(self._settings, name),
            self._settings.canal.destination,
            stop=self._stop,
        )
        try:
            head = version_of(latest(self._settings, channel))
        finally:
            channel.close()
        with self._lock:
            request.head = head

    def _compare(self, name: TableName) -> None:
        started = time.monotonic()
        found = self._table_of(name)
        if found is not None:
            try:
                differing = self._differing(*found)
            except (KeyError, pa.ArrowException) as error:
                # A statement has reached one side but not the other yet.
                raise LakeError(f"its columns changed meanwhile ({error})") from error
            for keys in differing:
                self._suspect(name, keys)
        took_s = time.monotonic() - started
        with self._lock:
            request = self._requests.pop(name)
            pause_s = max(self._pause_s, PAUSE_SHARE * took_s)
            self._ended[name] = self._now() + pause_s
            if request.repeat:
                self._requests[name] = _Request(0.0)

    def _differing(
        self, table: MirrorTable, names: tuple[str, ...]
    ) -> Iterable[pa.Table]:
        """Return the keys of rows that differ between the sides."""
        narrow = replace(
            table, columns=tuple(c for c in table.columns if c.name in names)
        )
        key = [c.target for c in narrow.columns if c.name in table.key]
        lake = self._lake_rows(narrow)
        ours = _hashes(lake)
        theirs = []
        found = []
        rows_per_s = self._settings.copy.rows_per_connection
        for batch in read_chunk(
            self._settings.source.access,
            narrow,
            Chunk(0),
            rows_per_s=rows_per_s,
            stop=self._stop,
        ):
            rows = pa.table(masks.apply(batch, narrow)).cast(lake.schema)
            hashes = _hashes(rows)
            theirs.append(hashes)
            found.append(rows.filter(pc.invert(pc.is_in(hashes, ours))).select(key))
        known = pa.concat_arrays(theirs) if theirs else pa.array([], pa.int64())
        found.append(lake.filter(pc.invert(pc.is_in(ours, known))).select(key))
        return [each for each in found if each.num_rows]

    def _lake_rows(self, narrow: MirrorTable) -> pa.Table:
        lake = open_table(self._settings, narrow)
        schema = lake.arrow_schema()
        assert schema is not None  # it follows the stream
        names = [name for column in narrow.columns for name in column.targets]
        where = Where(live=DELETED.name in schema.names)
        batches = [pa.table(each) for each in lake.scan(names, where)]
        kept = pa.schema([pa.field(n, schema.field(n).type) for n in names])
        return pa.concat_tables([kept.empty_table(), *(b.cast(kept) for b in batches)])


def _hashes(rows: pa.Table) -> pa.Array:
    columns = [rows[name].combine_chunks() for name in rows.column_names]
    return row_hashes(columns, rows.num_rows)
