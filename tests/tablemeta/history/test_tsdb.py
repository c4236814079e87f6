"""The table history: schemas at every position it covers, and what survives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_tablemeta_storage import T0_MS, UUID, at

from canal_server.errors import TableMetaError
from canal_server.tablemeta.history.ddl_records import made_record
from canal_server.tablemeta.history.tsdb import Retention, TableMetaTsdb
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import SourceTraits, StoredSchema
from canal_server.tablemeta.storage.sqlite_storage import (
    FILE_NAME,
    SqliteHistoryStorage,
)

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
    segment = history.begin(UUID, TRAITS, at(1, 100), BASE)
    history.rollback(at(1, 100), segment)
    yield history
    history.close()


def columns(tsdb: TableMetaTsdb, table: str = "t") -> list[str]:
    """Return the names of a table's columns in the live image."""
    found = tsdb.find("db", table)
    return [] if found is None else [column.name for column in found.columns]


def add(tsdb: TableMetaTsdb, position: EntryPosition, column: str) -> None:
    """Apply an ALTER that adds a column."""
    context = Context(schema="db", collation_server="utf8mb4_0900_ai_ci")
    tsdb.apply(
        made_record(
            position, "db", f"ALTER TABLE t ADD {column} INT", context.to_json()
        )
    )


def test_tables_and_doubts(tsdb: TableMetaTsdb) -> None:
    """Any thread may ask how many tables there are, and which are uncertain."""
    assert tsdb.tables is not None
    assert tuple(tsdb.tables) == (1, ())
    context = Context(schema="db").to_json()
    for number, text in enumerate(("CREATE TABLE s SELECT * FROM t", "DROP TABLE s")):
        tsdb.apply(made_record(at(1, 200 + number), "db", text, context))
        uncertain = () if number else (("db", "s"),)
        assert tsdb.tables is not None
        assert tsdb.tables.uncertain == uncertain
    tsdb.close()
    assert tsdb.tables is None


def test_every_position_has_its_columns(tsdb: TableMetaTsdb) -> None:
    """Before a statement there are the old columns, after it the new ones."""
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
    """`at` returns another position, is immutable, and keeps the live schemas."""
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
    """Applied statements are kept when the storage is closed and opened."""
    add(tsdb, at(1, 200), "b")
    tsdb.close()
    again = TableMetaTsdb(storage, Retention(), clock)
    assert again.init("test")
    again.rollback(at(1, 201))
    assert columns(again) == ["a", "b"]
    add(again, at(2, 200), "c")
    assert columns(again) == ["a", "b", "c"]


def test_positions_outside(tsdb: TableMetaTsdb) -> None:
    """A position outside the history is refused with the range that is covered."""
    add(tsdb, at(1, 200), "b")
    for position in (at(1, 99), at(1, 219), at(2, 4)):
        with pytest.raises(TableMetaError, match=r"000001:100 to \S+000001:218"):
            tsdb.rollback(position)
    assert columns(tsdb) == ["a", "b"]


def test_what_was_passed_is_covered(tsdb: TableMetaTsdb) -> None:
    """Positions that were read without any statement are covered as well."""
    tsdb.reached(at(3, 1000))
    tsdb.rollback(at(2, 500))
    assert columns(tsdb) == ["a"]
    with pytest.raises(TableMetaError):
        tsdb.rollback(at(3, 1001))


def test_the_end_is_written_now_and_then(tsdb: TableMetaTsdb, clock: Clock) -> None:
    """What passes within seconds is not written each time; a while later it is."""
    tsdb.passed(at(1, 200))
    tsdb.passed(at(1, 300))
    assert tsdb.segments()[-1].last == at(1, 200)
    clock.now_s += 60
    tsdb.passed(at(1, 400))
    assert tsdb.segments()[-1].last == at(1, 400)


def test_the_end_is_written_in_the_end(
    tsdb: TableMetaTsdb, storage: SqliteHistoryStorage
) -> None:
    """What was too early to be written down is, when the history is closed."""
    tsdb.passed(at(1, 200))
    tsdb.passed(at(1, 300))
    tsdb.close()
    storage.open()
    assert storage.segments()[-1].last == at(1, 300)


def test_the_end_is_not_in_another_segment(tsdb: TableMetaTsdb) -> None:
    """What was read before moving to another segment does not extend that one."""
    (old,) = tsdb.segments()
    tsdb.passed(at(1, 200))
    tsdb.passed(at(7, 300))
    new = tsdb.begin("another", TRAITS, at(1, 50), BASE)
    tsdb.rollback(at(1, 50), new)
    tsdb.close()
    tsdb.init("test")
    ends = {each.id: each.last.order() for each in tsdb.segments()}
    assert ends == {old.id: at(1, 200).order(), new.id: at(1, 50).order()}


