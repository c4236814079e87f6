"""A table on its way into the stream: what is noted of copies that were in vain."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from canal_server.client.range_client import RangePosition
from canal_server.errors import DecodeError, SourceError
from canal_server.mirror.copy.copying import Copied, CopyJob
from canal_server.mirror.follow.follower import CopyNeededError
from canal_server.mirror.follow.micro_batches import ChangeStream
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run.progress import Progress
from canal_server.mirror.run.table_sync import COPIES_MAX, TableSync
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import MirrorTable, TableName
from canal_server.mirror.state.feed import Feed
from canal_server.mirror.state.lake_tables import lake_schema, open_table
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.model.columns_known import ColumnMeta
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables: [{match: .*}]
"""
T = TableName("shop", "t")


class Outrun(TableSync):
    """Copies a table whose columns change in the meantime, each time."""

    def _sync_steps(self, state: TableState) -> None:
        begun = replace(
            state, phase=Phase.COPYING, copy_id=f"c{state.copies}",
            copies=state.copies + 1,
        )  # fmt: skip
        self._store.write(begun)
        raise CopyNeededError("its columns changed")


class Changed(TableSync):
    """Has tables whose columns are other ones by now."""

    def _columns_now(self, name: TableName) -> tuple[ColumnMeta, ...]:
        return (ColumnMeta("a", "int"),)


class Unchanged(TableSync):
    """Has tables that no statement of their own has changed."""

    def _check_since(self, name: TableName, position: RangePosition) -> None:
        """Find nothing."""


class Unreadable(CopyJob):
    """Finds something that it cannot read."""

    problem = ""

    def run(self, *_: object) -> Copied:
        """Fail."""
        raise DecodeError(self.problem)


def work_in(folder: Path, kind: type[TableSync]) -> tuple[TableSync, States]:
    """Return a table sync without a stream, and its store."""
    settings = read(TEXT, str(folder / "m.yml"), {})
    store = States(open_folder(settings.lake, settings.folder))

    def nothing(*_):
        raise AssertionError("there is no stream")

    stream = ChangeStream(
        "example", 1, parts_max=1, on_statement=nothing, on_leave=nothing,
        on_batch=nothing,
    )  # fmt: skip
    work = kind(
        settings, None, store, stream, progress=Progress(io.StringIO()), stop=Stop(),
        is_mariadb=False,
    )  # fmt: skip
    return work, store


OF_NOW = (ColumnMeta("a", "int"),)


@pytest.mark.parametrize(
    ("columns", "problem", "raised"),
    [
        (OF_NOW, "not of that type", DecodeError),
        ((), "not of that type", CopyNeededError),
        (OF_NOW, "Key 'u' doesn't exist in table 't' (error 1176)", CopyNeededError),
    ],
)
def test_rows_that_cannot_be_read(
    tmp_path, monkeypatch, columns, problem, raised
) -> None:
    """The table is copied again if it has changed, else the error is raised.

    Its columns show a change, and so does the server's error for a dropped index.
    """
    monkeypatch.setattr("canal_server.mirror.run.table_sync.CopyJob", Unreadable)
    monkeypatch.setattr(Unreadable, "problem", problem)
    work, _ = work_in(tmp_path, Changed)
    table = MirrorTable(T, "shop/t", ())
    position = RangePosition(1, "binlog.000007", 4)
    state = TableState(T, "shop/t", copy_id="c", position=position, columns=columns)
    with pytest.raises(raised, match=re.escape(problem)):
        work._run(state, table)


def test_copies_in_a_row_are_counted(tmp_path) -> None:
    """A table that is outrun all the time is stopped, after so many copies."""
    work, store = work_in(tmp_path, Outrun)
    work.sync(TableState(T, "shop/t", copies=3))
    state = store.read(T)
    assert state is not None
    assert state.phase is Phase.STOPPED
    assert "its columns changed during each of 5 copies" in state.message
    assert state.copies == 3 + COPIES_MAX


class Read:
    """A fake reader of one table's changes, which has none."""

    def __init__(self) -> None:
        self.end = RangePosition(1, "binlog.000007", 900)

    def latest(self) -> RangePosition:
        """Return where the server has come to."""
        return self.end

    def read(self, *_: object) -> int:
        """Read nothing."""
        return 0


@pytest.mark.parametrize(
    ("moved_at", "joins"), [(500, False), (400, False), (399, True)]
)
def test_rows_that_were_moved_while_the_table_was_copied(
    tmp_path: Path, moved_at: int, joins: bool
) -> None:
    """A reader of the table alone does not see it; the stream does: it is copied again.

    Also if that happened while the copy waited for another try.
    """
    work, store = work_in(tmp_path, TableSync)
    begun, moved = (
        version_of(RangePosition(1, "binlog.000007", offset))
        for offset in (400, moved_at)
    )
    position = RangePosition(1, "binlog.000007", 900)
    work._stream.feed = Feed("example", position, moved={T: moved})
    state = TableState(
        T, "shop/t", Phase.CATCHING_UP, "c1", position=position, begun=begun,
        columns=(ColumnMeta("a", "int", is_key=True),),
    )  # fmt: skip
    table = work._plan(T, state.columns)
    open_table(work._settings, table).publish("c1", lake_schema(table), [], begun, {})
    follower = work.follower_of(store.write(state))
    reading: Any = Read()
    if joins:
        work._caught_up(follower, state, reading)
        assert work._stream.tables == [T]
        return
    with pytest.raises(CopyNeededError, match="a statement on another table"):
        work._caught_up(follower, state, reading)
    assert work._stream.tables == []


@pytest.mark.parametrize("moved_at", [4, 500])
def test_a_copy_that_would_begin_before_rows_were_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved_at: int
) -> None:
    """Without GTIDs it starts a while ago, and waits until that is after the move."""
    work, store = work_in(tmp_path, Unchanged)
    position = RangePosition(1, "binlog.000007", 4)
    monkeypatch.setattr(
        "canal_server.mirror.run.table_sync.start_position", lambda *_, **__: position
    )
    moved = version_of(RangePosition(1, "binlog.000007", moved_at))
    work._stream.feed = Feed("example", position, moved={T: moved})
    channel: Any = None  # it is not asked
    with pytest.raises(SourceError, match="since then a statement"):
        work._start(store.write(TableState(T, "shop/t")), channel)
