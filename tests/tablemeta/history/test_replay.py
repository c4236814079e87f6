"""Images before statements that their base contains already."""

from __future__ import annotations

import pytest
from fix_tablemeta_storage import at

from canal_server.tablemeta.history.ddl_records import made_record
from canal_server.tablemeta.history.replay import Replay, load_schemas, stored_schemas
from canal_server.tablemeta.storage.history_storage import (
    DdlRecord,
    SourceTraits,
    StoredSchema,
)

TRAITS = SourceTraits(version=90700, collation="utf8mb4_0900_ai_ci")


def base(**tables: str) -> list[StoredSchema]:
    """Return the schema `db` with tables of these columns."""
    return [
        StoredSchema(
            "db",
            "utf8mb4_0900_ai_ci",
            tuple(
                (name, f"CREATE TABLE `{name}` ({columns})")
                for name, columns in tables.items()
            ),
        )
    ]


def contained(*statements: str) -> list[DdlRecord]:
    """Return statements at 1:100, 1:200 and so on that the base contains."""
    return [
        made_record(at(1, 100 * number), "db", statement, contained=True)
        for number, statement in enumerate(statements, 1)
    ]


class Before:
    """A replay that stands before statements which its base contains."""

    def __init__(
        self,
        schemas: list[StoredSchema],
        *statements: str,
        traits: SourceTraits = TRAITS,
    ) -> None:
        self.replay = Replay(traits, schemas)
        self._left = contained(*statements)
        self.replay.expect(self._left)

    def step(self) -> None:
        """Follow the next statement."""
        self.replay.apply(self._left.pop(0))

    def table(self, name: str) -> str:
        """Return the columns of a table, with a question mark if they are uncertain."""
        found = self.replay.find("db", name)
        doubt = "?" if self.replay.model.is_uncertain("db", name) else ""
        if found is None:
            return f"none{doubt}"
        return " ".join(column.name for column in found.columns) + doubt


def test_a_table_that_is_renamed_later() -> None:
    """It is found under the name that it has before, certain, as nothing else comes."""
    before = Before(base(new="a INT, b INT"), "RENAME TABLE old TO new")
    assert before.table("old") == "a b"
    before.step()
    assert before.table("old") == "none"
    assert before.table("new") == "a b"
    assert before.replay.at_rest


def test_renamed_twice_and_altered() -> None:
    """Through several names, with a doubt when its columns change on the way."""
    before = Before(
        base(third="a INT, b INT"),
        "RENAME TABLE first TO second",
        "ALTER TABLE second ADD b INT, RENAME TO third",
    )
    assert before.table("first") == "a b?"
    before.step()
    assert before.table("first") == "none"
    assert before.table("second") == "a b?"
    before.step()
    assert before.table("second") == "none"
    assert before.table("third") == "a b"


def test_tables_that_swap_names() -> None:
    """A swap makes each of the two the other one before."""
    before = Before(base(t="a INT", s="b INT"), "RENAME TABLE t TO x, s TO t, x TO s")
    assert before.table("t").rstrip("?") == "b"
    assert before.table("s").rstrip("?") == "a"
    before.step()
    assert before.table("t") == "a"
    assert before.table("s") == "b"
    assert before.table("x") == "none"


def test_what_was_dropped_is_not_known() -> None:
    """Another table of the same name is not mistaken for a dropped one."""
    before = Before(
        base(t="new_one INT"), "RENAME TABLE o TO t", "DROP TABLE t", "CREATE TABLE t"
    )
    assert before.table("o") == "none"
    assert before.table("t") == "new_one?"


def test_one_that_nobody_can_read() -> None:
    """A contained statement that is not understood makes all tables uncertain."""
    before = Before(base(t="a INT", s="b INT"), "FROBNICATE ALL TABLES '", "SELECT 1")
    assert before.table("t") == "a?"
    assert before.table("s") == "b?"
    before.step()
    assert before.table("t") == "a"
    assert before.table("s") == "b"


def test_names_without_case() -> None:
    """If the server compares names without case, so does the list of pending ones."""
    traits = SourceTraits(version=90700, lower_case_table_names=1)
    before = Before(base(t="a INT"), "ALTER TABLE DB.T ADD a INT", traits=traits)
    assert before.table("t") == "a?"
    before.step()
    assert before.table("t") == "a"


@pytest.mark.parametrize("statement", ["DROP DATABASE db", "CREATE DATABASE db"])
def test_whole_schemas(statement: str) -> None:
    """A schema that comes or goes later has tables of which nothing is known."""
    before = Before(base(t="a INT"), statement)
    assert before.table("t") == "a?"
    before.step()
    assert before.table("t") == "a"


def test_doubts_of_the_base_stay() -> None:
    """A table that was uncertain in the base is so again when all has passed."""
    (schema,) = base(t="a INT")
    uncertain = StoredSchema(schema.name, schema.collation, schema.tables, (), ("t",))
    before = Before([uncertain], "ALTER TABLE t ADD a INT")
    before.step()
    assert before.table("t") == "a?"


def test_a_snapshot_keeps_doubts() -> None:
    """Stored and loaded, an image is what it was, unknown tables in doubt included."""
    replay = Replay(TRAITS, base(t="a INT", s="b INT"))
    replay.model.load_view("db", "v")
    replay.apply(made_record(at(1, 4), "db", "ALTER TABLE unknown ADD x INT"))
    replay.model.mark_uncertain("db", "s")
    image = replay.model.freeze()
    stored = stored_schemas(image)
    again = Replay(TRAITS, ())
    load_schemas(again.model, stored)
    assert stored_schemas(again.model.freeze()) == stored
    assert again.model.is_uncertain("db", "unknown")
    assert again.model.is_uncertain("db", "s")
    assert not again.model.is_uncertain("db", "t")


@pytest.mark.parametrize("is_contained", [False, True])
def test_a_statement_of_which_nothing_is_known(is_contained: bool) -> None:
    """Its effect is unknown: all tables are uncertain, unless read after it."""
    replay = Replay(TRAITS, base(t="a INT", s="b INT"))
    record = made_record(at(1, 4), "db", "ALTER TABLE `t", "", contained=is_contained)
    replay.expect([record] if is_contained else [])
    applied = replay.apply(record)
    for table in ("t", "s"):
        assert replay.model.is_uncertain("db", table) is not is_contained
        assert (("db", table) in applied.uncertain) is not is_contained
    assert bool(applied.problem) is not is_contained