def test_snapshots_by_count(tsdb: TableMetaTsdb, storage: SqliteHistoryStorage) -> None:
    """After this many statements there is a snapshot; every position is right."""
    for number in range(1, 36):
        add(tsdb, at(1, 100 * number + 100), f"c{number}")
    (segment,) = tsdb.segments()
    newest = storage.snapshot(segment.id)
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
    (segment,) = tsdb.segments()
    newest = storage.snapshot(segment.id)
    assert newest is not None
    assert newest.position.journal_name == at(2, 200).journal_name
    clock.now_s += 400 * 3600
    add(tsdb, at(3, 200, timestamp=int(clock.now_s * 1000)), "d")
    with pytest.raises(TableMetaError):
        tsdb.rollback(at(1, 100))
    tsdb.rollback(at(3, 100))
    assert columns(tsdb) == ["a", "b", "c"]


class TestContained:
    """A base that was read after statements that are still to come."""

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
    def later(
        self, storage: SqliteHistoryStorage, clock: Clock
    ) -> Iterator[TableMetaTsdb]:
        """Give a history whose base was read at 1:600, positioned at 1:100."""
        history = TableMetaTsdb(storage, Retention(ddls_per_snapshot=2), clock)
        history.init("test")
        segment = history.begin(UUID, TRAITS, at(1, 600), self.NOW)
        records = [
            made_record(position, "db", text, contained=True)
            for position, text in self.EARLIER
        ]
        history.extend(segment, records, first=at(1, 100))
        history.rollback(at(1, 100))
        yield history
        history.close()

    def test_nothing_is_applied_twice(self, later: TableMetaTsdb) -> None:
        """Statements that the base contains change no table that it knows."""
        for position, text in self.EARLIER:
            later.apply(made_record(position, "db", text))
        assert columns(later) == ["a", "b", "c"]
        assert columns(later, "new") == ["x", "y"]
        add(later, at(1, 700), "d")
        assert columns(later) == ["a", "b", "c", "d"]

    def test_doubt_ends_with_the_last_statement(self, later: TableMetaTsdb) -> None:
        """A table is uncertain until no statement on it is left."""
        assert later.is_uncertain("db", "t")
        assert not later.is_uncertain("db", "still")
        later.apply(made_record(at(1, 200), "db", "ALTER TABLE t ADD b INT"))
        assert later.is_uncertain("db", "t")
        later.apply(made_record(at(1, 300), "db", "CREATE TABLE new (x INT)"))
        later.apply(made_record(at(1, 400), "db", "ALTER TABLE t ADD c INT"))
        assert not later.is_uncertain("db", "t")

    def test_a_creation_shows_all(self, later: TableMetaTsdb) -> None:
        """A table is known from its CREATE on, even if an ALTER is still to come."""
        assert later.is_uncertain("db", "new")
        later.apply(made_record(at(1, 200), "db", "ALTER TABLE t ADD b INT"))
        later.apply(made_record(at(1, 300), "db", "CREATE TABLE new (x INT)"))
        assert not later.is_uncertain("db", "new")
        assert columns(later, "new") == ["x"]

    def test_positions_in_between(self, later: TableMetaTsdb) -> None:
        """Every position is as certain as possible; after the base all is certain."""
        later.rollback(at(1, 450))
        assert not later.is_uncertain("db", "t")
        assert columns(later, "new") == ["x"]
        later.rollback(at(1, 600))
        assert columns(later, "new") == ["x", "y"]
        assert not later.is_uncertain("db", "new")

    def test_no_snapshot_before_the_base(
        self, later: TableMetaTsdb, storage: SqliteHistoryStorage
    ) -> None:
        """While contained statements are pending, no snapshot is written."""
        assert not later.snapshot()
        for position, text in self.EARLIER:
            later.apply(made_record(position, "db", text))
        assert later.snapshot()
        newest = storage.snapshot(later.segments()[-1].id)
        assert newest is not None
        assert newest.position.order() == at(1, 518).order()


def test_another_server_by_time(tsdb: TableMetaTsdb) -> None:
    """Statements older than a time count as executed on the new server."""
    add(tsdb, at(1, 200, timestamp=T0_MS + 1000), "b")
    add(tsdb, at(1, 300, timestamp=T0_MS + 5000), "c")
    (segment,) = tsdb.segments()
    image = tsdb.at_executed(
        segment, lambda record: (record.position.timestamp or 0) < T0_MS + 5000
    )
    found = image.find("db", "t")
    assert found is not None
    assert [column.name for column in found.columns] == ["a", "b"]


