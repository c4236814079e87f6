"""Rows that a foreign key changed are read again, and no others; on a real source."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fix_source_access import access_of
from packed_changes import rows

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from deltalake import DeltaTable

from canal_server.client.range_client import RangePosition
from canal_server.mirror.follow import reread
from canal_server.mirror.follow.follower import Follower
from canal_server.mirror.follow.foreign_keys import hidden_keys
from canal_server.mirror.follow.reread import RETRY_MAX_S, Rereading
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.rows.row_reads import read_by
from canal_server.mirror.settings.selected_tables import mirror_table
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import lake_schema
from canal_server.mirror.state.table_shape import Columns
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns
from canal_server.mysql.source_settings import Address
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.packed.packed_form import packed_bytes

if TYPE_CHECKING:
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.spark.packed.packed_rows import Packed

COPY = "c1"
TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: /lake}
tables: [{match: '%s\\..*', foreign_keys: reread}]
"""


def plan_of(table: MirrorTable, _: object) -> MirrorTable:
    """Return a table whose columns stay as they are."""
    return table


class Scene:
    """Tables of a source, and their copies, to which changes are given by hand."""

    def __init__(self, server: Any, schema: str, folder: Any) -> None:
        self.server, self.schema, self.folder = server, schema, folder
        settings = read(TEXT % schema, "m.yml", {})
        source = replace(settings.source, access=access_of(server))
        self.settings = replace(settings, source=source)
        self.followers: dict[TableName, Follower] = {}
        self.rechecked: set[TableName] = set()
        self.now_s = 0.0
        self.rereading = Rereading(
            self.settings,
            Stop(),
            self.followers.get,
            lambda names, _: self.rechecked.update(names),
            lambda: self.now_s,
        )
        self.seq = 100

    def follow(self) -> None:
        """Copy all tables as they are now, and use their foreign keys."""
        with ControlConnection(access_of(self.server)) as connection:
            keys = hidden_keys(connection, self.settings)
            names = connection.query(
                "SELECT TABLE_NAME FROM information_schema.TABLES"
                " WHERE TABLE_SCHEMA = %s",
                (self.schema,),
            )
            metas = TableColumns(connection).fetch_many(
                (self.schema, str(name)) for (name,) in names
            )
        assert [each.why_not for each in keys] == [""] * len(keys)
        self.rereading.use(each.key for each in keys)
        for (_, name), meta in metas.items():
            table = mirror_table(
                TableName(self.schema, name), meta.columns, self.settings
            )
            lake = DeltaLakeTable(str(self.folder / name), table)
            lake.publish(COPY, lake_schema(table), [], self.seq, {})
            rule = self.settings.tables[0]
            self.followers[table.source] = Follower(
                table, Columns(meta.columns), lake, COPY,
                plan=partial(plan_of, table), rule=rule, is_mariadb=True,
            )  # fmt: skip
            self.batch(self.item(name, *(("insert", *r) for r in self.truth(name))))

    def item(self, name: str, *changes: tuple[Any, ...]) -> Packed:
        """Return changes of a table as the stream has them."""
        follower = self.followers[TableName(self.schema, name)]
        columns = [
            (c.name, c.mysql_type, c.charset, c.is_key) for c in follower.table.columns
        ]
        self.seq += 1000
        found = rows(self.seq, *changes, columns=columns)
        data = found.data
        assert data is not None
        # All of one event, as of an update that changes primary keys.
        position = data.schema.get_field_index("_seq")
        seqs = pa.repeat(pa.scalar(self.seq, pa.int64()), data.num_rows)
        data = data.set_column(position, data.schema.field("_seq"), seqs)
        (batch,) = data.combine_chunks().to_batches() or (None,)
        arrow = found.arrow if batch is None else pa.py_buffer(packed_bytes(batch))
        return replace(found, table=follower.table.source, arrow=arrow)

    def batch(self, *items: Packed) -> None:
        """Apply a batch as the stream does."""
        self.rereading.begin()
        for follower in self.followers.values():
            follower.begin("")
        for item in items:
            self.rereading.accept(item)
            self.followers[item.table].feed(item, {})
        self.rereading.find()
        for follower in self.followers.values():
            follower.flush(self.seq + 100, {})
        assert self.rereading.settle(self.position()) == {}

    def find(self, *items: Packed) -> None:
        """Look what changes lead to, of which the followers get none."""
        self.rereading.begin()
        for item in items:
            self.rereading.accept(item)
        self.rereading.find()

    def position(self) -> RangePosition:
        """Return where the binlog ends."""
        file, offset = self.server.binlog_position()
        return RangePosition(0, file, offset)

    def execute(self, *statements: str) -> None:
        """Change the source."""
        self.server.execute(f"USE {self.schema}", *statements)

    def truth(self, name: str) -> list[tuple[Any, ...]]:
        """Return the rows of the source."""
        return sorted(
            self.server.execute(f"SELECT * FROM {self.schema}.{name}"), key=repr
        )

    def lake(self, name: str) -> list[tuple[Any, ...]]:
        """Return the rows of the lake."""
        found = DeltaTable(str(self.folder / name)).to_pyarrow_table().to_pylist()
        return sorted(
            (tuple(v for n, v in row.items() if n[0] != "_") for row in found), key=repr
        )

    def check(self) -> None:
        """See that all copies are right."""
        for name in self.followers:
            assert self.lake(name.table) == self.truth(name.table), name

    def version(self, name: str) -> int:
        """Return the version of a copy."""
        return int(DeltaTable(str(self.folder / name)).version())


