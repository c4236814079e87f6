"""A partition and another table exchange rows: in the lake, without a copy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from fix_lake import opened, table_rows, versions
from packed_changes import A, rows, statement
from packed_frames import Frame, at, seq

from canal_server.errors import CanalError, LakeError
from canal_server.mirror.follow.exchanges import exchange_of
from canal_server.mirror.follow.follower import Follower, meta_of
from canal_server.mirror.follow.leaving import CopyNeededError, TableDroppedError
from canal_server.mirror.follow.micro_batches import ChangeStream
from canal_server.mirror.lake.exchange.given_rows import ExchangeTable
from canal_server.mirror.lake.lake_table import lake_schema
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.selected_tables import table_by_rule
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.feed import Feed
from canal_server.mirror.state.table_shape import Columns, Partition, Partitions
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from canal_server.spark.packed.packed_rows import Packed

P, T = TableName("shop", "p"), TableName("shop", "t")
PARTS = Partitions("RANGE", "id", (Partition("a", "10"), Partition("b", "20")))
EXCHANGE = "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE t"
CONVERT = "ALTER TABLE p CONVERT TABLE t TO PARTITION c VALUES LESS THAN (30)"
ID = ("id", "int", "", True)
PLAIN = ("id", "int", "", False)


class Both:
    """A stream with two tables, which can be started again as after a kill."""

    def __init__(
        self, folder: Path, *, id_column: Any = ID, form: str = "delta"
    ) -> None:
        self.folder = folder
        self.form = form
        self.columns = (id_column, A)
        self.left: list[tuple[TableName, CanalError]] = []
        self.partitions: Partitions | None = PARTS
        self.rules = {name: TableRule(match=".*", form=form) for name in (P, T)}
        self.copied_at = 0
        self.feed = Feed("d", at(100))

    def start(self) -> ChangeStream:
        """Return a stream that follows both tables from their positions on."""
        stream = ChangeStream(
            "d",
            1,
            parts_max=8,
            on_statement=print,
            on_leave=lambda name, why: self.left.append((name, why)),
            on_batch=lambda _: None,
        )
        stream.feed = self.feed
        with stream.joining:
            stream.open("q")
            for name in (P, T):
                stream.join(self.follower(name))
        return stream

    def follower(self, name: TableName) -> Follower:
        """Return a follower of a table, whose empty copy is made if it is missing."""
        known = tuple(meta_of(*each) for each in self.columns)
        plan = partial(table_by_rule, name, rule=self.rules[name])
        table = plan(known)
        lake = opened(self.folder / name.table, table)
        if not lake.exists():
            lake.publish("c1", lake_schema(table), [], version_of(at(100)), {})
        return Follower(
            table,
            Columns(known, (), self.partitions if name == P else Partitions()),
            lake,
            "c1",
            plan=plan,
            rule=self.rules[name],
            is_mariadb=False,
            copied_at=self.copied_at,
        )

    def inserts(self, name: TableName, position: int, *ids: int) -> Packed:
        """Return rows that are inserted."""
        values = [("insert", each, f"{name.table} {each}") for each in ids]
        found = rows(seq(position), *values, columns=self.columns)
        return replace(found, table=name)

    def statements(self, position: int, sql: str = EXCHANGE) -> list[Packed]:
        """Return a statement as it is delivered for each of the tables."""
        lost = sql.startswith("ALTER TABLE p CONVERT")
        columns = {P: self.columns, T: () if lost else self.columns}
        return [
            statement(seq(position), sql, columns[name], table=name) for name in (P, T)
        ]

    def batch(self, sql: str = EXCHANGE) -> Frame:
        """Return a batch with rows before and after a statement."""
        return Frame(
            200,
            self.inserts(P, 110, 3, 12),
            self.inserts(T, 115, 5, 6),
            *self.statements(120, sql),
            self.inserts(P, 130, 7),
        )

    def ids(self, name: TableName) -> dict[int, Any]:
        """Return the rows of a table of the lake."""
        found = table_rows(self.folder / name.table, self.form)
        values = {each["id"]: each.get("a") for each in found}
        assert len(values) == len(found)
        return values

    def is_exchanged(self) -> bool:
        """Check whether both tables have what the source has after the batch."""
        there = {5: "t 5", 6: "t 6", 7: "p 7", 12: "p 12"}
        return self.ids(P) == there and self.ids(T) == {3: "p 3"}


@pytest.fixture
def both(tmp_path: Path, form: str) -> Both:
    """Give two tables with a key."""
    return Both(tmp_path, form=form)


@pytest.mark.parametrize("id_column", [ID, PLAIN], ids=["key", "keyless"])
def test_rows_of_both_tables(tmp_path: Path, id_column: Any, form: str) -> None:
    """Each gets the other's rows, in one commit, and later changes find them."""
    both = Both(tmp_path, id_column=id_column, form=form)
    stream = both.start()
    stream.apply(both.batch(), 0)
    assert both.left == []
    assert both.is_exchanged()
    assert versions(tmp_path / "t", form) == 3  # made, inserted, exchanged
    deleted = ("delete", 5, "t 5"), ("delete", 12, "p 12")
    changes = replace(rows(seq(210), *deleted, columns=both.columns), table=P)
    stream.apply(Frame(300, changes, *both.statements(220), start=200), 1)
    assert both.ids(P) == {3: "p 3"}
    assert both.ids(T) == {6: "t 6", 7: "p 7"}
    lake = both.follower(T).lake
    assert isinstance(lake, ExchangeTable)
    assert lake.exchanged("c1") == seq(220) + 1
    follower = stream.follower(P)
    assert follower is not None
    assert follower.columns.partitions == PARTS  # as far as that is known


