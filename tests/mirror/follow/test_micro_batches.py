"""The stream of all tables: batches with a table that cannot continue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from packed_changes import ID, NAME, A, rows, statement
from packed_frames import Frame, at, seq

from canal_server.errors import CanalError, LakeError
from canal_server.mirror.follow.follower import Follower, meta_of
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
)
from canal_server.mirror.follow.micro_batches import BatchReport, ChangeStream, GapError
from canal_server.mirror.follow.table_faults import TableFaultError
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.selected_tables import table_by_rule
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.feed import Feed
from canal_server.mirror.state.lake_tables import (
    OtherCopyError,
    UnusableTableError,
    lake_schema,
)
from canal_server.mirror.state.table_shape import Columns
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from canal_server.spark.packed.packed_rows import Packed

ONE, TWO = (f"{n}0000000-0000-0000-0000-000000000000" for n in (1, 2))
NOBODY = TableName("", "")
COLUMNS = tuple(meta_of(*each) for each in (ID, A))


def xa(seq: int, kind: str, text: str, table: TableName = NOBODY) -> Packed:
    """Return an item of an XA transaction."""
    return statement(seq, text, (), kind, is_ddl=False, table=table)


class Followed:
    """A stream with one table, and its callbacks' arguments."""

    def __init__(self, folder: Path, name: TableName = NAME) -> None:
        self.left: list[CanalError] = []
        self.failing: Exception | None = None  # of taking note that a table leaves
        self.reports: list[BatchReport] = []
        self.on_batch: Callable[[BatchReport], object] = self.reports.append
        self.table = table_by_rule(name, COLUMNS, RULE)
        self.lake = DeltaLakeTable(str(folder / "t"), self.table)
        self.publish("c1")
        self.stream = ChangeStream(
            "d",
            1,
            parts_max=8,
            on_statement=print,
            on_leave=self._leaves,
            on_batch=self._applied,
        )
        self.follower = Follower(
            self.table,
            Columns(COLUMNS),
            self.lake,
            "c1",
            plan=lambda columns: table_by_rule(name, columns, RULE),
            rule=RULE,
            is_mariadb=False,
        )
        with self.stream.joining:
            self.stream.open("q")
            self.stream.join(self.follower)

    def publish(self, copy: str) -> None:
        """Replace what is in the lake by an empty copy."""
        schema = lake_schema(self.table)
        self.lake.publish(copy, schema, [], version_of(at(100)), {})

    def _applied(self, report: BatchReport) -> None:
        self.on_batch(report)

    def _leaves(self, name: object, why: CanalError) -> None:
        assert name == NAME
        if self.failing:
            raise self.failing
        self.left.append(why)

    def texts(self) -> list[str]:
        """Return what else is in the lake."""
        return sorted(
            text for b in self.lake.scan(["a"]) for text in b["a"].to_pylist()
        )

    def ids(self) -> list[int]:
        """Return the keys in the lake."""
        return sorted(n for b in self.lake.scan(["id"]) for n in b["id"].to_pylist())


RULE = TableRule(match=".*")


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    """Give a stream that follows a table."""
    return Followed(tmp_path)


def test_left_when_that_is_noted(followed: Followed) -> None:
    """A table that cannot continue stays until its state is stored: nothing is missed.

    If it left before, it would resume at the stream's later position.
    """
    new_key = statement(
        seq(120), "ALTER TABLE t DROP PRIMARY KEY", ((*ID[:3], False), A)
    )
    batch = Frame(200, rows(seq(110), ("insert", 1, "x")), new_key)
    followed.failing = LakeError("the disk is full")
    for _ in range(2):
        with pytest.raises(LakeError, match="the disk is full"):
            followed.stream.apply(batch, 0)
        assert followed.stream.tables == [NAME]
    followed.failing = None
    followed.stream.apply(batch, 0)
    assert followed.stream.tables == []
    (why,) = followed.left
    assert isinstance(why, CopyNeededError)
    assert followed.ids() == [1]


def test_another_copy_in_the_lake(followed: Followed) -> None:
    """Changes are not applied to what another mirror put there; that table ends."""
    followed.stream.apply(Frame(120, rows(seq(110), ("insert", 1, "x"))), 0)
    followed.publish("c2")
    followed.stream.apply(Frame(140, rows(seq(130), ("insert", 2, "y"))), 1)
    (why,) = followed.left
    assert isinstance(why, OtherCopyError)
    assert "whether another mirror writes it" in str(why)
    assert followed.ids() == []
    followed.stream.apply(Frame(160, rows(seq(150), ("insert", 3, "z"))), 2)
    assert followed.ids() == []


def unlike(*_: object) -> None:
    """Raise what no one expects of rows."""
    raise KeyError('Field "id" does not exist in schema')


