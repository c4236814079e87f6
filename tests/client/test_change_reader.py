"""Changes equal the entries that they are read from."""

from __future__ import annotations

import copy
import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from change_messages import Maker
from client_entries import row
from golden_form import DATA, decode_fields, entries_of, load_workload

from canal_server.client.change_reader import ChangeReader
from canal_server.client.frame_reader import entries_of as raw_entries_of
from canal_server.client.value_reader import ValueOptions
from canal_server.core.row_count import count_rows
from canal_server.protocol.entry_messages import (
    EntryType,
    EventType,
    decode_entry,
    encode,
)
from canal_server.protocol.protobuf import varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.client.change_reader import Change
    from canal_server.protocol.entry_messages import Entry

WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
ROWS = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)
TEXTS = ValueOptions(as_texts=True)
TYPED = ValueOptions()


def changes_of(data: bytes, options: ValueOptions = TEXTS) -> list[Change]:
    """Return all changes of a body."""
    return list(ChangeReader(options).read(data))


def expected(entries: list[Entry]) -> Iterator[dict[str, object]]:
    """Yield what each change has to have, by the entries' own decoder."""
    for entry in entries:
        if entry.entry_type != EntryType.ROWDATA:
            continue
        header, change = entry.header, entry.row_change()
        kind = change.event_type or header.event_type
        base = {
            "schema": header.schema_name,
            "table": header.table_name,
            "position": (header.logfile_name, header.logfile_offset),
            "commit_time_ms": header.execute_time,
            "server_id": header.server_id,
        }
        if kind in ROWS and not change.sql:
            for row in change.row_datas:
                yield base | {
                    "sql": None,
                    "before": row.before if kind != EventType.INSERT else None,
                    "after": row.after if kind != EventType.DELETE else None,
                    "updated": tuple(
                        each.name for each in row.after_columns if each.updated
                    ),
                }
        elif kind != EventType.QUERY or change.is_ddl:
            yield base | {
                "sql": change.sql,
                "before": None,
                "after": None,
                "updated": (),
            }


@pytest.fixture(scope="module", params=WORKLOADS)
def recorded(request, tmp_path_factory) -> bytes:
    """Give the body of a recorded workload."""
    workload = load_workload(request.param)
    return decode_fields(workload, tmp_path_factory.mktemp("binlog"))


def test_texts_are_the_entries(recorded: bytes) -> None:
    """With texts, each change has what its entry has, and none is left out."""
    entries = list(entries_of(recorded))
    requested = list(expected(entries))
    found = changes_of(recorded)
    for change, each in zip(found, requested, strict=True):
        assert {name: getattr(change, name) for name in each} == each
    rows = [each for each in requested if each["sql"] is None]
    assert count_rows(recorded) >= len(rows)
    assert len(raw_entries_of(recorded)) == len(entries)


def test_typed_values_have_the_same_columns(recorded: bytes) -> None:
    """Typed values are of the same columns, NULL where the text is, and never fail."""
    for typed, text in zip(
        changes_of(recorded, TYPED), changes_of(recorded), strict=True
    ):
        for side in ("before", "after"):
            values, texts = getattr(typed, side), getattr(text, side)
            assert (values is None) == (texts is None)
            if values is not None:
                assert values.keys() == texts.keys()
                assert [v is None for v in values.values()] == [
                    v is None for v in texts.values()
                ]


def test_each_transaction_ends_once(recorded: bytes) -> None:
    """Numbers grow by one; the last change of a transaction says so, no other does."""
    found = changes_of(recorded)
    for change, following in itertools.pairwise(found):
        is_last = change.transaction != following.transaction
        assert change.is_last == is_last
        assert following.transaction >= change.transaction
    assert not found or found[-1].is_last


def test_changes_outlive_their_batch(recorded: bytes) -> None:
    """A change that is kept keeps its values when its batch no longer exists."""
    kept = list(ChangeReader(TEXTS).read(bytearray(recorded)))
    fresh = changes_of(recorded)
    assert [each.after for each in reversed(kept)] == [
        each.after for each in reversed(fresh)
    ]


def test_threads_share_a_table(recorded: bytes) -> None:
    """Threads may look at changes of one table that none of them has met before."""
    fresh = changes_of(recorded, TYPED)
    kept = list(ChangeReader(TYPED).read(recorded))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda change: change.after, kept))
    assert found == [each.after for each in fresh]


def row_body(number: int) -> bytes:
    """Return the entry of an inserted row as part of a body."""
    entry = row(number)
    return b"\x12" + varint(len(entry)) + entry


def test_key_without_the_other_values() -> None:
    """A key has the values of its columns only, of whatever the row is found by."""
    body = row_body(1) + row_body(300)
    first, second = changes_of(body, TYPED)
    assert (first.key, second.key) == ({"id": 1}, {"id": 300})
    assert first.key == first.after


@pytest.mark.parametrize("copies", [copy.deepcopy, pickle.dumps])
def test_not_copied(copies: Callable[[object], object]) -> None:
    """What refers to its message says so when it is to be copied."""
    (change,) = changes_of(row_body(1))
    with pytest.raises(TypeError, match="copy what is needed of it"):
        copies(change)


def test_types_after_an_alter() -> None:
    """Types are those of the row, whatever the table had before or has later."""
    maker = Maker()
    before = Maker(types={"a": "int"}), {"id": 1, "a": 1, "b": "x"}
    between = Maker(types={"a": "varchar(10)"}), {"id": 2, "a": "2"}
    messages = [
        made.message(number, made.insert(row), made.delete(row))
        for number, (made, row) in enumerate((before, between, before))
    ]
    reader = ChangeReader(TYPED)
    found = [
        change.mysql_types
        for message in messages
        for change in list(reader.read(message.body))
    ]
    first = {"id": "int", "a": "int", "b": "varchar(100)"}
    second = {"id": "int", "a": "varchar(10)"}
    assert found == [first, first, second, second, first, first]
    kept = [each for message in messages for each in list(reader.read(message.body))]
    assert [each.mysql_types for each in kept] == found
    (statement,) = reader.read(maker.message(9, maker.statement("ALTER …")).body)
    assert statement.mysql_types == {}


@pytest.mark.parametrize(
    ("time_ms", "requested"),
    [
        (0, "1970-01-01 00:00:00+00:00"),
        (1_700_000_000_000, "2023-11-14 22:13:20+00:00"),
        (253_402_300_799_000, "9999-12-31 23:59:59+00:00"),
        (253_402_300_800_000, "9999-12-31 23:59:59.999999+00:00"),
        (2**63 - 1, "9999-12-31 23:59:59.999999+00:00"),
        (-(2**63), "0001-01-01 00:00:00+00:00"),
    ],
)
def test_commit_times(time_ms: int, requested: str) -> None:
    """A time that no datetime holds is the last or the first one."""
    entry = decode_entry(row(1))
    raw = encode(replace(entry, header=replace(entry.header, execute_time=time_ms)))
    (change,) = changes_of(b"\x12" + varint(len(raw)) + raw)
    assert str(change.commit_time) == requested
    assert change.commit_time_ms == time_ms