@pytest.fixture
def scene(mariadb_server, database, tmp_path) -> Scene:
    """Give tables of a MariaDB."""
    return Scene(mariadb_server, database, tmp_path)


def test_one_step(scene: Scene) -> None:
    """Deleted and set to NULL; a change of a parent's other columns reads nothing."""
    scene.execute(
        "CREATE TABLE p (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES"
        " p (id) ON DELETE CASCADE)",
        "CREATE TABLE n (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)"
        " ON DELETE SET NULL)",
        "INSERT INTO p VALUES (1, 1), (2, 2)",
        "INSERT INTO c VALUES (1, 1, 1), (2, 2, 2), (3, NULL, 3)",
        "INSERT INTO n VALUES (1, 1), (2, 2)",
    )
    scene.follow()
    scene.check()
    before = scene.version("c")
    scene.execute("UPDATE p SET v = 9 WHERE id = 1")
    scene.batch(scene.item("p", ("update_postimage", 1, 9)))
    assert scene.version("c") == before
    scene.execute("DELETE FROM p WHERE id = 1")
    scene.batch(scene.item("p", ("delete", 1, 9)))
    scene.check()
    assert scene.version("c") == before + 1


def test_a_row_that_was_just_inserted(scene: Scene) -> None:
    """Rows of the same batch refer to what went, too."""
    scene.execute(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO p VALUES (1), (2)",
    )
    scene.follow()
    scene.execute(
        "INSERT INTO c VALUES (1, 1), (2, 2)",
        "DELETE FROM p WHERE id = 1",
        "UPDATE p SET id = 3 WHERE id = 2",
    )
    scene.batch(
        scene.item("c", ("insert", 1, 1), ("insert", 2, 2)),
        scene.item("p", ("delete", 1), ("delete", 2), ("insert", 3)),
    )
    scene.check()
    assert scene.lake("c") == [(2, 3)]


