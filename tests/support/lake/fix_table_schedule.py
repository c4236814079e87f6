"""A schedule of a mirror's tables over a lake, whose clocks and work the test moves."""

from __future__ import annotations

import io
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from canal_server.mirror.follow.dropped_tables import DroppedTables
from canal_server.mirror.follow.micro_batches import ChangeStream
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run.progress import Progress
from canal_server.mirror.run.table_schedule import TableSchedule
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.model.entry import EventType
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.columns.spark_schema import TypedColumn
from canal_server.spark.packed.packed_rows import STATEMENT, Packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from canal_server.mirror.settings.mirror_settings import MirrorSettings

TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables: [{match: '.*\\.t', to: both}, {match: '.*\\.deep', to: both/deep}, {match: .*}]
"""
A, B, C = TableName("a", "t"), TableName("b", "t"), TableName("a", "c")
D, DEEP = TableName("b", "d"), TableName("a", "deep")


class Recreated(DroppedTables):
    """Dropped tables of which `present` exist again, as if the database said so."""

    def __init__(self, settings: MirrorSettings) -> None:
        super().__init__(settings, Stop())
        self.dropped: set[TableName] = set()
        self.present: set[TableName] = set()

    def add(self, name: TableName) -> None:
        """Note a table."""
        self.dropped.add(name)

    def poll(self) -> set[TableName]:
        """Return those that exist again, once."""
        found = self.dropped & self.present
        self.dropped -= found
        return found


class Pool(Executor):
    """Records which tables were started; the test ends their work."""

    def __init__(self) -> None:
        self.started: list[TableName] = []
        self.running: dict[TableName, Future[Any]] = {}

    def submit(self, _sync: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Note a table."""
        (state,) = args
        self.started.append(state.source)
        self.running[state.source] = Future()
        return self.running[state.source]


@dataclass
class Scene:
    """A schedule over a lake, whose clocks and work the test moves."""

    settings: MirrorSettings
    store: States
    dropped: Recreated
    progress: Progress
    stream: ChangeStream
    now_s: float = 1e9
    reached: int = 0  # the stream's stored position
    pool: Pool = field(default_factory=Pool)
    schedule: TableSchedule = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, missing: tuple[TableName, ...] = (), end: int = 0) -> None:
        """Begin with what the lake has, as another process does.

        `missing`: tables that the source no longer has, at the binlog's end.
        """
        self.pool = Pool()
        self.schedule = TableSchedule(
            self.settings, self.store, self.progress, self.dropped,
            now=lambda: self.now_s, wall=lambda: self.now_s,
            reached=lambda: self.reached,
        )  # fmt: skip
        self.schedule.resume(self.store.read_all(), missing, end)

    def given(self, *states: TableState) -> None:
        """Begin with these tables instead."""
        for name in self.store.read_all():
            self.store.forget(name)
        for state in states:
            self.store.write(state)
        self.restart()

    def started(self) -> list[TableName]:
        """Return the tables that are started now."""
        before = len(self.pool.started)
        self.schedule.start_due(self.pool, nothing)
        return self.pool.started[before:]

    def ends(
        self, name: TableName, state: TableState | None = None,
        error: Exception | None = None,
    ) -> None:  # fmt: skip
        """End the work on a table, which has stored a state or failed."""
        if state is not None:
            self.store.write(state)
        if error is None:
            self.pool.running[name].set_result(None)
        else:
            self.pool.running[name].set_exception(error)

    def request(self, name: TableName) -> None:
        """Request a new copy, as the command does."""
        self.store.request_copy([name])
        self.schedule.accept_requests(self.stream)

    def stored(self, name: TableName) -> TableState:
        """Return what the lake has of a table."""
        state = self.store.read(name)
        assert state is not None
        return state

    def phases(self) -> dict[TableName, tuple[Phase, str]]:
        """Return what becomes of tables, as it is stored."""
        return {
            name: (state.phase, state.message.partition(";")[0])
            for name, state in self.store.read_all().items()
        }


def nothing(*_: Any) -> None:
    """Stand where nothing is called, or nothing is to be done."""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Give a schedule of which table a.t follows the stream."""
    yield from make_scene(read(TEXT, str(tmp_path / "m.yml"), {}))


def make_scene(settings: MirrorSettings) -> Iterator[Scene]:
    """Yield a schedule with these settings."""
    stream = ChangeStream(
        "example", 1, parts_max=1, on_statement=nothing, on_leave=nothing,
        on_batch=nothing,
    )  # fmt: skip
    made = Scene(
        settings, States(open_folder(settings.lake, settings.folder)),
        Recreated(settings), Progress(io.StringIO()), stream,
    )  # fmt: skip
    made.given(TableState(A, "both", Phase.FOLLOWING, "c1"))
    yield made
    made.dropped.close()


def created(name: TableName) -> Packed:
    """Return a statement that makes a table."""
    return Packed(
        kind=STATEMENT, destination="example", table=name, seq=1, row=0, is_ddl=True,
        sql=f"CREATE TABLE {name} (id INT)", event_type=EventType.CREATE.name,
        columns=(TypedColumn("id", "int", "", True),),
    )  # fmt: skip
