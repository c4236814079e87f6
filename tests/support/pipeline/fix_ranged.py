"""Ranged reads of an instance in this process, on a real source."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fix_source_access import PATIENCE_S

from canal_server.config.schema import (
    FilterConfig,
    HostConfig,
    HostPort,
    InstanceConfig,
    PositionConfig,
    SourceConfig,
    StoreConfig,
    TableMetaConfig,
)
from canal_server.instance.instance import Instance
from canal_server.model.positions import EntryPosition
from canal_server.model.ranges import EpochPosition, RangeEnds, RangeLimits, RangePart
from canal_server.protocol.entry_messages import (
    Entry,
    EntryType,
    EventType,
    decode_entry,
)
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode
from canal_server.runtime.lifecycle import Deadline
from canal_server.spark.reading.raw_rows import rendered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from servers import Server

    from canal_server.ranges.range_access import Live
    from canal_server.ranges.ranged_reads import RangedReads

NAME = "lake"
LOOK_S = 0.05  # between two looks at what gives no signal
NO_LIMITS = RangeLimits()


class Lake:
    """One instance, and one subscription to all tables of a schema."""

    def __init__(self, instance: Instance, schema: str) -> None:
        self.instance = instance
        self.filter = rf"{schema}\..*"

    @property
    def ranges(self) -> RangedReads:
        """Return what is tested."""
        assert self.instance.ranges is not None
        return self.instance.ranges

    def live(self) -> Live:
        """Return the stages that are read from; no status shows when they have news."""
        return self.ranges._access.stages()

    def subscribe(self, start: str = "latest", name: str = NAME) -> EpochPosition:
        """Return where the subscription stands."""
        return self.ranges.subscribe(name, self.filter, start)[0].cursor

    def head(
        self,
        start: EpochPosition,
        limits: RangeLimits = NO_LIMITS,
        wait_s: float = PATIENCE_S,
    ) -> RangeEnds:
        """Return the ends of the next batch."""
        return self.ranges.head(NAME, start, limits, wait_s)

    def until(self, start: EpochPosition, rows: int) -> EpochPosition:
        """Return the end of a range that has so many rows and statements, no more."""
        found, at = 0, start
        while found < rows:
            ends = self.head(at)
            assert ends.rows, f"{found} of {rows} rows arrived after {start}"
            found, at = found + ends.rows, ends.end
        assert found == rows
        return at

    def read(
        self,
        start: EpochPosition,
        end: EpochPosition,
        name: str = NAME,
        *,
        relays: bool = False,
    ) -> list[bytes]:
        """Return the serialized entries of a range."""
        pieces: list[bytes] = []

        def take(slices: Any, size: int) -> None:
            pieces.append(b"".join(slices))
            assert len(pieces[-1]) == size

        self.ranges.read(name, self.filter, start, end, take, relays=relays)
        body = b"".join(rendered(map(memoryview, pieces)))
        return list(decode(Messages, body).messages)

    def read_again(self, start: EpochPosition, end: EpochPosition) -> list[bytes]:
        """Return the same, of the source's binlog: rendered there, and here."""
        before = self.looks()
        found = self.read(start, end, name="")
        assert self.read(start, end, name="", relays=True) == found
        assert self.looks() == (before[0], before[1] + 2)
        return found

    def read_memory(self, start: EpochPosition, end: EpochPosition) -> list[bytes]:
        """Return the same, from memory."""
        self.wait_for_memory(end)
        before = self.looks()
        found = self.read(start, end)
        assert self.looks() == (before[0] + 1, before[1])
        return found

    def plan(
        self, start: EpochPosition, end: EpochPosition, parts: int
    ) -> list[RangePart]:
        """Return the parts of a range."""
        return self.ranges.plan(NAME, "", start, end, parts)

    def looks(self) -> tuple[int, int]:
        """Return how often memory answered, and the binlog was read."""
        status: dict[str, Any] = self.ranges.status()
        return status["from_memory"], status["from_binlog"]

    def wait_until_delivered(self, position: EpochPosition) -> None:
        """Wait until the pump has handed on what is in front of a position."""
        deadline, live = Deadline(PATIENCE_S), self.live()
        expected = EntryPosition(position.journal, position.position).order()
        while True:
            at = live.pump.delivered_to
            if at is not None and at.order() >= expected:
                return
            assert not deadline.passed(), f"the pump is at {at}, never at {position}"
            live.tail.wait(live.tail.changes, LOOK_S, None)

    def wait_for_memory(self, position: EpochPosition) -> None:
        """Wait until memory has what is in front of a position.

        A head that was answered from the binlog may be ahead of the pump.
        """
        deadline, tail = Deadline(PATIENCE_S), self.live().tail
        while True:
            seen, latest = tail.changes, tail.latest()
            if latest is not None:
                reached = EpochPosition(position.epoch, latest[0], latest[1])
                if reached.order() >= position.order():
                    return
            assert not deadline.passed(), f"memory has {latest}, never {position}"
            tail.wait(seen, deadline.remaining_s() or 0.0, None)

    def warm(self, source: Server, table: str, row: str = "(-1)") -> EpochPosition:
        """Return a position that memory has reached: it will hold all after it."""
        start = self.subscribe()
        source.execute(f"INSERT INTO {table} VALUES {row}")
        position = self.until(start, 1)
        self.wait_for_memory(position)
        return position


def rows_of(entries: list[bytes]) -> list[tuple[str | None, ...]]:
    """Return the table and the values of each row, and the text of each statement."""
    found: list[tuple[str | None, ...]] = []
    for entry in map(decode_entry, entries):
        if entry.entry_type == EntryType.ROWDATA:
            found += _rows_in(entry)
    return found


def _rows_in(entry: Entry) -> Iterator[tuple[str | None, ...]]:
    change = entry.row_change()
    if change.is_ddl:
        yield (change.sql,)
    for row in change.row_datas:
        is_delete = entry.header.event_type == EventType.DELETE
        values = row.before if is_delete else row.after
        yield entry.header.table_name, *itertools.chain.from_iterable(values.items())


@pytest.fixture
def make_lake(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Lake]]:
    """Give `make(server, memory=…, **source)`: an instance that reads it, started.

    Its ranges are those of a fresh schema of a shared server, unless one is named.

    All of a test have the same cursors and table history, so one runs at a time.
    """
    started: list[Instance] = []

    def stop() -> None:
        while started:
            instance = started.pop()
            instance.request_stop()
            assert instance.join(Deadline(PATIENCE_S))

    def make(
        server: Server,
        memory: int = 32 << 20,
        ring: int = 16 * 1024,
        folder: Path = tmp_path,
        schema: str = "",
        *,
        tables: TableMetaConfig | None = None,
        **source: object,
    ) -> Lake:
        stop()
        account = SourceConfig(
            master=HostConfig(address=HostPort(server.host, server.port)),
            user=server.user,
            password=server.password,
        )
        config = InstanceConfig(
            destination="wired",
            source=replace(account, **source),  # type: ignore[arg-type]
            filter=FilterConfig(),
            position=PositionConfig(data_dir=folder),
            store=StoreConfig(ranged_bytes_max=memory, buffer_size=ring),
            table_meta=tables or TableMetaConfig(dir=folder / "history"),
        )
        instance = Instance(config)
        started.append(instance)
        instance.start()
        return Lake(instance, schema or request.getfixturevalue("database"))

    yield make
    stop()
