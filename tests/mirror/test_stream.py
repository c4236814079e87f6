"""The stream of all tables: what becomes of a batch when a table cannot go on."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from packed_changes import ID, NAME, A, rows, statement

from canal_server.client.ranged import RangePosition
from canal_server.errors import CanalError, LakeError
from canal_server.mirror.delta import DeltaLakeTable
from canal_server.mirror.follower import Columns, CopyNeededError, Follower, meta_of
from canal_server.mirror.lake import OtherCopyError, lake_schema
from canal_server.mirror.settings import TableRule
from canal_server.mirror.stream import ChangeStream
from canal_server.mirror.tables import table_by_rule
from canal_server.spark.offsets import offset_to_json, version_of
from canal_server.spark.packed import PART

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from canal_server.spark.packed import Packed

FILE = "b.000001"
COLUMNS = tuple(meta_of(*each) for each in (ID, A))


def at(position: int) -> RangePosition:
    """Return a place in the one file that there is."""
    return RangePosition(0, FILE, position)


class Frame:
    """A micro-batch, as Spark hands it over."""

    def __init__(self, end: int, *items: Packed) -> None:
        self._end = end
        self._items = items

    @property
    def rdd(self) -> Any:
        """Tell that it is of one part."""
        return SimpleNamespace(getNumPartitions=lambda: 1)

    def collect(self) -> list[Any]:
        """Return its rows, that of the part first."""
        return list(self._rows())

    def _rows(self) -> Iterator[Any]:
        end = json.dumps(offset_to_json({"d": at(self._end)}))
        start = json.dumps(offset_to_json({"d": at(100)}))
        part = {"kind": PART, "destination": "d", "start": start, "end": end}
        yield self._row(part | {"_seq": 0})
        for item in self._items:
            name, columns = item.table, item.columns
            yield self._row(
                {
                    "kind": item.kind, "destination": "d", "db": name.schema,
                    "table": name.table, "_seq": item.seq, "rows": item.count,
                    "sql": item.sql, "event_type": item.event_type,
                    "is_ddl": item.is_ddl, "arrow": item.arrow, "journal": FILE,
                    "columns": json.dumps([_told(*c) for c in columns]),
                    "_commit_timestamp": item.committed,
                }
            )  # fmt: skip

    def _row(self, values: dict[str, Any]) -> Any:
        names = (
            "kind destination db table _seq _row rows _commit_version "
            "_commit_timestamp journal position sql event_type is_ddl columns start "
            "end arrow"
        )
        row = dict.fromkeys(names.split()) | {"_row": 0} | values
        return Row(asDict=lambda: row, row=row)


def _told(name: str, mysql_type: str, charset: str, is_key: bool) -> dict[str, Any]:
    """Return a column as the source tells it."""
    return {"name": name, "mysql_type": mysql_type, "charset": charset, "key": is_key}


class Row(SimpleNamespace):
    """A row of Spark, as far as it is used."""

    def __getitem__(self, name: str) -> Any:
        return self.row[name]


class Followed:
    """A stream with one table in it, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.left: list[CanalError] = []
        self.failing: Exception | None = None  # of taking note that a table leaves
        self.table = table_by_rule(NAME, COLUMNS, RULE)
        self.lake = DeltaLakeTable(str(folder / "t"), self.table)
        self.publish("c1")
        self.stream = ChangeStream(
            "d",
            1,
            parts_max=8,
            on_statement=print,
            on_left=self._leaves,
            on_batch=print,
        )
        with self.stream.joining:
            self.stream.open("q")
            self.stream.join(
                Follower(
                    self.table,
                    Columns(COLUMNS),
                    self.lake,
                    "c1",
                    plan=lambda columns: table_by_rule(NAME, columns, RULE),
                    rule=RULE,
                    is_mariadb=False,
                )
            )

    def publish(self, copy: str) -> None:
        """Replace what is in the lake by an empty copy."""
        schema = lake_schema(self.table)
        self.lake.publish(copy, schema, [], version_of(at(100)), {})

    def _leaves(self, name: object, why: CanalError) -> None:
        assert name == NAME
        if self.failing:
            raise self.failing
        self.left.append(why)

    def ids(self) -> list[int]:
        """Return the keys in the lake."""
        return sorted(n for b in self.lake.scan(["id"]) for n in b["id"].to_pylist())


RULE = TableRule(match=".*")


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    """Give a stream that follows a table."""
    return Followed(tmp_path)


def seq(position: int) -> int:
    """Return the number of a place."""
    return version_of(at(position))


def test_left_when_that_is_noted(followed: Followed) -> None:
    """A table that cannot go on is kept until that is noted, so nothing is missed.

    Were it let go before, it would be taken up again where the stream is then.
    """
    new_key = statement(
        seq(120), "ALTER TABLE t DROP PRIMARY KEY", ((*ID[:3], False), A)
    )
    batch = Frame(200, rows(seq(110), ("insert", 1, "x")), new_key)
    followed.failing = LakeError("the disk is full")
    for _ in range(2):
        with pytest.raises(LakeError, match="the disk is full"):
            followed.stream.take(batch, 0)
        assert followed.stream.tables == [NAME]
    followed.failing = None
    followed.stream.take(batch, 0)
    assert followed.stream.tables == []
    (why,) = followed.left
    assert isinstance(why, CopyNeededError)
    assert followed.ids() == [1]


def test_another_copy_in_the_lake(followed: Followed) -> None:
    """Changes are not applied to what another mirror put there; that table ends."""
    followed.stream.take(Frame(120, rows(seq(110), ("insert", 1, "x"))), 0)
    followed.publish("c2")
    followed.stream.take(Frame(140, rows(seq(130), ("insert", 2, "y"))), 1)
    (why,) = followed.left
    assert isinstance(why, OtherCopyError)
    assert "does another mirror write it?" in str(why)
    assert followed.ids() == []
    followed.stream.take(Frame(160, rows(seq(150), ("insert", 3, "z"))), 2)
    assert followed.ids() == []
