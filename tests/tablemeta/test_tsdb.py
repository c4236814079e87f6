"""The table history: images at every place that it covers, and what survives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_tablemeta_storage import T0_MS, UUID, at

from canal_server.errors import TableMetaError
from canal_server.tablemeta.context import Context
from canal_server.tablemeta.storage import SourceTraits, StoredSchema
from canal_server.tablemeta.storage_sqlite import FILE_NAME, SqliteHistoryStorage
from canal_server.tablemeta.tsdb import Retention, TableMetaTsdb, made_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from canal_server.model.positions import EntryPosition

TRAITS = SourceTraits(version=80401, collation="utf8mb4_0900_ai_ci")
BASE = [
    StoredSchema(
        "db",
        "utf8mb4_0900_ai_ci",
        (("t", "CREATE TABLE `t` (`a` int NOT NULL, PRIMARY KEY (`a`))"),),
    )
]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = T0_MS / 1000

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """Give the clock of the history under test."""
    return Clock()


@pytest.fixture
def storage(tmp_path: Path) -> SqliteHistoryStorage:
    """Give a storage in a file."""
    return SqliteHistoryStorage(tmp_path / FILE_NAME)


@pytest.fixture
def tsdb(storage: SqliteHistoryStorage, clock: Clock) -> Iterator[TableMetaTsdb]:
    """Give a history with the table db.t (a), standing at 1:100."""
    history = TableMetaTsdb(storage, Retention(ddls_per_snapshot=10), clock)
    history.init("test")
    stretch = history.begin(UUID, TRAITS, at(1, 100), BASE)
    history.rollback(at(1, 100), stretch)
    yield history
    history.close()


def columns(tsdb: TableMetaTsdb, table: str = "t") -> list[str]:
    """Return the names of a table's columns in the live image."""
    found = tsdb.find("db", table)
    return [] if found is None else [column.name for column in found.columns]


def add(tsdb: TableMetaTsdb, position: EntryPosition, column: str) -> None:
    """Apply an ALTER that adds a column."""
    context = Context(schema="db", collation_server="utf8mb4_0900_ai_ci")
    tsdb.apply(position, "db", f"ALTER TABLE t ADD {column} INT", context.to_json())


def test_every_place_has_its_columns(tsdb: TableMetaTsdb) -> None:
    """Before a statement the columns are those of before, behind it those of after."""
    for number in range(1, 6):
        add(tsdb, at(number, 200), f"c{number}")
    whole = ["a", "c1", "c2", "c3", "c4", "c5"]
    assert columns(tsdb) == whole
    for number in range(1, 6):
        tsdb.rollback(at(number, 200))
        assert columns(tsdb) == whole[:number]
        tsdb.rollback(at(number, 201))
        assert columns(tsdb) == whole[: number + 1]


def test_an_image_beside_the_live_one(tsdb: TableMetaTsdb) -> None:
    """`at` answers for another place, stays as it is, and leaves the live one."""
    add(tsdb, at(1, 200), "b")
    before = tsdb.at(at(1, 150))
    add(tsdb, at(1, 300), "c")
    found = before.find("db", "t")
    assert found is not None
    assert [column.name for column in found.columns] == ["a"]
    assert columns(tsdb) == ["a", "b", "c"]


def test_reading_again_applies_nothing_twice(tsdb: TableMetaTsdb) -> None:
    """After going back, statements that come again do what they did, kept once."""
    add(tsdb, at(1, 200), "b")
    add(tsdb, at(1, 300), "c")
    tsdb.rollback(at(1, 150))
    add(tsdb, at(1, 200), "b")
    assert columns(tsdb) == ["a", "b"]
    add(tsdb, at(1, 300), "c")
    assert columns(tsdb) == ["a", "b", "c"]
    tsdb.rollback(at(1, 301))
    assert columns(tsdb) == ["a", "b", "c"]


def test_a_new_process_goes_on(
    tsdb: TableMetaTsdb, storage: SqliteHistoryStorage, clock: Clock
) -> None:
    """What was applied is there after the storage was closed and opened."""
    add(tsdb, at(1, 200), "b")
    tsdb.close()
    again = TableMetaTsdb(storage, Retention(), clock)
    assert again.init("test")
    again.rollback(at(1, 201))
    assert columns(again) == ["a", "b"]
    add(again, at(2, 200), "c")
    assert columns(again) == ["a", "b", "c"]