def test_steps_with_the_key_in_the_primary_key(scene: Scene) -> None:
    """A row with a new primary key disappears under the old one."""
    scene.execute(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE b (a INT, n VARCHAR(9), PRIMARY KEY (a, n), FOREIGN KEY (a)"
        " REFERENCES a (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE c (a INT, n VARCHAR(9), m INT, PRIMARY KEY (a, n, m), FOREIGN"
        " KEY (a, n) REFERENCES b (a, n) ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO a VALUES (1), (2)",
        "INSERT INTO b VALUES (1, 'x'), (2, 'Y')",
        "INSERT INTO c VALUES (1, 'X', 1), (1, 'x', 2), (2, 'y', 3)",
    )
    scene.follow()
    scene.execute("UPDATE a SET id = 7 WHERE id = 1", "DELETE FROM a WHERE id = 2")
    scene.batch(
        scene.item("a", ("delete", 1), ("insert", 7)), scene.item("a", ("delete", 2))
    )
    scene.check()
    assert scene.lake("c") == [(7, "X", 1), (7, "x", 2)]
    assert TableName(scene.schema, "c") in scene.rechecked


def test_a_key_that_is_not_the_primary_one(scene: Scene) -> None:
    """The lake has the old value: the event has the current row."""
    scene.execute(
        "CREATE TABLE p (id INT PRIMARY KEY, k VARCHAR(9) UNIQUE)",
        "CREATE TABLE c (id INT PRIMARY KEY, k VARCHAR(9), FOREIGN KEY (k) REFERENCES"
        " p (k) ON UPDATE SET NULL)",
        "INSERT INTO p VALUES (1, 'one'), (2, 'two')",
        "INSERT INTO c VALUES (1, 'ONE'), (2, 'two')",
    )
    scene.follow()
    scene.execute("UPDATE p SET k = 'uno' WHERE id = 1")
    scene.batch(scene.item("p", ("update_postimage", 1, "uno")))
    scene.check()
    assert scene.lake("c") == [(1, None), (2, "two")]


def test_a_key_with_the_primary_one_in_it(scene: Scene) -> None:
    """A column of it changes, and the primary key stays."""
    scene.execute(
        "CREATE TABLE p (id INT PRIMARY KEY, k INT, UNIQUE (k, id))",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, k INT, FOREIGN KEY (k, p)"
        " REFERENCES p (k, id) ON UPDATE CASCADE)",
        "INSERT INTO p VALUES (1, 1), (2, 2)",
        "INSERT INTO c VALUES (1, 1, 1), (2, 2, 2)",
    )
    scene.follow()
    scene.execute("UPDATE p SET k = 9 WHERE id = 1")
    scene.batch(scene.item("p", ("update_postimage", 1, 9)))
    scene.check()
    assert scene.lake("c") == [(1, 1, 9), (2, 2, 2)]


def test_a_parent_that_does_not_follow(scene: Scene) -> None:
    """Its old rows are unknown: the child is compared, also when it rejoins."""
    scene.execute(
        "CREATE TABLE p (id INT PRIMARY KEY, k INT UNIQUE)",
        "CREATE TABLE c (id INT PRIMARY KEY, k INT, FOREIGN KEY (k) REFERENCES p (k)"
        " ON UPDATE CASCADE)",
        "CREATE TABLE n (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)"
        " ON DELETE SET NULL)",
    )
    scene.follow()
    parent, child, other = (TableName(scene.schema, name) for name in "pcn")
    change = scene.item("p", ("update_postimage", 1, 9))
    del scene.followers[parent]
    scene.find(change)
    assert scene.rechecked == {child}
    scene.rechecked.clear()
    scene.rereading.joined(parent)
    assert scene.rechecked == {child, other}


def test_a_step_that_does_not_follow(scene: Scene) -> None:
    """The rows below a table that is copied, or stopped, are compared."""
    scene.execute(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        *(
            f"CREATE TABLE {low} (id INT PRIMARY KEY, up INT, FOREIGN KEY (up)"
            f" REFERENCES {high} (id) ON DELETE CASCADE)"
            for high, low in ("ab", "bc", "cd", "de")
        ),
    )
    scene.follow()
    b, c, d, e = (TableName(scene.schema, name) for name in "bcde")
    change = scene.item("a", ("delete", 1))
    away = {name: scene.followers.pop(name) for name in (b, c)}
    scene.find(change)
    assert scene.rechecked == {d}
    # The same below rows of the lake that are found.
    scene.followers |= away
    scene.batch(scene.item("b", ("insert", 5, 1)))
    for name in (c, d):
        del scene.followers[name]
    scene.rechecked.clear()
    scene.find(change)
    assert scene.rechecked == {c, e}


def test_a_table_that_refers_to_itself(scene: Scene) -> None:
    """All rows below one that goes, however deep."""
    scene.execute(
        "CREATE TABLE s (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES"
        " s (id) ON DELETE CASCADE)",
        "INSERT INTO s VALUES (1, NULL), (2, 1), (3, 2), (4, 3), (5, 4), (9, NULL)",
    )
    scene.follow()
    scene.execute("DELETE FROM s WHERE id = 2")
    scene.batch(scene.item("s", ("delete", 2, 1)))
    scene.check()
    assert scene.lake("s") == [(1, None), (9, None)]


def test_a_source_that_does_not_answer(scene: Scene, caplog, monkeypatch) -> None:
    """The stream continues, and rows to read again wait."""
    scene.execute(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)"
        " ON DELETE CASCADE)",
        "INSERT INTO p VALUES (1), (2)",
        "INSERT INTO c VALUES (1, 1), (2, 2)",
    )
    scene.follow()

    def unreachable(access: Any, *of: Any) -> Any:
        return read_by(replace(access, address=Address("127.0.0.1", 1)), *of)

    scene.execute("DELETE FROM p WHERE id = 1")
    with monkeypatch.context() as away:
        away.setattr(reread, "read_by", unreachable)
        scene.batch(scene.item("p", ("delete", 1)))
    assert "cannot reread the rows that foreign keys changed" in caplog.text
    assert scene.lake("p") == [(2,)]
    assert len(scene.lake("c")) == 2
    scene.batch()
    assert len(scene.lake("c")) == 2, "its pause is not over"
    scene.now_s += RETRY_MAX_S
    scene.batch()
    scene.check()


