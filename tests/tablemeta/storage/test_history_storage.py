"""The contract of storages of the table history, held by each of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest
from fix_tablemeta_storage import T0_MS, UUID, at, ddl, schemas, segment
from history_writer import BY_STATEMENT, KINDS, content, on_statement, write
from support_paths import PYTHONPATH, ROOT, program

from canal_server.errors import TableMetaStoreError
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import (
    BinlogSegment,
    DdlRecord,
    HistoryStorage,
    SourceTraits,
    StoredSchema,
)
from canal_server.tablemeta.storage.sqlite_storage import SqliteHistoryStorage

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fix_tablemeta_storage import HistoryLocation

T = TypeVar("T")

BASE = schemas("t", "u")


def started(history: HistoryStorage, file: int = 1, offset: int = 4) -> BinlogSegment:
    """Start a segment with two tables."""
    return history.begin(segment(at(file, offset)), BASE)


def positions_of(history: HistoryStorage, segment_id: int) -> list[tuple[int, int]]:
    """Return the positions of the statements of a segment."""
    return [record.position.order() for record in history.records(segment_id)]


class BrokenError(Exception):
    """What a caller's own data may raise while it is written."""


def broken(*items: T) -> Iterator[T]:
    """Yield some items and then fail."""
    yield from items
    raise BrokenError


def test_nothing_at_first(history: HistoryStorage) -> None:
    """A new storage has no segments."""
    assert history.segments() == []
    assert history.snapshot(1) is None
    assert list(history.records(1)) == []


def test_open_twice(history: HistoryStorage) -> None:
    """An open storage may be opened again, a closed one closed again."""
    started(history)
    history.open()
    assert len(history.segments()) == 1
    history.close()
    history.close()
    history.open()
    assert len(history.segments()) == 1


def test_begin(history: HistoryStorage) -> None:
    """A segment is read as it was created, with an id and its base."""
    given = BinlogSegment(
        -5,
        UUID,
        SourceTraits(True, 101119, 2, "latin1_swedish_ci"),
        at(1, 4, gtid="0-1-7"),
        EntryPosition("mysql-bin.000001", 900, 12, 17, "0-1-9", True),
        created_ms=T0_MS,
    )
    started = history.begin(given, BASE)
    assert started == replace(given, id=started.id)
    assert started.id > 0
    assert history.segments() == [started]
    found = history.snapshot(started.id)
    assert found is not None
    assert found.position == started.first
    assert found.schemas == BASE


def test_everything_of_a_schema(history: HistoryStorage) -> None:
    """Collation, order of tables, views, uncertain names and any text come back."""
    text = "CREATE TABLE `ä\\'\"; \n` (\n  `名` enum('\0','😀%s;\n') COMMENT ':1 ?'\n)"
    base = (
        StoredSchema("z"),
        StoredSchema("Db", "utf8mb4_0900_ai_ci", (("T", text), ("t", text))),
        StoredSchema(
            "名`",
            tables=(("b", "b"), ("a", "")),
            views=("v", "名"),
            uncertain=("b", "a"),
        ),
    )
    started = history.begin(segment(at(1, 4)), iter(base))
    found = history.snapshot(started.id)
    assert found is not None
    assert found.schemas == base


def test_everything_of_a_statement(history: HistoryStorage) -> None:
    """All that is known of a statement comes back, and what is not known stays so."""
    of = started(history)
    full = DdlRecord(
        at(1, 100, gtid=f"{UUID}:7"),
        "schéma 名",
        "CREATE TABLE `a'b` (c INT COMMENT '😀 %s \0 \\')\n;",
        Context(schema="d", mariadb=True, server_version=101119, error=1050),
        contained=True,
        event_type="CREATE",
        sql_schema="schéma 名",
        sql_table="a'b",
    )
    bare = DdlRecord(at(1, 200, server_id=None), "", "FLUSH TABLES")
    assert history.append(of.id, full)
    assert history.append(of.id, bare)
    assert list(history.records(of.id)) == [full, bare]