def test_places_outside(tsdb: TableMetaTsdb) -> None:
    """A place that is not covered is refused, and the error says what is covered."""
    add(tsdb, at(1, 200), "b")
    for place in (at(1, 99), at(1, 202), at(2, 4)):
        with pytest.raises(TableMetaError, match=r"000001:100 to \S+000001:201"):
            tsdb.rollback(place)
    assert columns(tsdb) == ["a", "b"]


def test_what_was_passed_is_covered(tsdb: TableMetaTsdb) -> None:
    """Places that were read without any statement are covered, too."""
    tsdb.reached(at(3, 1000))
    tsdb.rollback(at(2, 500))
    assert columns(tsdb) == ["a"]
    with pytest.raises(TableMetaError):
        tsdb.rollback(at(3, 1001))


def test_the_end_is_written_now_and_then(tsdb: TableMetaTsdb, clock: Clock) -> None:
    """What passes within seconds is not written each time; a while later it is."""
    tsdb.passed(at(1, 200))
    tsdb.passed(at(1, 300))
    assert tsdb.stretches()[-1].last == at(1, 200)
    clock.now_s += 60
    tsdb.passed(at(1, 400))
    assert tsdb.stretches()[-1].last == at(1, 400)


def test_snapshots_by_count(tsdb: TableMetaTsdb, storage: SqliteHistoryStorage) -> None:
    """After so many statements there is a snapshot; every place is right."""
    for number in range(1, 36):
        add(tsdb, at(1, 100 * number + 100), f"c{number}")
    (stretch,) = tsdb.stretches()
    newest = storage.snapshot(stretch.id)
    assert newest is not None
    assert newest.position.order() > at(1, 3000).order()
    for number in (0, 1, 9, 10, 11, 19, 20, 21, 34, 35):
        tsdb.rollback(at(1, 100 * number + 101))
        assert len(columns(tsdb)) == number + 1


def test_snapshots_by_time_and_their_end(
    tsdb: TableMetaTsdb, storage: SqliteHistoryStorage, clock: Clock
) -> None:
    """The interval makes a snapshot when there was a statement; old ones expire."""
    add(tsdb, at(1, 200), "b")
    clock.now_s += 25 * 3600
    add(tsdb, at(2, 200, timestamp=int(clock.now_s * 1000)), "c")
    (stretch,) = tsdb.stretches()
    newest = storage.snapshot(stretch.id)
    assert newest is not None
    assert newest.position.journal_name == at(2, 200).journal_name
    clock.now_s += 400 * 3600
    add(tsdb, at(3, 200, timestamp=int(clock.now_s * 1000)), "d")
    with pytest.raises(TableMetaError):
        tsdb.rollback(at(1, 100))
    tsdb.rollback(at(3, 100))
    assert columns(tsdb) == ["a", "b", "c"]


