"""Hidden columns that may have come to be seen under another name."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fix_pipeline import DESTINATION

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from some_settings import settings_for

from canal_server.mirror.ddl.renames import (
    hidden_columns,
    hidden_in_another,
    what_is_revealed,
    with_columns,
)
from canal_server.mirror.follow.micro_batches import ChangeStream
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run.progress import Progress
from canal_server.mirror.run.table_sync import TableSync
from canal_server.mirror.settings.mirror_settings import (
    TableRule,
)
from canal_server.mirror.settings.table_values import Mask, TableName
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.mirror.state.table_shape import Columns
from canal_server.model.columns_known import ColumnMeta
from canal_server.runtime.lifecycle import Stop

HASH, DROP = Mask("hash", salt="salt-of-mine"), Mask("drop")
T = TableName("shop", "t")


def columns(text: str) -> tuple[ColumnMeta, ...]:
    """Return columns of these names, the first one the key."""
    names = text.split()
    return tuple(ColumnMeta(n, "int", None, is_key=n == names[0]) for n in names)


def rule(**changes) -> TableRule:
    """Return a rule that masks mail, unless it says something else."""
    return replace(TableRule(match=".*", masks={"Mail": HASH}), **changes)


def test_what_is_hidden() -> None:
    """What is masked or left out, whatever the case; the hidden of MariaDB never."""
    found = hidden_columns(
        columns("id mail MAIL2 a b DB_ROW_HASH_1"),
        rule(without=("A",), masks={"Mail": HASH, "mail2": DROP}),
    )
    assert found == ("mail", "MAIL2", "a")
    assert hidden_columns(columns("id a b"), rule(columns=("id", "B"))) == ("a",)


@pytest.mark.parametrize(
    ("before", "after", "changes", "expected"),
    [
        ("id mail", "id email", {}, "column mail .* and column email .* appeared"),
        ("id mail a", "id b c", {}, "column mail .* and columns b and c .* appeared"),
        ("id mail", "id mail", {}, ""),
        ("id mail", "id MAIL", {}, ""),
        ("id mail", "id mail b", {}, ""),  # nothing disappeared
        ("id mail", "id", {}, ""),  # nothing appeared
        ("id a mail", "id b mail", {}, ""),  # what disappeared was visible
        ("id mail", "id DB_ROW_HASH_1", {}, ""),
        ("", "id email", {}, ""),  # it was never copied
        # What the rule says of the new one counts, whatever the case.
        ("id mail", "id email", {"masks": {"mail": HASH, "EMAIL": HASH}}, ""),
        ("id mail", "id email", {"without": ("Email",)}, ""),
        ("id mail", "id email", {"shown": ("Email",)}, ""),
        ("id mail a", "id email b", {"shown": ("email",)}, "and column b .* appeared"),
        # What is left out is hidden as well; names that are listed are known.
        ("id a", "id b", {"without": ("a",)}, "column a .* and column b .* appeared"),
        ("id a b", "id b c", {"columns": ("id", "b", "c"), "masks": {}}, ""),
    ],
)
def test_what_a_new_copy_may_reveal(before, after, changes, expected) -> None:
    """A new visible column, while a hidden one has disappeared."""
    state = with_columns(TableState(T, "shop/t"), Columns(columns(before)), rule())
    found = what_is_revealed(state, columns(after), rule(**changes))
    if not expected:
        assert not found
        return
    assert re.search(expected, found), found
    assert "`show` under masks allows its values" in found


def test_a_mask_that_was_removed_from_the_settings() -> None:
    """What it hid until then is not shown because its column has another name now."""
    state = with_columns(TableState(T, "shop/t"), Columns(columns("id mail")), rule())
    unmasked = rule(masks={})
    assert "column email" in what_is_revealed(state, columns("id email"), unmasked)
    assert not what_is_revealed(state, columns("id mail email"), unmasked)


U = TableName("shop", "u")


@pytest.mark.parametrize(
    ("now", "changes", "expected"),
    [
        ("id MAIL a", {"masks": {}}, True),
        ("id mail a", {}, False),  # it is hidden here, too
        ("id mail a", {"masks": {}, "shown": ("mail",)}, False),
        ("id mail a", {"masks": {}, "columns": ("id", "mail")}, False),
        ("id mail b", {"masks": {}}, False),  # another table
        ("id mail", {"masks": {}}, False),
    ],
)
def test_a_table_that_may_have_been_another(now, changes, expected) -> None:
    """It has the columns of one that hid some which it shows."""
    known = with_columns(TableState(U, "shop/u"), Columns(columns("id mail a")), rule())
    found = hidden_in_another(T, columns(now), rule(**changes), [known])
    assert list(found) == ([U] if expected else [])
    assert not hidden_in_another(U, columns(now), rule(**changes), [known])
    if expected:
        assert "columns of shop.u, which was dropped, and shows column mail" in found[U]


class StartedError(Exception):
    """A copy was started."""


class Copying(TableSync):
    """Only starts copies."""

    def _run(self, state, table):
        raise StartedError(table.source)


@pytest.fixture
def sync(source_server, database, make_pipeline, tmp_path):
    """Give `sync(state, **rule)`: what became of the table shop.t of a server."""
    source_server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, email VARCHAR(50))"
    )
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    name = TableName(database, "t")

    def bring(state: TableState, *known: TableState, **changes) -> TableState | None:
        settings = settings_for(pipeline, tmp_path / "lake", tables=(rule(**changes),))
        store = States(open_folder(settings.lake, settings.folder))
        stream = ChangeStream(
            DESTINATION, 1, parts_max=1, on_statement=print, on_leave=print,
            on_batch=print,
        )  # fmt: skip
        work = Copying(
            settings, None, store, stream, progress=Progress(), stop=Stop(),
            is_mariadb=source_server.flavour == "mariadb", known=lambda: known,
        )  # fmt: skip
        work.sync(store.write(replace(state, source=name)))
        return store.read(name)

    return bring


def test_a_copy_that_may_reveal_something_is_not_started(sync) -> None:
    """The table is stopped with the remedy until the rule allows the column."""
    before = with_columns(TableState(T, "shop/t"), Columns(columns("id mail")), rule())
    state = replace(before, copy_id="c1", copies=1, message="its DDL was not followed")
    for _ in range(2):
        stopped = sync(state.moved(Phase.WAITING))
        assert stopped.phase is Phase.STOPPED
        assert "column mail (masked or left out) disappeared and column email" in (
            stopped.message
        )
        assert f"`canal-server mirror copy {stopped.source}`" in stopped.message
        assert stopped.columns == before.columns
        assert (stopped.copy_id, stopped.copies) == ("c1", 1)
        state = stopped
    for changes in ({"shown": ("email",)}, {"masks": {"email": HASH}}):
        with pytest.raises(StartedError):
            sync(state.moved(Phase.WAITING), **changes)


def test_a_renamed_table_is_not_shown(sync, source_server, database) -> None:
    """It is stopped if the other table is dropped, and copied if that exists."""
    was = TableState(TableName(database, "was"), "shop/was", Phase.DROPPED)
    known = with_columns(was, Columns(columns("id email")), rule(without=("email",)))
    new = TableState(T, "shop/t")
    stopped = sync(new, known)
    assert stopped.phase is Phase.STOPPED
    assert (
        f"{database}.was, which was dropped, and shows column email" in stopped.message
    )
    source_server.execute(f"CREATE TABLE {database}.was (id INT PRIMARY KEY)")
    with pytest.raises(StartedError):
        sync(new, known)