def test_a_fault_that_meets_one_table(
    followed: Followed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That table leaves, with everything collected for it; the others continue.

    Its data in the lake stays unchanged.
    """
    name = TableName("shop", "other")
    other = Followed(tmp_path / "other", name)
    with followed.stream.joining:
        followed.stream.join(other.follower)
    monkeypatch.setattr(followed.follower, "_check_columns", unlike)
    first = rows(seq(110), ("insert", 1, "x"))
    followed.stream.apply(Frame(120, first, replace(first, table=name)), 0)
    (why,) = followed.left
    assert isinstance(why, TableFaultError)
    assert isinstance(why.__cause__, KeyError)
    assert "internal error: KeyError at follower.py:" in str(why)
    assert followed.stream.tables == [name]
    assert (followed.ids(), other.ids()) == ([], [1])
    assert followed.lake.applied("c1") == version_of(at(100))
    second = rows(seq(130), ("insert", 2, "y"))
    followed.stream.apply(Frame(140, second, replace(second, table=name)), 1)
    assert (followed.ids(), other.ids()) == ([], [1, 2])


@pytest.mark.parametrize("error", [LakeError("no disk"), OSError("x"), MemoryError()])
def test_what_concerns_all_tables(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The batch fails as a whole and comes again; then no change is missing."""

    def fail(*_: object) -> None:
        raise error

    batch = Frame(120, rows(seq(110), ("insert", 1, "x")))
    with monkeypatch.context() as patch:
        patch.setattr(followed.follower, "_check_columns", fail)
        with pytest.raises(type(error)):
            followed.stream.apply(batch, 0)
    assert not followed.left
    followed.stream.apply(batch, 0)
    assert followed.ids() == [1]


def test_a_damaged_table(followed: Followed, tmp_path: Path) -> None:
    """It leaves after the third failure in a row; then the others continue.

    Until then the batch is repeated: the cause may be repaired, or another writer.
    """
    name = TableName("shop", "other")
    other = Followed(tmp_path / "other", name)
    with followed.stream.joining:
        followed.stream.join(other.follower)

    def take(number: int, kind: str, text: str) -> None:
        end = 120 + 10 * number
        change = rows(seq(end - 5), (kind, 1, text))
        followed.stream.apply(Frame(end, change, replace(change, table=name)), number)

    take(0, "insert", "a")
    for number in (1, 2):
        (file,) = (tmp_path / "t").glob("*.parquet")
        hidden = file.rename(tmp_path / "hidden")
        for _ in range(2):
            with pytest.raises(UnusableTableError, match=r"apply .* not found"):
                take(number, "update_postimage", f"b{number}")
        assert not followed.left
        if number == 1:
            hidden.rename(file)
        take(number, "update_postimage", f"b{number}")
        file.unlink(missing_ok=True)  # of the version before
    (why,) = followed.left
    assert isinstance(why, UnusableTableError)
    assert followed.stream.tables == [name]
    take(3, "update_postimage", "c")
    assert other.texts() == ["c"]


def test_a_damaged_log_of_a_table(followed: Followed, tmp_path: Path) -> None:
    """Also a table that cannot be read leaves at the third time, by itself."""
    name = TableName("shop", "other")
    other = Followed(tmp_path / "other", name)
    with followed.stream.joining:
        followed.stream.join(other.follower)
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").write_text("{bad")
    batch = Frame(120, replace(rows(seq(110), ("insert", 1, "x")), table=name))
    for _ in range(2):
        with pytest.raises(UnusableTableError, match="cannot read"):
            followed.stream.apply(batch, 0)
    followed.stream.apply(batch, 0)
    assert followed.stream.tables == [name]
    assert other.ids() == [1]
    (why,) = followed.left
    assert isinstance(why, UnusableTableError)


def test_what_does_not_follow_on(followed: Followed) -> None:
    """A batch with a gap is not applied, even if Spark delivers it.

    It starts after the lake's position, under the name that Spark gives to a new
    checkpoint: then the numbers of batches mean nothing.
    """
    followed.stream.feed = Feed("d", at(100))
    followed.stream.apply(Frame(120, rows(seq(110), ("insert", 1, "x"))), 0)
    assert followed.reports[-1].feed == Feed("d", at(120), query="q", batch=0)
    followed.stream.apply(Frame(140, rows(seq(130), ("insert", 2, "y")), start=125), 1)
    with followed.stream.joining:
        followed.stream.open("new")
    late = Frame(180, rows(seq(170), ("insert", 4, "z")), start=160)
    for _ in range(2):
        with pytest.raises(GapError, match=r"at b.000001:160 .* ends at b.000001:140"):
            followed.stream.apply(late, 0)
    assert "would be missing" in followed.stream.gap
    assert followed.ids() == [1, 2]

    # From before that: what the lake has is skipped, the rest is applied.
    again = (rows(seq(130), ("insert", 2, "older")), rows(seq(150), ("insert", 3, "z")))
    followed.stream.apply(Frame(180, *again, start=90), 0)
    assert followed.ids() == [1, 2, 3]
    assert followed.reports[-1].feed == Feed("d", at(180), query="new", batch=0)


def test_another_database_instead_of_the_first(followed: Followed) -> None:
    """Its changes are not applied, though positions and epochs seem to continue.

    It looks like this if the server lost its data while the database was replaced.
    """
    followed.stream.feed = Feed("d", at(100, f"{ONE}:1-5"))
    first = Frame(120, rows(seq(110), ("insert", 1, "x")), gtids=f"{ONE}:1-6")
    followed.stream.apply(first, 0)
    other = Frame(
        140, rows(seq(130), ("insert", 2, "y")), start=120, gtids=f"{TWO}:1-9"
    )
    for _ in range(2):
        with pytest.raises(GapError, match=r"b.000001:120.*of another binlog"):
            followed.stream.apply(other, 1)
    assert "at a time that canal-server does not know" in followed.stream.gap
    assert followed.ids() == [1]


def test_what_was_prepared_and_rolled_back(followed: Followed) -> None:
    """The table is copied again when the transaction ends, whenever that is.

    The state in the lake keeps it over a restart.
    """
    followed.stream.feed = Feed("d", at(100))
    prepared = Frame(
        120,
        rows(seq(110), ("insert", 1, "x")),
        xa(seq(110), "XAROWS", "X'01'", NAME),
        xa(seq(115), "XAROWS", "X'02'", TableName("s", "other")),
    )
    followed.stream.apply(prepared, 0)
    assert followed.ids() == [1]
    feed = followed.reports[-1].feed
    assert feed is not None
    followed.stream.feed = Feed.from_json(feed.to_json())
    followed.stream.apply(
        Frame(
            140,
            xa(seq(125), "XAROLLBACK", "XA ROLLBACK X'02'"),
            rows(seq(130), ("insert", 2, "y")),
            start=120,
        ),
        1,
    )
    assert followed.ids() == [1, 2]
    assert followed.left == []
    last = Frame(160, xa(seq(150), "XAROLLBACK", "XA ROLLBACK X'01'"), start=140)
    followed.stream.apply(last, 2)
    (why,) = followed.left
    assert isinstance(why, CopyNeededError)
    assert (
        str(why)
        == "XA ROLLBACK X'01' rolled back rows that were applied when it was prepared"
    )
    assert followed.stream.feed.xa.tables == {}


EXCHANGE = "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE t"


@pytest.mark.parametrize("columns", [(ID, A), ()])
def test_rows_that_a_statement_on_another_table_moves(
    followed: Followed, columns: Any
) -> None:
    """Its position is kept, also for a table that is not followed yet, or dropped."""
    followed.stream.feed = Feed("d", at(100))
    other = replace(statement(seq(105), EXCHANGE), table=TableName("shop", "p"))
    followed.stream.apply(Frame(108, other), 0)
    feed = followed.reports[-1].feed
    assert feed is not None
    assert feed.moved == {}  # its own statement it can read
    followed.stream.leave(NAME)
    ours = statement(seq(110), EXCHANGE, columns)
    plain = statement(seq(115), "ALTER TABLE t DROP PARTITION a")
    followed.stream.apply(Frame(120, ours, plain, start=108), 1)
    followed.stream.apply(Frame(140, start=120), 2)
    feed = followed.reports[-1].feed
    assert feed is not None
    assert feed.moved == {NAME: seq(110)}
    # A table may join before a batch is noted: it has to see that one's, too.
    later = statement(seq(150), EXCHANGE, columns)
    seen: list[bool] = []
    followed.on_batch = lambda _: seen.append(
        followed.stream.is_moved_since(NAME, seq(150))
    )
    followed.stream.apply(Frame(160, later, start=140), 3)
    assert seen == [True]
    assert not followed.stream.is_moved_since(NAME, seq(151))


def test_what_was_rolled_back_before_a_copy(followed: Followed) -> None:
    """A stream that lags behind the copy reaches it, and the table continues."""
    followed.follower.copied_at = seq(100)
    followed.stream.feed = Feed("d", at(10))
    old = (
        xa(seq(20), "XAROWS", "X'01'", NAME),
        xa(seq(50), "XAROLLBACK", "XA ROLLBACK X'01'"),
    )
    batch = Frame(120, *old, rows(seq(110), ("insert", 1, "x")), start=10)
    followed.stream.apply(batch, 0)
    assert followed.left == []
    assert followed.ids() == [1]


def test_a_position_that_could_not_be_noted(followed: Followed) -> None:
    """The batch comes again, and still follows on from the one before."""
    followed.stream.feed = Feed("d", at(100))
    batch = Frame(120, rows(seq(110), ("insert", 1, "x")))

    def full(_report: BatchReport) -> None:
        raise LakeError("the disk is full")

    noting, followed.on_batch = followed.on_batch, full
    with pytest.raises(LakeError):
        followed.stream.apply(batch, 0)
    assert followed.stream.feed == Feed("d", at(100))
    followed.on_batch = noting
    followed.stream.apply(batch, 0)
    assert followed.stream.feed == Feed("d", at(120), query="q", batch=0)
    assert followed.ids() == [1]
