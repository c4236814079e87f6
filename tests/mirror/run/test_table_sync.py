"""A table on its way into the stream: what is noted of copies that were in vain."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from canal_server.client.range_client import RangePosition
from canal_server.errors import DecodeError, SourceError
from canal_server.mirror.copy.copying import Copied, CopyJob
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
)
from canal_server.mirror.follow.micro_batches import ChangeStream
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run import table_sync
from canal_server.mirror.run.progress import Progress
from canal_server.mirror.run.table_sync import COPIES_MAX, TableSync
from canal_server.mirror.settings.selected_tables import mirror_table
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.feed import Feed
from canal_server.mirror.state.lake_tables import lake_schema, open_table
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.model.columns_known import ColumnMeta
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from pathlib import Path

    from canal_server.mirror.settings.mirror_settings import MirrorSettings

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
        started = replace(
            state, phase=Phase.COPYING, copy_id=f"c{state.copies}",
            copies=state.copies + 1,
        )  # fmt: skip
        self._store.write(started)
        raise CopyNeededError("its columns changed")


class Unreadable(CopyJob):
    """Finds something that it cannot read."""

    problem = ""

    def run(self, *_: object) -> Copied:
        """Fail."""
        raise DecodeError(self.problem)


def settings_in(folder: Path) -> MirrorSettings:
    """Return the settings of a mirror whose lake is in a folder."""
    return read(TEXT, str(folder / "m.yml"), {})


def work_in(
    folder: Path, kind: type[TableSync] = TableSync
) -> tuple[TableSync, States, ChangeStream]:
    """Return a table sync, its store, and its stream, in which nothing happens."""
    settings = settings_in(folder)
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
    return work, store, stream


class Read:
    """A fake reader of one table's changes, which has none."""

    def __init__(self, *_: object, **__: object) -> None:
        self.end = RangePosition(1, "binlog.000007", 900)

    def latest(self) -> RangePosition:
        """Return where the server has come to."""
        return self.end

    def read(self, *_: object) -> int:
        """Read nothing."""
        return 0

    def statements(self, *_: object) -> tuple[()]:
        """Find nothing."""
        return ()

    def close(self) -> None:
        """End, which takes nothing."""


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Have tables without changes, and no position where another copy could begin."""

    def unreachable(*_: object, **__: object) -> RangePosition:
        raise SourceError("no copy begins here")

    monkeypatch.setattr(table_sync, "CatchUp", Read)
    monkeypatch.setattr(table_sync, "start_position", unreachable)
    return monkeypatch


BEFORE = (ColumnMeta("b", "int"),)
NOW = (ColumnMeta("a", "int"),)


@pytest.mark.parametrize(
    ("columns", "problem", "is_changed"),
    [
        (NOW, "not of that type", False),
        (BEFORE, "not of that type", True),
        (NOW, "Key 'u' doesn't exist in table 't' (error 1176)", True),
    ],
)
def test_rows_that_cannot_be_read(
    tmp_path: Path,
    source: pytest.MonkeyPatch,
    columns: tuple[ColumnMeta, ...],
    problem: str,
    is_changed: bool,
) -> None:
    """The table is copied again if it has changed, else the error is raised.

    Its columns show a change, and so does the server's error for a dropped index.
    """
    known = iter([columns, NOW])
    source.setattr(table_sync, "columns_at", lambda *_: next(known))
    source.setattr(table_sync, "CopyJob", Unreadable)
    source.setattr(Unreadable, "problem", problem)
    work, store, _ = work_in(tmp_path)
    position = RangePosition(1, "binlog.000007", 4)
    state = TableState(
        T, "shop/t", Phase.COPYING, "c", position=position, columns=columns
    )
    state = store.write(state)
    if not is_changed:
        with pytest.raises(DecodeError, match=re.escape(problem)):
            work.sync(state)
        return
    with pytest.raises(SourceError, match="no copy begins here"):
        work.sync(state)
    found = store.read(T)
    assert found is not None
    assert found.phase is Phase.WAITING
    assert found.message == f"the table changed while it was copied ({problem})"


class Overtaken(CopyJob):
    """Copies an empty table, while another mirror publishes its own copy of it."""

    folder: Path

    def run(self, *_: object) -> Copied:
        """Publish as the other mirror."""
        other = read(TEXT.replace("name: shop", "name: east"), str(self.folder), {})
        table = mirror_table(T, NOW, other)
        open_table(other, table).publish("c-east", lake_schema(table), [], 5, {})
        States(open_folder(other.lake, other.folder)).write(
            TableState(T, table.target, Phase.FOLLOWING, "c-east")
        )
        return Copied([], RangePosition(1, "binlog.000007", 4), lake_schema(table), 0)


def test_first_copies_that_overlap(tmp_path: Path, source: pytest.MonkeyPatch) -> None:
    """The mirror that is later leaves the table to the other, with its rows."""
    source.setattr(table_sync, "columns_at", lambda *_: NOW)
    source.setattr(table_sync, "CopyJob", Overtaken)
    source.setattr(Overtaken, "folder", tmp_path / "m.yml", raising=False)
    work, store, _ = work_in(tmp_path)
    position = RangePosition(1, "binlog.000007", 4)
    state = TableState(T, "shop/t", Phase.COPYING, "c", position=position, columns=NOW)
    work.sync(store.write(state))
    found = store.read(T)
    assert found is not None
    assert found.phase is Phase.STOPPED
    assert "is written by the mirror east" in found.message
    settings = settings_in(tmp_path)
    lake = open_table(settings, mirror_table(T, NOW, settings))
    assert lake.applied("c-east") == 5


def test_copies_in_a_row_are_counted(tmp_path) -> None:
    """A table that is outrun all the time is stopped, after so many copies."""
    work, store, _ = work_in(tmp_path, Outrun)
    work.sync(TableState(T, "shop/t", copies=3))
    state = store.read(T)
    assert state is not None
    assert state.phase is Phase.STOPPED
    assert "each of 5 copies in a row had to be made again" in state.message
    assert state.copies == 3 + COPIES_MAX


@pytest.mark.parametrize(
    ("moved_at", "joins"), [(500, False), (400, False), (399, True)]
)
def test_rows_that_were_moved_while_the_table_was_copied(
    tmp_path: Path, source: pytest.MonkeyPatch, moved_at: int, joins: bool
) -> None:
    """A reader of the table alone does not see it; the stream does: it is copied again.

    Also if that happened while the copy waited for another try.
    """
    work, store, stream = work_in(tmp_path)
    started, moved = (
        version_of(RangePosition(1, "binlog.000007", offset))
        for offset in (400, moved_at)
    )
    position = RangePosition(1, "binlog.000007", 900)
    stream.feed = Feed("example", position, moved={T: moved})
    state = TableState(
        T, "shop/t", Phase.CATCHING_UP, "c1", position=position, copied_at=started,
        columns=(ColumnMeta("a", "int", is_key=True),),
    )  # fmt: skip
    settings = settings_in(tmp_path)
    table = mirror_table(T, state.columns, settings)
    open_table(settings, table).publish("c1", lake_schema(table), [], started, {})
    state = store.write(state)
    if joins:
        work.sync(state)
        assert stream.tables == [T]
        return
    with pytest.raises(SourceError, match="no copy begins here"):
        work.sync(state)
    found = store.read(T)
    assert found is not None
    assert found.phase is Phase.WAITING
    assert "a statement on another table" in found.message
    assert stream.tables == []


def test_the_error_of_an_earlier_try(
    tmp_path: Path, source: pytest.MonkeyPatch
) -> None:
    """It is no longer shown of a table that follows the stream."""
    work, store, stream = work_in(tmp_path)
    position = RangePosition(1, "binlog.000007", 900)
    stream.feed = Feed("example", position)
    state = TableState(
        T, "shop/t", Phase.CATCHING_UP, "c1", position=position,
        columns=(ColumnMeta("a", "int", is_key=True),), message="the store was away",
    )  # fmt: skip
    table = mirror_table(T, state.columns, settings_in(tmp_path))
    open_table(settings_in(tmp_path), table).publish(
        "c1", lake_schema(table), [], 1, {}
    )
    work.sync(store.write(state))
    found = store.read(T)
    assert found is not None
    assert (found.phase, found.message) == (Phase.FOLLOWING, "")


@pytest.mark.parametrize("moved_at", [4, 500])
def test_a_copy_that_would_begin_before_rows_were_moved(
    tmp_path: Path, source: pytest.MonkeyPatch, moved_at: int
) -> None:
    """Without GTIDs it starts a while ago, and waits until that is after the move."""
    work, store, stream = work_in(tmp_path)
    position = RangePosition(1, "binlog.000007", 4)
    source.setattr(table_sync, "start_position", lambda *_, **__: position)
    moved = version_of(RangePosition(1, "binlog.000007", moved_at))
    stream.feed = Feed("example", position, moved={T: moved})
    with pytest.raises(SourceError, match="since then a statement"):
        work.sync(store.write(TableState(T, "shop/t")))