def test_positions_by_time(tsdb: TableMetaTsdb) -> None:
    """A time selects the position of the first statement that is not older."""
    tsdb.apply(
        made_record(
            at(1, 200, timestamp=T0_MS + 10_000_000), "db", "ALTER TABLE t ADD b INT"
        )
    )
    tsdb.reached(at(1, 900, timestamp=T0_MS + 20_000_000))
    assert tsdb.position_at(T0_MS + 10_000_000)[1].order() == at(1, 200).order()
    assert tsdb.position_at(T0_MS + 10_000_001)[1].order() == at(1, 900).order()
    with pytest.raises(TableMetaError):
        tsdb.position_at(T0_MS - 10_000_000)


def test_an_answer_of_the_server_is_kept(tsdb: TableMetaTsdb) -> None:
    """A definition that was asked for is known from the last statement on."""
    add(tsdb, at(1, 200), "b")
    for name in ("late", "later"):
        tsdb.load(at(1, 250), "db", f"CREATE TABLE `{name}` (`z` int)")
    assert columns(tsdb, "late") == ["z"]
    add(tsdb, at(1, 300), "c")
    for position, known in ((218, True), (250, True), (301, True), (200, False)):
        tsdb.rollback(at(1, position))
        for name in ("late", "later"):
            assert columns(tsdb, name) == ["z"] * known


@pytest.mark.parametrize("is_last", [True, False], ids=["snapshot", "base"])
def test_an_answer_where_reading_began(tsdb: TableMetaTsdb, is_last: bool) -> None:
    """It is known to the next reader from the same position, snapshot or not."""
    if is_last:
        tsdb.reached(at(2, 500))
        tsdb.rollback(at(2, 500))
        assert tsdb.snapshot()
    begin = tsdb.segments()[-1].last
    for number in range(30):
        text = f"CREATE TABLE `t{number}` (`z` int)"
        tsdb.load(at(3, 1000 + number), "db", text)
    tsdb.rollback(begin)
    assert columns(tsdb, "t0") == columns(tsdb, "t16") == ["z"]
    tsdb.reached(at(4, 100))
    tsdb.rollback(at(4, 100))
    assert all(columns(tsdb, f"t{number}") == ["z"] for number in range(30))


def test_looking_beside_changes_no_count(
    tsdb: TableMetaTsdb, storage: SqliteHistoryStorage
) -> None:
    """Schemas apart from the live ones do not delay snapshots."""
    for number in range(1, 10):
        add(tsdb, at(1, 200 + 20 * number), f"c{number}")
        tsdb.at(at(1, 200))
    assert newest_snapshot(tsdb, storage).order() == at(1, 100).order()
    add(tsdb, at(1, 600), "last")
    assert newest_snapshot(tsdb, storage).order() == at(1, 618).order()


def newest_snapshot(
    tsdb: TableMetaTsdb, storage: SqliteHistoryStorage
) -> EntryPosition:
    """Return the position of the newest snapshot."""
    found = storage.snapshot(tsdb.segments()[-1].id)
    assert found is not None
    return found.position


def test_the_interval_outlives_a_restart(
    tsdb: TableMetaTsdb, storage: SqliteHistoryStorage, clock: Clock
) -> None:
    """A process that restarts often still writes its snapshots in time."""
    tsdb.close()
    for hour in range(30):
        clock.now_s += 3600
        again = TableMetaTsdb(storage, Retention(), clock)
        again.init("test")
        again.rollback(again.segments()[-1].last)
        position = at(1, 1000 + 20 * hour, timestamp=int(clock.now_s * 1000))
        add(again, position, f"c{hour}")
        again.close()
    storage.open()
    newest = newest_snapshot(tsdb, storage)
    assert newest.order() > at(1, 1000).order()


def test_temporary_tables_put_snapshots_off(
    tsdb: TableMetaTsdb, storage: SqliteHistoryStorage
) -> None:
    """While a session's own table hides another one, no snapshot forgets that."""
    tsdb.apply(made_record(at(1, 110), "db", "CREATE TEMPORARY TABLE t (x INT)"))
    for number in range(1, 20):
        add(tsdb, at(1, 200 + 20 * number), f"c{number}")
    assert columns(tsdb) == ["a"]
    assert newest_snapshot(tsdb, storage).order() == at(1, 100).order()
    tsdb.apply(made_record(at(1, 800), "db", "DROP TEMPORARY TABLE t"))
    add(tsdb, at(1, 900), "b")
    assert columns(tsdb) == ["a", "b"]
    assert newest_snapshot(tsdb, storage).order() > at(1, 800).order()


