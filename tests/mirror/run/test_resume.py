"""What becomes of tables when the mirror is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fix_source_access import access_of

from canal_server.client.range_client import RangePosition
from canal_server.errors import ConfigError
from canal_server.mirror.follow.leaving import (
    TableStoppedError,
)
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run.resume import Resume, Selected, binlog_problems, look
from canal_server.mirror.settings.selected_tables import mirror_table, signature
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import lake_schema, open_table
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.model.columns_known import ColumnMeta
from canal_server.mysql.flavour import server_info
from canal_server.runtime.lifecycle import Stop

ID = ColumnMeta("id", "int", None, is_key=True, nullable=False)
MAIL = ColumnMeta("mail", "varchar(50)", "utf8mb4", is_key=False)
T, U, V = (TableName("shop", name) for name in "tuv")


def settings_in(folder, *rules: str):
    """Return settings with these rules, each the keys of one."""
    head = (
        "name: shop\ncanal: {destination: example}\n"
        "source: {host: db, user: canal}\nlake: {path: lake}\n"
        "mask_salt: salt-of-mine\ntables:\n"
    )
    text = head + "".join(f"  - {{{rule}}}\n" for rule in rules)
    return read(text, str(folder / "m.yml"), {})


def store_of(settings) -> States:
    """Return what is known of tables."""
    return States(open_folder(settings.lake, settings.folder))


def copied(settings, name, phase, columns=(ID, MAIL)) -> TableState:
    """Return a table in a phase, with its copy in the lake."""
    table = mirror_table(name, columns, settings)
    open_table(settings, table).publish("c1", lake_schema(table), [], 100, {})
    position = RangePosition(0, "f.000001", 100)
    return TableState(
        name, table.target, phase, copy_id="c1", position=position, columns=columns,
        plan=signature(name, settings),
    )  # fmt: skip


def resumed(
    settings,
    expected: Selected,
    *states: TableState,
    join=lambda _state: None,
    ended_at_ms: int | None = None,
):
    """Return what becomes of tables: (phase, message), and what is stored of it."""
    store = store_of(settings)
    for state in states:
        store.write(state)
    known = store.read_all()
    found = Resume(settings, store, join, ended_at_ms).states(expected, known)
    stored = store.read_all()
    for name, state in found.items():
        assert stored.get(name, replace(state, phase=Phase.WAITING)) == state
    return {name: (state.phase, state.message) for name, state in found.items()}


def test_what_readers_did_not_see(tmp_path) -> None:
    """Rows of a schema change move to the lake when the table turns out to be another.

    Nothing of them is left in the mirror's own folder.
    """
    settings = settings_in(tmp_path, r"match: shop\..*")
    name = TableName("shop", "_t_new")
    state = copied(settings, name, Phase.FOLLOWING)
    folder = Path(settings.lake.path, state.target)
    assert state.target.startswith("_mirror/shop/migrations/")
    assert folder.exists()
    settings.note_tables([name], {})
    why = "the settings of the table have changed"
    assert resumed(settings, Selected((name,)), state) == {name: (Phase.WAITING, why)}
    assert store_of(settings).read_all()[name].target == "shop/!5Ft_new"
    assert not folder.exists()


def test_each_goes_on_where_it_was(tmp_path) -> None:
    """Followed tables join; new, dropped and excluded ones get their phase."""
    settings = settings_in(tmp_path, r"match: shop\..*")
    joined: list[TableState] = []
    w, x = TableName("shop", "w"), TableName("other", "x")
    y = TableName("shop", "y")
    found = resumed(
        settings,
        Selected((T, U, V)),
        copied(settings, T, Phase.FOLLOWING),
        replace(copied(settings, U, Phase.COPYING), message="a"),
        copied(settings, w, Phase.CATCHING_UP),
        TableState(x, "x", Phase.FOLLOWING),
        replace(copied(settings, y, Phase.STOPPED), message="what to decide"),
        join=joined.append,
    )
    assert found == {
        T: (Phase.FOLLOWING, ""),
        U: (Phase.COPYING, "a"),
        V: (Phase.WAITING, ""),
        w: (Phase.DROPPED, "the source no longer has this table"),
        x: (Phase.DROPPED, "the settings no longer select it"),
        y: (Phase.DROPPED, "the source no longer has this table"),
    }
    assert [state.source for state in joined] == [T]


def test_one_that_the_source_no_longer_has(tmp_path) -> None:
    """It follows the stream to the statement that ended it; its copy is not made."""
    settings = settings_in(tmp_path, r"match: shop\..*")
    joined: list[TableState] = []
    found = resumed(
        settings,
        Selected((V,)),
        copied(settings, T, Phase.FOLLOWING),
        replace(copied(settings, U, Phase.FOLLOWING), copy_id="c2"),
        join=joined.append,
    )
    assert found == {
        T: (Phase.FOLLOWING, ""),
        U: (Phase.DROPPED, "the source no longer has this table"),
        V: (Phase.WAITING, ""),
    }
    assert [state.source for state in joined] == [T]


def test_one_in_a_folder_of_an_earlier_version(tmp_path) -> None:
    """A table whose folder has letters beyond ASCII follows on, and is not copied."""
    rule = r"match: 'shop\..*', deletes: soft, masks: {mail: 'null'}"
    settings, name = settings_in(tmp_path, rule), TableName("shop", "café")
    table = replace(mirror_table(name, (ID, MAIL), settings), target="shop/café")
    open_table(settings, table).publish("c1", lake_schema(table), [], 100, {})
    state = replace(
        copied(settings, name, Phase.FOLLOWING),
        target="shop/café",
        plan="80cef46048ba6156",  # as that version computed it
    )
    (tmp_path / "lake/shop/caf!C3!A9").rename(tmp_path / "unused")
    joined: list[TableState] = []
    found = resumed(settings, Selected((name,)), state, join=joined.append)
    assert found == {name: (Phase.FOLLOWING, "")}
    assert [each.target for each in joined] == ["shop/café"]


def test_one_that_is_there_again(tmp_path) -> None:
    """A table that was dropped is copied again, one that is stopped stays that."""
    settings = settings_in(tmp_path, r"match: shop\..*")
    found = resumed(
        settings,
        Selected((T, U)),
        copied(settings, T, Phase.DROPPED),
        replace(copied(settings, U, Phase.STOPPED), message="so"),
    )
    assert found == {T: (Phase.WAITING, ""), U: (Phase.STOPPED, "so")}


def test_a_copy_that_was_deleted(tmp_path) -> None:
    """It is made again."""
    settings = settings_in(tmp_path, r"match: shop\..*")
    state = replace(copied(settings, T, Phase.FOLLOWING), copy_id="c2")
    found = resumed(settings, Selected((T,)), state)
    assert found == {T: (Phase.WAITING, "its copy is missing in the lake")}


@pytest.mark.parametrize("phase", [Phase.COPYING, Phase.CATCHING_UP, Phase.FOLLOWING])
def test_other_settings_make_another_copy(tmp_path, phase) -> None:
    """Also of a copy that is not done: half of it would be without the mask."""
    settings = settings_in(tmp_path, r"match: shop\..*")
    state = copied(settings, T, phase)
    masked = settings_in(tmp_path, r"match: shop\..*, masks: {mail: hash}")
    found = resumed(masked, Selected((T,)), state, ended_at_ms=9)
    assert found == {T: (Phase.WAITING, "the settings of the table have changed")}
    old_since_ms = store_of(settings).read_all()[T].old_since_ms
    assert old_since_ms == (9 if phase is Phase.FOLLOWING else 0)


def test_what_cannot_be_resumed_stops_alone(tmp_path) -> None:
    """Due to the source, the settings or its follower; other tables continue."""
    settings = settings_in(tmp_path, r"match: shop\..*")
    of_old = (ID, ColumnMeta("_seq", "int", None, is_key=False))
    w = TableName("shop", "w")

    def join(state: TableState) -> None:
        if state.source == V:
            raise TableStoppedError("it cannot be")

    found = resumed(
        settings,
        Selected((T, U, V, w), {T: "there is something"}),
        copied(settings, T, Phase.FOLLOWING),
        replace(copied(settings, U, Phase.FOLLOWING), columns=of_old),
        copied(settings, V, Phase.FOLLOWING),
        copied(settings, w, Phase.FOLLOWING),
        join=join,
    )
    assert found[T] == (Phase.STOPPED, "there is something")
    assert found[U][0] is Phase.STOPPED
    assert "column _seq has a name that the stream of" in found[U][1]
    assert found[V] == (Phase.STOPPED, "it cannot be")
    assert found[w] == (Phase.FOLLOWING, "")


def test_a_damaged_table_stops_alone(tmp_path) -> None:
    """A table of the lake that cannot be read keeps the mirror from no other one."""
    settings = settings_in(tmp_path, r"match: shop\..*")
    states = [copied(settings, name, Phase.FOLLOWING) for name in (T, U)]
    (log,) = tmp_path.rglob(f"{T.table}/_delta_log")
    (log / f"{1:020}.json").write_text("{bad")
    found = resumed(settings, Selected((T, U)), *states)
    assert found[U] == (Phase.FOLLOWING, "")
    phase, shown = found[T]
    assert phase is Phase.STOPPED
    assert f"cannot read the lake's table shop/{T.table}" in shown
    assert f"`canal-server mirror copy {T}` makes a new copy; if that" in shown


# --- asking the database --------------------------------------------------------------


@pytest.fixture
def live(source_server, database, tmp_path):
    """Give `live(*rules)`: settings whose tables are in a schema of a server."""

    def make(*rules: str):
        settings = settings_in(tmp_path, *rules)
        source = replace(settings.source, access=access_of(source_server))
        return replace(settings, source=source)

    source_server.execute(
        f"CREATE TABLE {database}.a (id INT PRIMARY KEY, mail VARCHAR(50))",
        f"CREATE TABLE {database}.b (_seq INT PRIMARY KEY)",
    )
    return make


def test_a_first_start_is_strict(live, database) -> None:
    """All problems are reported, and nothing starts."""
    settings = live(rf"match: {database}\..*", r"match: nowhere\..*")
    with pytest.raises(ConfigError) as caught:
        look(settings, {}, Stop())
    first, second = caught.value.problems
    assert f"table {database}.b: column _seq has a name" in first
    assert "match = 'nowhere\\..*': no table matches" in second


def test_later_on_one_table_stops(live, database, caplog) -> None:
    """Rules by which there are copies were right: the source is another one now."""
    settings = live(
        rf"match: {database}\..*, masks: {{phone: hash}}", r"match: nowhere\..*"
    )
    a, b = TableName(database, "a"), TableName(database, "b")
    deleted = TableName("nowhere", "t")
    known = {
        name: TableState(name, "t", Phase.DROPPED, plan=signature(name, settings))
        for name in (a, deleted)
    }
    found = look(settings, known, Stop())
    assert set(found.names) == {a, b}
    assert list(found.stopped) == [b]
    assert "column _seq has a name that the stream of" in (found.stopped[b])
    assert "masks: no table has a column phone" in caplog.text
    assert "no table matches" in caplog.text

    other = live(rf"match: {database}\..*, masks: {{fax: hash}}", r"match: nowhere\..*")
    with pytest.raises(ConfigError) as caught:
        look(other, known, Stop())
    first, second = caught.value.problems
    assert "column _seq has a name that the stream of" in first
    assert "masks: no table has a column fax" in second


def test_an_account_that_does_not_see_a_table(
    live, database, source_server, make_pipeline, caplog
) -> None:
    """A table that canal-server still reads is followed; others count as dropped."""
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    settings = live(rf"match: '{database}\.[acd]'")
    source_server.execute(
        "CREATE USER IF NOT EXISTS 'blind'@'%' IDENTIFIED BY 'secret-9'",
        f"CREATE TABLE {database}.c (id INT PRIMARY KEY)",
        f"GRANT SELECT ON {database}.c TO 'blind'@'%'",
    )
    access = access_of(source_server, user="blind", password="secret-9")
    settings = replace(
        settings,
        canal=replace(settings.canal, servers=f"127.0.0.1:{pipeline.server_port}"),
        source=replace(settings.source, access=access),
    )
    names = [TableName(database, name) for name in "acd"]
    known = {
        name: TableState(name, "t", Phase.FOLLOWING, plan=signature(name, settings))
        for name in names
    }
    found = look(settings, known, Stop())
    assert found.names == (names[1], names[0])
    assert found.end > 0  # one of them is dropped
    assert look(settings, {names[1]: known[names[1]]}, Stop()).end == 0
    assert f"{names[0]}: account blind no longer sees it" in caplog.text
    assert "have an administrator run: GRANT SELECT ON `" in caplog.text


def test_a_binlog_without_rows() -> None:
    """A server that logs statements, or parts of rows, is an error with a remedy."""
    right = {
        "version": "9.7.0", "log_bin": "ON", "binlog_format": "ROW",
        "binlog_row_image": "FULL",
    }  # fmt: skip

    def problems(**changes: str) -> list[str]:
        return list(binlog_problems(server_info(right | changes)))

    assert not problems()
    assert "binlog_format is MIXED" in problems(binlog_format="MIXED")[0]
    assert (
        "SET GLOBAL binlog_row_image = FULL"
        in (problems(binlog_row_image="MINIMAL")[0])
    )
    assert "writes no binary log" in problems(log_bin="OFF")[0]
