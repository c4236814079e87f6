"""The original's form of the table history."""

from __future__ import annotations

import json

import pytest
from fix_tablemeta_storage import JAVAS, at

from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.storage.history_storage import StoredSchema
from canal_server.tablemeta.storage.java_tables import (
    JavaSnapshot,
    JavaStatement,
    adoptable,
    data_of,
    has_long_characters,
    note_of,
    position_of,
    schemas_of,
    schemas_of_java,
    without_long_characters,
)

BASE_DUMP = JavaSnapshot(1, position_of("0", 0, "-1", -2))


def statement(position: EntryPosition, number: int = 0) -> JavaStatement:
    """Return a statement of the Java server, numbered by its position."""
    return JavaStatement(
        number or (position.position or 0), position, "db", "DROP TABLE t", "", "", ""
    )


def found(
    statements: list[JavaStatement], *snapshots: JavaSnapshot
) -> list[tuple[int, EntryPosition, EntryPosition, dict[int, bool]]]:
    """Return base, ends, and rows with whether the base contains them."""
    return [
        (
            one.base.id,
            one.first,
            one.last,
            {row: record.contained for row, record in one.records},
        )
        for one in adoptable(statements, snapshots)
    ]


def test_tables_of_java() -> None:
    """Its tables are separated and named, whatever is in quotes."""
    odd, shop, empty = schemas_of_java(JAVAS)
    assert odd.name == "Od-d"
    assert [name for name, _ in odd.tables] == ["t;`q"]
    assert shop.name == "shop"
    assert [name for name, _ in shop.tables] == ["b", "order"]
    assert shop.uncertain == ("b", "order")
    for _, text in (*odd.tables, *shop.tables):
        assert text.startswith("CREATE TABLE `")
        assert text.endswith("`")
    assert empty == StoredSchema("leer")


@pytest.mark.parametrize(
    "data", ["", "[]", "{", "[" * 200_000, '{"a": "DROP TABLE a; \\n"}']
)
def test_not_java(data: str) -> None:
    """Anything but such a snapshot is refused."""
    with pytest.raises(ValueError):  # noqa: PT011  # of several kinds
        schemas_of_java(data)


def test_ours_is_javas() -> None:
    """What we write is read in Java's way with the same names and texts."""
    schemas = tuple(
        StoredSchema(one.name, tables=one.tables) for one in schemas_of_java(JAVAS)
    )
    again = schemas_of_java(data_of(schemas))
    assert [(one.name, one.tables) for one in again] == [
        (one.name, one.tables) for one in schemas if one.tables
    ]


def test_ours_comes_back() -> None:
    """Data and note together give everything, also what Java has no room for."""
    schemas = (
        StoredSchema("z", "utf8mb4_bin", views=("v",)),
        StoredSchema("a", tables=(("t", "x; \n'"), ("u", "")), uncertain=("u",)),
        StoredSchema("名", tables=(("😀", "😀; \n"),)),
    )
    data = data_of(schemas)
    assert not has_long_characters(data)
    assert "名" in data
    assert schemas_of(data, json.loads(json.dumps(note_of(schemas)))) == schemas


def test_changed_data() -> None:
    """Data of another length than its note says is refused."""
    schemas = (StoredSchema("a", tables=(("t", "x"),)),)
    with pytest.raises(ValueError, match="different length"):
        schemas_of(data_of(schemas).replace("x", "yy"), note_of(schemas))


def test_long_characters() -> None:
    """Four-byte characters are found and removed, others are kept."""
    assert has_long_characters("a😀")
    assert without_long_characters("a😀名") == "a\ufffd名"
    assert not has_long_characters("a名\uffff")


def test_positions() -> None:
    """Negative numbers, which stand for none, are none."""
    assert position_of("f.1", 4, "17", 5) == EntryPosition("f.1", 4, 5, 17)
    assert position_of("0", 0, "-1", -2) == EntryPosition("0", 0)
    assert position_of(None, None, None, None) == EntryPosition("", 0)
    assert position_of("f.1", 4, "x", 5) == EntryPosition("f.1", 4, 5)


def test_base_dump() -> None:
    """The base dump is placed at the first statement, after those older than it."""
    statements = [statement(at(1, o)) for o in (30, 10, 20)]
    dump = JavaSnapshot(1, BASE_DUMP.position, at(1, 20).timestamp or 0)
    contained = {10: True, 20: False, 30: False}
    assert found(statements, dump) == [(1, at(1, 10), at(1, 30), contained)]


def test_nothing_to_adopt() -> None:
    """A base dump alone, or statements without a base, are not enough."""
    assert found([]) == []
    assert found([], BASE_DUMP) == []
    assert found([statement(at(1, 10))]) == []


def test_snapshots() -> None:
    """A snapshot contains the statement at its position; the oldest is used first."""
    statements = [statement(at(1, o)) for o in (10, 20, 30)]
    snapshots = [JavaSnapshot(8, at(1, 30)), JavaSnapshot(7, at(1, 20))]
    assert found(statements, *snapshots) == [
        (7, at(1, 20), at(1, 30), {20: True, 30: False}),
        (8, at(1, 30), at(1, 30), {30: True}),
    ]
    assert found(statements, BASE_DUMP, *snapshots)[0][0] == 1
    assert found([], *snapshots)[1] == (8, at(1, 30), at(1, 30), {})


def test_other_server() -> None:
    """Only what the last server did counts, and then the base dump does not serve."""
    statements = [
        statement(at(9, 10, timestamp=1_000, server_id=1), 1),
        statement(at(1, 10, timestamp=2_000, server_id=2), 2),
        statement(at(1, 20, timestamp=3_000, server_id=2), 3),
    ]
    snapshots = [
        BASE_DUMP,
        JavaSnapshot(2, at(9, 10, timestamp=1_000, server_id=1)),
        JavaSnapshot(3, at(1, 10, timestamp=2_000, server_id=2)),
        JavaSnapshot(4, at(1, 5, timestamp=1_500, server_id=2)),
    ]
    ((base, first, last, rows),) = found(statements, *snapshots)
    assert (base, first.order(), last.order()) == (3, (1, 10), (1, 20))
    assert rows == {2: True, 3: False}


def test_binlog_restarted() -> None:
    """Positions that go backwards end the usable range."""
    statements = [
        statement(at(7, 10, timestamp=1_000), 1),
        statement(at(1, 10, timestamp=2_000), 2),
        statement(at(1, 20, timestamp=2_000), 3),
        statement(at(1, 20, timestamp=2_000), 4),
    ]
    snapshots = [
        BASE_DUMP,
        JavaSnapshot(2, at(7, 10, timestamp=1_000)),
        JavaSnapshot(3, at(1, 10, timestamp=2_000)),
    ]
    ((_, first, last, rows),) = found(statements, *snapshots)
    assert (first.order(), last.order()) == ((1, 10), (1, 20))
    assert len(rows) == 2