def test_change_feed(tmp_path: Path) -> None:
    """Readers of changes get the rows that a table has lost and got."""
    both = Both(tmp_path)
    both.start().apply(both.batch(), 0)
    table = DeltaTable(str(both.folder / "p"))
    feed = pa.table(table.load_cdf(starting_version=2, ending_version=2))
    found = zip(feed["_change_type"].to_pylist(), feed["id"].to_pylist(), strict=True)
    assert sorted(found) == [("delete", 3), ("insert", 5), ("insert", 6)]


def _killed(*_: Any, **__: Any) -> int:
    """Stand for what a killed mirror did not get to."""
    raise LakeError("killed")


@pytest.mark.parametrize("killed", [P, T])
@pytest.mark.parametrize("compacted", [False, True])
def test_killed_between_the_commits(
    both: Both, monkeypatch: pytest.MonkeyPatch, killed: Any, compacted: bool
) -> None:
    """The second table gets the rows from a version before, which stays readable."""
    stream = both.start()
    follower = stream.follower(killed)
    assert follower is not None
    monkeypatch.setattr(follower.lake, "exchange", _killed)
    with pytest.raises(LakeError, match="killed"):
        stream.apply(both.batch(), 0)
    if compacted:
        for name in (P, T):
            both.follower(name).lake.compact()
    both.start().apply(both.batch(), 0)
    assert both.left == []
    assert both.is_exchanged()
    both.start().apply(both.batch(), 0)  # and once more, as a whole
    assert both.left == []
    assert both.is_exchanged()


def test_a_table_that_becomes_a_partition(both: Both) -> None:
    """Its rows are added, and it is dropped; the new partition's bound is not known."""
    rows_of_t = both.inserts(T, 115, 25, 26)
    batch = Frame(
        200, both.inserts(P, 110, 3, 12), rows_of_t, *both.statements(120, CONVERT)
    )
    stream = both.start()
    stream.apply(batch, 0)
    ((name, why),) = both.left
    assert (name, type(why)) == (T, TableDroppedError)
    assert both.ids(P) == {3: "p 3", 12: "p 12", 25: "t 25", 26: "t 26"}
    follower = stream.follower(P)
    assert follower is not None
    partitions = follower.columns.partitions
    assert partitions is not None
    assert partitions.parts == (*PARTS.parts, Partition("c"))


def _no_partitions(both: Both) -> None:
    both.partitions = None


def _hashed(both: Both) -> None:
    both.partitions = Partitions("HASH", "id", PARTS.parts)


def _masked(both: Both) -> None:
    both.rules[P] = replace(both.rules[P], without=("a",))


def _soft(both: Both) -> None:
    both.rules[T] = replace(both.rules[T], deletes="soft")


@pytest.mark.parametrize(
    ("change", "sql", "why"),
    [
        (_no_partitions, EXCHANGE, "are not known yet"),
        (_hashed, EXCHANGE, "no ranges or lists"),
        (_masked, EXCHANGE, "have other columns, types or masks in the lake"),
        (_soft, EXCHANGE, "table shop.t keeps deleted rows"),
        (None, EXCHANGE.replace("PARTITION a", "PARTITION b"), "do not belong"),
        (None, f"{CONVERT} WITHOUT VALIDATION", "were not checked"),
    ],
)
def test_what_is_not_certain(
    both: Both, change: Callable[[Both], None] | None, sql: str, why: str
) -> None:
    """Both tables leave, for a copy, and the reason is said."""
    if change is not None:
        change(both)
    both.start().apply(both.batch(sql), 0)
    found = dict(both.left)
    assert isinstance(found[P], CopyNeededError)
    assert why in str(found[P])
    assert isinstance(found[T], CopyNeededError | TableDroppedError)
    assert why in str(found[T])
    assert set(both.ids(P)) == {3, 12}


def test_only_one_table_follows(both: Both) -> None:
    """The other one's rows are not in the lake as of then."""
    stream = both.start()
    with stream.joining:
        stream.leave(T)
    stream.apply(both.batch(), 0)
    ((name, why),) = both.left
    assert name == P
    assert "(only one of the tables follows the stream)" in str(why)


def test_an_exchange_while_the_other_table_caught_up(both: Both) -> None:
    """That one missed the statement, so neither has the rows: both are copied."""
    follower = both.follower(T)
    follower.lake.apply("c1", _nothing(follower), seq(150), {})
    both.start().apply(both.batch(), 0)
    assert sorted(name for name, _ in both.left) == [P, T]
    assert all("was copied meanwhile" in str(why) for _, why in both.left[:1])


def _nothing(follower: Follower) -> pa.Table:
    """Return no changes of a table."""
    found = replace(rows(seq(140), columns=(ID, A)), table=T).data
    assert found is not None
    return follower.as_in_lake(found)


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE t, ADD COLUMN b INT",
        "ALTER TABLE p CONVERT PARTITION a TO TABLE t",
        "ALTER TABLE p TRUNCATE PARTITION a",
        "RENAME TABLE p TO t",
        "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE u",
    ],
)
def test_no_exchange(sql: str) -> None:
    """Statements that do something else, or more, are none."""
    one, two = (statement(seq(120), sql, table=name) for name in (P, T))
    assert exchange_of(one, two) is None


def test_items_of_an_exchange() -> None:
    """They are recognized in any order, and only those of one statement."""
    one, two = (statement(seq(120), EXCHANGE, table=name) for name in (P, T))
    for found in (exchange_of(one, two), exchange_of(two, one)):
        assert found is not None
        assert found.items == (one, two)
    assert exchange_of(None, one) is None
    assert exchange_of(one, replace(two, seq=seq(121))) is None