class TestContained:
    """A base that was taken behind statements that come yet."""

    NOW = (
        StoredSchema(
            "db",
            "",
            (
                ("t", "CREATE TABLE `t` (`a` int, `b` int, `c` int)"),
                ("still", "CREATE TABLE `still` (`a` int)"),
                ("new", "CREATE TABLE `new` (`x` int, `y` int)"),
            ),
        ),
    )
    EARLIER = (
        (at(1, 200), "ALTER TABLE t ADD b INT"),
        (at(1, 300), "CREATE TABLE new (x INT)"),
        (at(1, 400), "ALTER TABLE t ADD c INT"),
        (at(1, 500), "ALTER TABLE new ADD y INT"),
    )

    @pytest.fixture
    def behind(
        self, storage: SqliteHistoryStorage, clock: Clock
    ) -> Iterator[TableMetaTsdb]:
        """Give a history whose base was taken at 1:600, standing at 1:100."""
        history = TableMetaTsdb(storage, Retention(ddls_per_snapshot=2), clock)
        history.init("test")
        stretch = history.begin(UUID, TRAITS, at(1, 600), self.NOW)
        records = [
            made_record(position, "db", text, contained=True)
            for position, text in self.EARLIER
        ]
        history.extend(stretch, records, first=at(1, 100))
        history.rollback(at(1, 100))
        yield history
        history.close()

    def test_nothing_is_applied_twice(self, behind: TableMetaTsdb) -> None:
        """Statements that the base contains change no table that it knows."""
        for position, text in self.EARLIER:
            behind.apply(position, "db", text)
        assert columns(behind) == ["a", "b", "c"]
        assert columns(behind, "new") == ["x", "y"]
        add(behind, at(1, 700), "d")
        assert columns(behind) == ["a", "b", "c", "d"]

    def test_doubt_ends_with_the_last_statement(self, behind: TableMetaTsdb) -> None:
        """A table is uncertain until no statement on it comes any more."""
        assert behind.is_uncertain("db", "t")
        assert not behind.is_uncertain("db", "still")
        behind.apply(at(1, 200), "db", "ALTER TABLE t ADD b INT")
        assert behind.is_uncertain("db", "t")
        behind.apply(at(1, 300), "db", "CREATE TABLE new (x INT)")
        behind.apply(at(1, 400), "db", "ALTER TABLE t ADD c INT")
        assert not behind.is_uncertain("db", "t")

    def test_a_creation_tells_all(self, behind: TableMetaTsdb) -> None:
        """From its CREATE on a table is known, though an ALTER comes yet."""
        assert behind.is_uncertain("db", "new")
        behind.apply(at(1, 200), "db", "ALTER TABLE t ADD b INT")
        behind.apply(at(1, 300), "db", "CREATE TABLE new (x INT)")
        assert not behind.is_uncertain("db", "new")
        assert columns(behind, "new") == ["x"]

    def test_places_in_between(self, behind: TableMetaTsdb) -> None:
        """Every place says what it can; behind the base all is certain."""
        behind.rollback(at(1, 450))
        assert not behind.is_uncertain("db", "t")
        assert columns(behind, "new") == ["x"]
        behind.rollback(at(1, 600))
        assert columns(behind, "new") == ["x", "y"]
        assert not behind.is_uncertain("db", "new")

    def test_no_snapshot_before_the_base(
        self, behind: TableMetaTsdb, storage: SqliteHistoryStorage
    ) -> None:
        """While contained statements come no snapshot is taken, for it has no base."""
        assert not behind.snapshot()
        for position, text in self.EARLIER:
            behind.apply(position, "db", text)
        assert behind.snapshot()
        newest = storage.snapshot(behind.stretches()[-1].id)
        assert newest is not None
        assert newest.position.order() == at(1, 501).order()


def test_another_server_by_time(tsdb: TableMetaTsdb) -> None:
    """Statements older than a time count as executed on the server that took over."""
    add(tsdb, at(1, 200, timestamp=T0_MS + 1000), "b")
    add(tsdb, at(1, 300, timestamp=T0_MS + 5000), "c")
    (stretch,) = tsdb.stretches()
    image = tsdb.at_executed(
        stretch, lambda record: (record.position.timestamp or 0) < T0_MS + 5000
    )
    found = image.find("db", "t")
    assert found is not None
    assert [column.name for column in found.columns] == ["a", "b"]


def test_places_by_time(tsdb: TableMetaTsdb) -> None:
    """A time is the place of the first statement that is not older."""
    tsdb.apply(
        at(1, 200, timestamp=T0_MS + 10_000_000), "db", "ALTER TABLE t ADD b INT"
    )
    tsdb.reached(at(1, 900, timestamp=T0_MS + 20_000_000))
    assert tsdb.place_at(T0_MS + 10_000_000)[1].order() == at(1, 200).order()
    assert tsdb.place_at(T0_MS + 10_000_001)[1].order() == at(1, 900).order()
    with pytest.raises(TableMetaError):
        tsdb.place_at(T0_MS - 10_000_000)


def test_an_answer_of_the_server_is_kept(tsdb: TableMetaTsdb) -> None:
    """A definition that was asked for is known from its place on, also later."""
    tsdb.load(at(1, 200), "db", "CREATE TABLE `late` (`z` int)")
    assert columns(tsdb, "late") == ["z"]
    add(tsdb, at(1, 300), "b")
    tsdb.rollback(at(1, 250))
    assert columns(tsdb, "late") == ["z"]
    tsdb.rollback(at(1, 150))
    assert columns(tsdb, "late") == []