def test_what_was_executed_is_not_forgotten(tsdb: TableMetaTsdb) -> None:
    """A statement moves the end, and leaves the set that was executed before it."""
    tsdb.reached(at(1, 200, gtid=f"{UUID}:1-5"))
    add(tsdb, at(1, 300, gtid=f"{UUID}:6"), "b")
    (segment,) = tsdb.segments()
    assert segment.last.gtid == f"{UUID}:1-5"
    assert tsdb.end_event(segment).order() == at(1, 300).order()
    tsdb.reached(at(1, 400, gtid=f"{UUID}:1-7"))
    (segment,) = tsdb.segments()
    assert segment.last.gtid == f"{UUID}:1-7"
    assert tsdb.end_event(segment).order() == at(1, 400).order()


def test_another_server_by_what_it_executed(
    tsdb: TableMetaTsdb, storage: SqliteHistoryStorage
) -> None:
    """Snapshots with statements that the other server lacks are skipped."""
    for number in range(1, 16):
        add(tsdb, at(1, 200 + 20 * number), f"c{number}")
    assert newest_snapshot(tsdb, storage).order() > at(1, 200).order()
    (segment,) = tsdb.segments()
    missing = at(1, 300).order()
    more = made_record(at(7, 4), "db", "ALTER TABLE t ADD more INT")
    image = tsdb.at_executed(
        segment, lambda record: record.position.order() != missing, [more]
    )
    found = image.find("db", "t")
    assert found is not None
    kept = [f"c{number}" for number in range(1, 16) if number != 5]
    assert [column.name for column in found.columns] == ["a", *kept, "more"]


def test_who_reads_what_is_old_loses_nothing(tsdb: TableMetaTsdb, clock: Clock) -> None:
    """If reading lags far behind the clock, recent positions stay covered."""
    clock.now_s += 100 * 24 * 3600
    for number in range(40):
        position = at(1, 200 + 20 * number, timestamp=T0_MS + number * 1000)
        add(tsdb, position, f"c{number}")
    tsdb.rollback(at(1, 100))
    assert columns(tsdb) == ["a"]


def test_who_reads_again_loses_nothing(tsdb: TableMetaTsdb, clock: Clock) -> None:
    """A position that is read again stays covered, though the end is much newer."""
    day_ms = 24 * 3600 * 1000
    positions = [at(1, 200 + 20 * n, timestamp=T0_MS + n * day_ms) for n in range(40)]
    for number, position in enumerate(positions):
        add(tsdb, position, f"c{number}")
    clock.now_s += 45 * 24 * 3600
    tsdb.rollback(positions[2])
    add(tsdb, positions[2], "c2")
    tsdb.rollback(positions[2])
    assert columns(tsdb) == ["a", "c0", "c1"]


def test_answers_after_what_another_server_lacks(tsdb: TableMetaTsdb) -> None:
    """A later answer of the server contains statements that are still to come."""
    add(tsdb, at(1, 200), "b")
    tsdb.load(at(1, 250), "db", "CREATE TABLE `early` (`z` int)")
    add(tsdb, at(1, 300), "c")
    tsdb.load(at(1, 350), "db", "CREATE TABLE `t` (`a` int, `b` int, `c` int)")
    (segment,) = tsdb.segments()
    missing = at(1, 300).order()
    image = tsdb.at_executed(segment, lambda each: each.position.order() != missing)
    found = image.find("db", "t")
    assert found is not None
    assert [column.name for column in found.columns] == ["a", "b"]
    assert image.find("db", "early") is not None


@pytest.mark.parametrize(
    ("before", "own", "later"),
    [
        (f"{UUID}:1-5", f"{UUID}:9", f"{UUID}:1-5:9"),
        (None, f"{UUID}:9", None),
        (f"{UUID}:1-5", None, None),
        ("another's words", f"{UUID}:9", None),
    ],
)
def test_a_snapshot_has_what_was_executed(
    tsdb: TableMetaTsdb,
    storage: SqliteHistoryStorage,
    before: str | None,
    own: str | None,
    later: str | None,
) -> None:
    """After a statement its GTID is in the set, if both are known."""
    tsdb.reached(at(1, 200, gtid=before))
    add(tsdb, at(1, 300, gtid=own), "b")
    assert tsdb.snapshot()
    assert newest_snapshot(tsdb, storage).gtid == later