def test_outlives(history_location: HistoryLocation) -> None:
    """Written data is kept when the storage is opened again."""
    history = history_location.open()
    of = started(history)
    history.append(of.id, ddl(at(1, 100)), last=at(1, 150))
    history.write_snapshot(of.id, at(1, 150), schemas("t", "w"))
    history.close()
    again = history_location.open()
    assert again.segments() == [replace(of, last=at(1, 150))]
    assert list(again.records(of.id)) == [ddl(at(1, 100))]
    found = again.snapshot(of.id)
    assert found is not None
    assert found.schemas == schemas("t", "w")


def test_order(history: HistoryStorage, rng: random.Random) -> None:
    """Statements come in the order of the binlog: files by number, not by name."""
    of = started(history)
    files = [999_998, 999_999, 1_000_000, 1_000_001]
    given = [ddl(at(file, offset)) for file in files for offset in (4, 90, 1_000)]
    shuffled = rng.sample(given, len(given))
    history.append_all(of.id, shuffled)
    assert list(history.records(of.id)) == given


def test_many_statements(history: HistoryStorage) -> None:
    """Statements beyond one page of the storage all come, each once."""
    of = started(history)
    given = [ddl(at(1 + n // 400, 4 + n)) for n in range(1_700)]
    history.append_all(of.id, given)
    assert list(history.records(of.id)) == given
    half = list(history.records(of.id, start=given[600].position))
    assert half == given[600:]


def test_bounds(history: HistoryStorage) -> None:
    """The start of a range belongs to it, its stop does not, over files as well."""
    of = started(history)
    history.append_all(of.id, [ddl(at(f, o)) for f in (1, 2, 3) for o in (10, 20)])

    def found(start: EntryPosition | None, stop: EntryPosition | None) -> list[object]:
        return [
            record.position.order()
            for record in history.records(of.id, start=start, stop=stop)
        ]

    assert found(at(1, 20), at(3, 10)) == [(1, 20), (2, 10), (2, 20)]
    assert found(at(1, 21), None) == [(2, 10), (2, 20), (3, 10), (3, 20)]
    assert found(None, at(2, 11)) == [(1, 10), (1, 20), (2, 10)]
    assert found(at(2, 10), at(2, 10)) == []
    assert found(at(3, 20), at(9, 9)) == [(3, 20)]


def test_reading_while_writing(history: HistoryStorage) -> None:
    """A reader of statements may write meanwhile, and sees the later ones."""
    of = started(history)
    history.append_all(of.id, [ddl(at(1, 10 * n)) for n in range(1, 1_001)])
    seen = 0
    for record in history.records(of.id):
        if record.position.position == 10:
            history.append(of.id, ddl(at(2, 4)))
        seen += 1
    assert seen == 1_001


def test_append_twice(history: HistoryStorage) -> None:
    """A statement at a known position is omitted and reported as such."""
    of = started(history)
    assert history.append(of.id, ddl(at(1, 100)))
    assert not history.append(of.id, ddl(at(1, 100)), last=at(1, 300))
    assert list(history.records(of.id)) == [ddl(at(1, 100))]
    assert history.segments()[0].last == at(1, 300)
    history.append_all(of.id, [ddl(at(1, 100)), ddl(at(1, 200))])
    assert positions_of(history, of.id) == [(1, 100), (1, 200)]


def test_same_position_elsewhere(history: HistoryStorage) -> None:
    """Several segments may contain the same position, as of two servers."""
    one = started(history)
    other = history.begin(segment(at(1, 4), source="other"), schemas("x"))
    assert one.id != other.id
    history.append(one.id, ddl(at(1, 100, server_id=1)))
    assert history.append(other.id, ddl(at(1, 100, server_id=2), "DROP TABLE x"))
    assert list(history.records(one.id)) == [ddl(at(1, 100, server_id=1))]
    found = history.snapshot(other.id)
    assert found is not None
    assert found.schemas == schemas("x")


def test_identify(history: HistoryStorage) -> None:
    """A segment gets another source and traits, and nothing else changes."""
    old, new = started(history), started(history, 2)
    history.append(old.id, ddl(at(1, 100)), last=at(1, 150))
    history.append(new.id, ddl(at(2, 100)))
    traits = SourceTraits(True, 101119, 1, "utf8mb4_uca1400_ai_ci")
    history.identify(old.id, "another", traits)
    named = replace(old, last=at(1, 150), source="another", traits=traits)
    assert history.segments() == [named, new]
    assert list(history.records(old.id)) == [ddl(at(1, 100))]
    base = history.snapshot(old.id)
    assert base is not None
    assert base.schemas == BASE


def test_extend_last(history: HistoryStorage) -> None:
    """The end of a segment only moves forward."""
    of = started(history)
    history.extend(of.id, last=at(2, 500))
    history.extend(of.id, last=at(1, 700))
    assert history.segments() == [replace(of, last=at(2, 500))]


def test_extend_first(history: HistoryStorage) -> None:
    """A segment that starts earlier has its base there, and never starts later."""
    of = started(history, 3, 500)
    history.write_snapshot(of.id, at(3, 900), schemas("later"))
    history.append_all(
        of.id, [ddl(at(2, 100), contained=True)], first=at(2, 4), last=at(4, 4)
    )
    history.extend(of.id, first=at(3, 1))
    assert history.segments() == [replace(of, first=at(2, 4), last=at(4, 4))]
    base = history.snapshot(of.id, at(3, 899))
    assert base is not None
    assert base.position == at(2, 4)
    assert base.schemas == BASE
    assert history.snapshot(of.id, at(2, 3)) is None
    (record,) = history.records(of.id)
    assert record.contained


def test_written_last(history: HistoryStorage) -> None:
    """Any write to a segment makes it the last one."""
    one, two, three = (started(history, file) for file in (1, 2, 3))

    def order() -> list[int]:
        return [each.id for each in history.segments()]

    assert order() == [one.id, two.id, three.id]
    history.append(one.id, ddl(at(1, 100)))
    assert order() == [two.id, three.id, one.id]
    history.extend(two.id, last=at(2, 100))
    assert order() == [three.id, one.id, two.id]
    history.write_snapshot(three.id, at(3, 100), BASE)
    assert order() == [one.id, two.id, three.id]
    history.append_all(one.id, [])
    assert order() == [two.id, three.id, one.id]


def test_snapshot_at(history: HistoryStorage) -> None:
    """The newest snapshot at or before a position is found, across files."""
    of = started(history)
    history.write_snapshot(of.id, at(2, 50), schemas("two"))
    history.write_snapshot(of.id, at(1, 90), schemas("one"))

    def found(position: EntryPosition | None) -> object:
        snapshot = history.snapshot(of.id, position)
        return snapshot and [name for name, _ in snapshot.schemas[0].tables]

    assert found(None) == ["two"]
    assert found(at(2, 50)) == ["two"]
    assert found(at(2, 49)) == ["one"]
    assert found(at(1, 90)) == ["one"]
    assert found(at(1, 89)) == ["t", "u"]
    assert found(at(1, 3)) is None


def test_snapshot_replaced(history: HistoryStorage) -> None:
    """A new snapshot replaces an existing one at its position."""
    of = started(history)
    history.write_snapshot(of.id, at(1, 90), schemas("old"))
    history.write_snapshot(of.id, at(1, 90, timestamp=7), schemas("new"))
    found = history.snapshot(of.id)
    assert found is not None
    assert found.position == at(1, 90, timestamp=7)
    assert found.schemas == schemas("new")
    assert history.segments() == [of]


def test_empty_base(history: HistoryStorage) -> None:
    """A server without tables has a base without schemas."""
    of = history.begin(segment(at(1, 4)), ())
    found = history.snapshot(of.id)
    assert found is not None
    assert found.schemas == ()


def failing_begin(history: HistoryStorage, _of: int) -> None:
    """Start a segment whose base cannot be read completely."""
    history.begin(segment(at(5, 4)), broken(*BASE))


def failing_append(history: HistoryStorage, of: int) -> None:
    """Add statements that cannot be read to their end."""
    records = broken(ddl(at(1, 60)), ddl(at(1, 70)))
    history.append_all(of, records, first=at(1, 1), last=at(1, 80))


def failing_snapshot(history: HistoryStorage, of: int) -> None:
    """Write a snapshot that cannot be read to its end."""
    history.write_snapshot(of, at(1, 90), broken(*schemas("x")))


@pytest.mark.parametrize("write", [failing_begin, failing_append, failing_snapshot])
def test_all_or_nothing(
    history: HistoryStorage, write: Callable[[HistoryStorage, int], None]
) -> None:
    """A failed write leaves no trace, and the storage remains usable."""
    of = started(history)
    history.append(of.id, ddl(at(1, 50)))
    with pytest.raises(BrokenError):
        write(history, of.id)
    assert history.segments() == [of]
    assert positions_of(history, of.id) == [(1, 50)]
    found = history.snapshot(of.id)
    assert found is not None
    assert (found.position, found.schemas) == (of.first, BASE)
    assert history.append(of.id, ddl(at(1, 60)))


def test_no_such_segment(history: HistoryStorage) -> None:
    """Writing to a missing segment is refused, and writes nothing."""
    of = started(history)
    for refused in (
        lambda: history.append(of.id + 1, ddl(at(1, 50))),
        lambda: history.append_all(of.id + 1, [ddl(at(1, 50))]),
        lambda: history.extend(of.id + 1, last=at(1, 50)),
        lambda: history.write_snapshot(of.id + 1, at(1, 50), BASE),
        lambda: history.identify(of.id + 1, "x", SourceTraits()),
    ):
        with pytest.raises(TableMetaStoreError, match=f"no segment {of.id + 1}"):
            refused()
    assert list(history.records(of.id + 1)) == []
    assert history.snapshot(of.id + 1) is None


def test_expire(history: HistoryStorage) -> None:
    """The newest old snapshot becomes the base; what lies before it goes."""
    of = started(history)
    history.append_all(of.id, [ddl(at(1, o)) for o in (10, 20, 30, 40)], last=at(1, 50))
    for offset in (15, 25, 35):
        history.write_snapshot(of.id, at(1, offset), schemas(f"t{offset}"))
    forgotten = history.expire(at(1, 30).timestamp or 0)
    assert forgotten == 4  # the base, the snapshot of 15, statements of 10 and 20
    assert history.segments() == [replace(of, first=at(1, 25), last=at(1, 50))]
    assert positions_of(history, of.id) == [(1, 30), (1, 40)]
    assert history.snapshot(of.id, at(1, 24)) is None
    for position, name in ((at(1, 34), "t25"), (None, "t35")):
        found = history.snapshot(of.id, position)
        assert found is not None
        assert found.schemas == schemas(name)
    assert history.expire(at(1, 30).timestamp or 0) == 0


def test_expire_keeps_the_base(history: HistoryStorage) -> None:
    """Without a newer snapshot that is old enough, nothing of a segment expires."""
    of = started(history)
    history.append(of.id, ddl(at(1, 10)), last=at(1, 50))
    history.write_snapshot(of.id, at(1, 40), schemas("new"))
    assert history.expire(at(1, 40).timestamp or 0) == 0
    assert history.segments() == [replace(of, last=at(1, 50))]
    assert positions_of(history, of.id) == [(1, 10)]


def test_expire_without_times(history: HistoryStorage) -> None:
    """What has no time never expires."""
    for _ in range(2):
        of = history.begin(segment(at(1, 4, timestamp=None)), BASE)
        history.append(of.id, ddl(at(1, 10, timestamp=None)))
        history.write_snapshot(of.id, at(1, 40, timestamp=0), schemas("new"))
    assert history.expire(T0_MS * 2) == 0
    assert len(history.segments()) == 2


def test_expire_segments(history: HistoryStorage) -> None:
    """Segments that ended before the time are deleted, but never the last one."""
    old, new, last = (started(history, file) for file in (1, 9, 2))
    history.append(old.id, ddl(at(1, 10)), last=at(1, 50))
    history.extend(new.id, last=at(9, 50))
    history.extend(last.id, last=at(2, 50))
    # The old one: itself, its base and a statement.
    assert history.expire(at(5, 0).timestamp or 0) == 3
    assert [each.id for each in history.segments()] == [new.id, last.id]
    assert list(history.records(old.id)) == []
    assert history.snapshot(old.id) is None
    assert history.expire(T0_MS * 2) == 2
    assert [each.id for each in history.segments()] == [last.id]
    found = history.snapshot(last.id)
    assert found is not None
    assert found.schemas == BASE


def test_ids_are_not_reused(history: HistoryStorage) -> None:
    """A new segment never reuses the id of an expired one."""
    old = started(history)
    last = started(history, 2)
    history.extend(old.id, last=at(1, 50))
    history.extend(last.id, last=at(2, 50))
    history.expire(T0_MS * 2)
    assert started(history, 3).id not in (old.id, last.id)


def test_tables_after_expiry(history: HistoryStorage, rng: random.Random) -> None:
    """Snapshots that share tables with expired ones keep them all."""
    of = started(history)
    names = [f"t{n}" for n in range(20)]
    written = {}
    for offset in range(100, 1_100, 100):
        written[offset] = tuple(
            schema
            for name in rng.sample(("a", "b", "c"), rng.randint(1, 3))
            for schema in schemas(*rng.sample(names, rng.randint(0, 20)), name=name)
        )
        history.write_snapshot(of.id, at(1, offset), written[offset])
    for before in (350, 360, 760):
        history.expire(at(1, before).timestamp or 0)
        for offset, given in written.items():
            found = history.snapshot(of.id, at(1, offset))
            if offset >= before // 100 * 100:
                assert found is not None
                assert found.schemas == given
            else:
                assert found is None


def test_destinations(history_location: HistoryLocation) -> None:
    """Destinations are independent of each other, whatever their positions."""
    one, other = history_location.open("one"), history_location.open("other")
    mine = started(one)
    yours = other.begin(segment(at(1, 4)), schemas("y"))
    one.append(mine.id, ddl(at(1, 10)), last=at(1, 50))
    assert other.append(yours.id, ddl(at(1, 10), "DROP TABLE y"))
    assert list(one.records(mine.id)) == [ddl(at(1, 10))]
    assert list(other.records(yours.id)) == [ddl(at(1, 10), "DROP TABLE y")]
    started(one, 2)
    one.expire(T0_MS * 2)
    assert other.segments() == [yours]
    found = other.snapshot(yours.id)
    assert found is not None
    assert found.schemas == schemas("y")


def test_two_writers(history_location: HistoryLocation) -> None:
    """A second writer is refused while the first one is open; readers are not."""
    first = history_location.open()
    of = started(first)
    second = history_location.storage()
    with pytest.raises(TableMetaStoreError, match="in use by another server"):
        second.open()
    assert history_location.open(read_only=True).segments() == [of]
    assert history_location.open("other").segments() == []
    assert first.append(of.id, ddl(at(1, 50)))
    first.close()
    second.open()
    assert second.append(of.id, ddl(at(1, 60)))
    assert positions_of(second, of.id) == [(1, 50), (1, 60)]


def dies_in(target: str, number: int, statement: int) -> bool:
    """Let a process die in a write before a statement; false when it has fewer."""
    found = subprocess.run(
        [
            *(sys.executable, program("history_writer.py")),
            *(target, str(number), BY_STATEMENT, str(statement)),
        ],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{PYTHONPATH}"},
        stdout=subprocess.PIPE,
        check=False,
    )
    assert found.returncode in (0, -signal.SIGKILL)
    return found.returncode != 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_in_a_write(
    history_location: HistoryLocation, tmp_path: Path, kind: str, rng: random.Random
) -> None:
    """A process killed before any statement of a write leaves all of it or nothing.

    It is killed at several, each time another selection of them.
    """
    number = KINDS[kind] + 12
    history = history_location.open()
    with closing(SqliteHistoryStorage(tmp_path / "model.sqlite")) as model:
        model.open()
        for each in range(number):
            write(model, each)
            write(history, each)
        before = content(model)
        statements = 0

        def count() -> None:
            nonlocal statements
            statements += 1

        on_statement(model, count)
        write(model, number)
        after = content(model)
    assert content(history) == before
    history.close()
    deaths = statement = 0
    found = before
    while found == before:
        died = dies_in(history_location.target, number, statement)
        deaths += died
        with closing(history_location.storage()) as again:
            again.open()
            found = content(again)
        assert found in (before, after)
        assert died or found == after
        statement += rng.randint(1, 4 + statements // 4)
    print(f"{deaths} deaths in one write to {kind}")
    assert deaths
