"""Kept images: they say what a replay from the beginning says, and cost less."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_tablemeta_storage import UUID, at, ddl

from canal_server.tablemeta.history.ddl_records import made_record
from canal_server.tablemeta.history.replay import Replay
from canal_server.tablemeta.history.replay_cache import KEPT_MAX, KeptReplays
from canal_server.tablemeta.history.tsdb import Retention, TableMetaTsdb
from canal_server.tablemeta.storage.history_storage import (
    BinlogSegment,
    SourceTraits,
    StoredSchema,
)
from canal_server.tablemeta.storage.sqlite_storage import (
    FILE_NAME,
    SqliteHistoryStorage,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from canal_server.model.positions import EntryPosition
    from canal_server.tablemeta.storage.history_storage import (
        DdlRecord,
        Snapshot,
    )

TRAITS = SourceTraits(version=80401, collation="utf8mb4_0900_ai_ci")
BASE = [
    StoredSchema(
        "db",
        "utf8mb4_0900_ai_ci",
        tuple((f"t{n}", f"CREATE TABLE `t{n}` (`a` int)") for n in range(3)),
    )
]


class CountingStorage(SqliteHistoryStorage):
    """Counts the snapshots that are loaded."""

    loaded = 0

    def snapshot(
        self, segment_id: int, at: EntryPosition | None = None
    ) -> Snapshot | None:
        """Load one."""
        self.loaded += 1
        return super().snapshot(segment_id, at)


@pytest.fixture
def storage(tmp_path: Path) -> CountingStorage:
    """Give a storage in a file."""
    return CountingStorage(tmp_path / FILE_NAME)


@pytest.fixture
def tsdb(storage: CountingStorage) -> Iterator[TableMetaTsdb]:
    """Give a history with three tables, from 1:100 on; every tenth DDL a snapshot."""
    history = TableMetaTsdb(storage, Retention(ddls_per_snapshot=10))
    history.init("test")
    segment = history.begin(UUID, TRAITS, at(1, 100), BASE)
    history.rollback(at(1, 100), segment)
    yield history
    history.close()


def described(replay: Replay) -> list[tuple[str, object]]:
    """Return all that an image says of tables."""
    image = replay.model.freeze()
    found = [(name, image.find("db", name)) for name in sorted(image.tables("db"))]
    return [(name, table and table.columns) for name, table in found]


def columns(replay: Replay, table: str = "t0") -> list[str]:
    """Return the names of a table's columns."""
    found = replay.find("db", table)
    return [] if found is None else [column.name for column in found.columns]


def alter(tsdb: TableMetaTsdb, position: EntryPosition, text: str) -> None:
    """Let the history follow a statement."""
    record = ddl(position, text)
    tsdb.apply(made_record(position, "db", text, record.context.to_json()))


def look(
    tsdb: TableMetaTsdb, kept: KeptReplays, position: EntryPosition
) -> tuple[list[tuple[str, object]], list[DdlRecord]]:
    """Return the result of a cached replay, and the records after it."""
    replay, records = tsdb.replay_at(position, newest(tsdb), kept)
    said = described(replay)
    later = [each for each in records if each.position.order() >= position.order()]
    for record in later:  # as its reader would; others must not notice
        replay.apply(record)
    return said, later


def newest(tsdb: TableMetaTsdb) -> BinlogSegment:
    """Return the segment that is being written."""
    return tsdb.segments()[-1]


def test_a_position_again_loads_nothing(
    tsdb: TableMetaTsdb, storage: CountingStorage
) -> None:
    """A second replay of a position, and one after it, use the cached first one."""
    kept = KeptReplays()
    for number in range(1, 4):
        alter(tsdb, at(1, 100 * number + 100), f"ALTER TABLE t0 ADD c{number} INT")
    tsdb.reached(at(2, 500))
    first = tsdb.replay_at(at(1, 250), newest(tsdb), kept)[0]
    assert columns(first) == ["a", "c1"]
    before = storage.loaded
    assert columns(tsdb.replay_at(at(1, 250), newest(tsdb), kept)[0]) == ["a", "c1"]
    later = tsdb.replay_at(at(1, 350), newest(tsdb), kept)[0]
    assert columns(later) == ["a", "c1", "c2"]
    assert storage.loaded == before
    kept.forget()
    tsdb.replay_at(at(1, 250), newest(tsdb), kept)
    assert storage.loaded == before + 1


def test_an_image_belongs_to_its_reader(tsdb: TableMetaTsdb) -> None:
    """What one reader applies to its image is in no other one's."""
    kept = KeptReplays()
    alter(tsdb, at(1, 200), "ALTER TABLE t0 ADD b INT")
    one, later = tsdb.replay_at(at(1, 150), newest(tsdb), kept)
    other = tsdb.replay_at(at(1, 150), newest(tsdb), kept)[0]
    one.apply(later[0])
    one.model.forget("db", "t1")
    assert columns(one) == ["a", "b"]
    assert columns(other) == ["a"]
    assert columns(other, "t1") == ["a"]
    assert columns(tsdb.replay_at(at(1, 150), newest(tsdb), kept)[0], "t1") == ["a"]


def test_a_later_answer_counts(tsdb: TableMetaTsdb) -> None:
    """A cached replay is not used if more is known about what is before it."""
    kept = KeptReplays()
    alter(tsdb, at(1, 200), "ALTER TABLE t0 ADD b INT")
    tsdb.reached(at(1, 900))
    assert not columns(tsdb.replay_at(at(1, 500), newest(tsdb), kept)[0], "late")
    tsdb.rollback(at(1, 300))
    tsdb.load(at(1, 310), "db", "CREATE TABLE `late` (`z` int)")
    found = tsdb.replay_at(at(1, 500), newest(tsdb), kept)[0]
    assert columns(found, "late") == ["z"]


def test_random_positions_say_the_same(tsdb: TableMetaTsdb, rng: random.Random) -> None:
    """Replays of random positions, with DDL in between, equal uncached replays."""
    kept = KeptReplays()
    offset, positions = 100, [at(1, 100)]
    for number in range(60):
        offset += rng.randrange(20, 60)
        table = rng.randrange(3)
        text = rng.choice(
            (
                f"ALTER TABLE t{table} ADD c{number} INT",
                f"CREATE TABLE n{number} (x INT)",
                f"RENAME TABLE t{table} TO r{number}, r{number} TO t{table}",
                f"DROP TABLE IF EXISTS n{number - 3}",
            )
        )
        alter(tsdb, at(1, offset), text)
        positions += [at(1, offset), at(1, offset + 19)]
        for position in rng.choices(positions, k=3):
            assert look(tsdb, kept, position) == look(tsdb, KeptReplays(), position)


def test_only_some_are_kept() -> None:
    """However many there are, only those that were used last stay in memory."""
    kept, position = KeptReplays(), at(1, 100)
    segments = [
        BinlogSegment(number, UUID, TRAITS, position, position)
        for number in range(3 * KEPT_MAX)
    ]
    for each in segments:
        kept.keep(each, position, (), position, Replay(TRAITS, BASE))
    found = [kept.snapshot_before(each, position) is not None for each in segments]
    assert found == [False] * 2 * KEPT_MAX + [True] * KEPT_MAX