def test_what_others_suspect(scene: Scene) -> None:
    """A row deleted in the source is deleted, and so are those that refer to it."""
    scene.execute(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)"
        " ON DELETE CASCADE)",
        "CREATE TABLE d (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (id)"
        " ON DELETE CASCADE)",
        "INSERT INTO p VALUES (1), (2)",
        "INSERT INTO c VALUES (1, 1), (2, 2)",
        "INSERT INTO d VALUES (1, 1), (2, 2)",
    )
    scene.follow()
    scene.execute("DELETE FROM p WHERE id = 1")
    scene.rereading.suspect(
        TableName(scene.schema, "c"), pa.table({"id": pa.array([1], pa.int32())})
    )
    assert scene.rereading.has_suspects
    scene.batch(scene.item("p", ("delete", 1)))
    scene.check()
    assert not scene.rereading.has_suspects


TYPES = ("BIGINT UNSIGNED", "DECIMAL(20,3)", "VARCHAR(20) COLLATE utf8mb4_bin",
         "CHAR(9) CHARACTER SET latin1", "BINARY(8)", "DATE", "DATETIME(3)",
         "ENUM('1','20260102')", "INT")  # fmt: skip


@pytest.mark.parametrize("kind", TYPES)
def test_keys_of_each_type(scene: Scene, kind: str) -> None:
    """What refers to what is found by values of any type that a key may have."""
    scene.execute(
        f"CREATE TABLE p (k {kind} PRIMARY KEY)",
        f"CREATE TABLE c (k {kind}, n INT, PRIMARY KEY (k, n), FOREIGN KEY (k)"
        " REFERENCES p (k) ON DELETE CASCADE)",
        "INSERT INTO p VALUES ('20260102')",
        "INSERT INTO c SELECT k, 1 FROM p",
    )
    scene.follow()
    scene.check()
    deleted = scene.truth("p")
    scene.execute("DELETE FROM p")
    scene.batch(scene.item("p", *(("delete", *row) for row in deleted)))
    scene.check()
    assert scene.lake("c") == []


def test_rows_that_a_collation_distinguishes(scene: Scene) -> None:
    """A row whose key differs only in case stays, as it was not requested."""
    scene.execute(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (k VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, p INT, FOREIGN"
        " KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        "INSERT INTO p VALUES (1), (2)",
        "INSERT INTO c VALUES ('a', 1), ('A', 2)",
    )
    scene.follow()
    scene.execute("DELETE FROM p WHERE id = 1")
    scene.batch(scene.item("p", ("delete", 1)))
    scene.check()
    assert scene.lake("c") == [("A", 2)]
