"""The table history in a MySQL: the original's rows, and a server that fails."""

from __future__ import annotations

import contextlib
import json
import logging
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fix_store import eventually
from fix_tablemeta_storage import (
    JAVAS,
    PASSWORD,
    at,
    ddl,
    mysql_database,
    schemas,
    stretch,
)
from history_writer import KINDS, WRITES, content, on_statement, write

from canal_server.errors import ConnectionLost, TableMetaStoreError
from canal_server.mysql.settings import Address, Credentials
from canal_server.tablemeta.storage import SourceTraits
from canal_server.tablemeta.storage_mysql import MysqlHistoryStorage
from canal_server.tablemeta.storage_mysql_lock import Owner
from canal_server.tablemeta.storage_sqlite import SqliteHistoryStorage

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from servers import PrivateServer, Server

    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.settings import Access

HISTORY_COLUMNS = (
    "destination, binlog_file, binlog_offest, binlog_master_id, binlog_timestamp,"
    " use_schema, sql_schema, sql_table, sql_text, sql_type, extra"
)
SNAPSHOT_COLUMNS = (
    "destination, binlog_file, binlog_offest, binlog_master_id, binlog_timestamp,"
    " data, extra"
)


class Place:
    """A data base for histories, with all rights to look into it."""

    def __init__(self, server: Server, access: Access, name: str) -> None:
        self.server = server
        self.access = access
        self.name = name

    def storage(
        self, destination: str = "example", **changed: object
    ) -> MysqlHistoryStorage:
        """Return a storage that is not open."""
        access = replace(self.access, **changed)  # type: ignore[arg-type]
        return MysqlHistoryStorage(access, self.name, destination)

    def rows(self, columns: str, table: str) -> list[tuple[object, ...]]:
        """Return a table's rows in the order in which they came."""
        found = self.server.execute(
            f"SELECT {columns} FROM {self.name}.{table} ORDER BY id"
        )
        return [tuple(row) for row in found]

    def add(self, table: str, columns: str, *values: object) -> None:
        """Add a row as the original does."""
        with self.server.connect(database=self.name) as connection:
            marks = ", ".join(["%s"] * len(values))
            connection.cursor().execute(
                f"INSERT INTO {table} (gmt_create, gmt_modified, {columns})"
                f" VALUES (NOW(), NOW(), {marks})",
                values,
            )

    def add_statement(self, position: EntryPosition, text: str | None) -> None:
        """Add a statement of the original."""
        key = (position.journal_name, position.position, str(position.server_id))
        change: tuple[str | None, ...] = ("shop", "shop", "order", text, "ALTER", None)
        if text is None:
            change = ("shop", None, None, None, None, None)
        self.add(
            "meta_history",
            HISTORY_COLUMNS,
            *("example", *key, position.timestamp, *change),
        )

    def add_snapshot(self, *key: object, data: str = JAVAS) -> None:
        """Add a snapshot of the original: file, offset, server id and time."""
        self.add("meta_snapshot", SNAPSHOT_COLUMNS, "example", *key, data, None)


@pytest.fixture
def place(mysql_server: Server) -> Iterator[Place]:
    """Give a fresh data base whose tables are there, as of the original."""
    with mysql_database(mysql_server) as (access, name):
        place = Place(mysql_server, access, name)
        storage = place.storage("nobody")
        storage.open()
        storage.close()
        yield place


@pytest.fixture
def history(place: Place) -> Iterator[MysqlHistoryStorage]:
    """Give an open storage without content."""
    storage = place.storage()
    storage.open()
    yield storage
    storage.close()


def test_rows_for_java(place: Place, history: MysqlHistoryStorage) -> None:
    """The original finds in its columns what it looks for there."""
    of = history.begin(stretch(at(1, 4)), schemas("t", "u"))
    history.append(of.id, ddl(at(1, 100), "ALTER TABLE t ADD a INT COMMENT '名😀'"))
    time = at(1, 100).timestamp
    assert place.rows(HISTORY_COLUMNS, "meta_history") == [
        ("example", "mysql-bin.000001", 100, "17", time, "db", "db", "t",
         "ALTER TABLE t ADD a INT COMMENT '名\ufffd'", "ALTER", None)
    ]  # fmt: skip
    ((*key, data, extra),) = place.rows(SNAPSHOT_COLUMNS, "meta_snapshot")
    assert key == ["example", "mysql-bin.000001", 4, "17", at(1, 4).timestamp]
    assert extra is None
    assert json.loads(str(data)) == {
        "db": "CREATE TABLE `t` (a INT); \nCREATE TABLE `u` (a INT); \n"
    }
    ((zone,),) = place.rows("ABS(gmt_create - UTC_TIMESTAMP()) < 3600", "meta_history")
    assert zone


def test_java_base_dump(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """What the original wrote is a stretch, from its first statement to its last."""
    old = at(1, 100, timestamp=1_000)
    places = [old, at(1, 200, timestamp=2**42), at(2, 50, timestamp=2**42)]
    texts = ["DROP TABLE a", None, "ALTER TABLE `order` ADD c INT"]
    place.add_snapshot("0", 0, "-1", -2)
    for position, text in zip(places, texts, strict=True):
        place.add_statement(position, text)
    history = place.storage()
    with caplog.at_level(logging.INFO):
        history.open()
    assert "took over 3 statements" in caplog.text
    assert "1 of them without a text" in caplog.text
    (of,) = history.stretches()
    assert (of.source, of.first, of.last) == ("17", old, places[2])
    records = list(history.records(of.id))
    assert [one.position for one in records] == places
    assert [one.ddl for one in records] == ["DROP TABLE a", "", texts[2]]
    assert [one.contained for one in records] == [True, False, False]
    assert (records[2].event_type, records[2].sql_table) == ("ALTER", "order")
    base = history.snapshot(of.id)
    assert base is not None
    assert base.position == old
    assert [one.name for one in base.schemas] == ["Od-d", "shop", "leer"]
    assert dict(base.schemas[1].tables)["order"].startswith("CREATE TABLE `order`")
    history.close()
    history.open()
    assert history.stretches() == [of]
    history.close()


def test_java_goes_on_as_ours(place: Place) -> None:
    """An adopted stretch is extended, compacted and expires as others do."""
    place.add_snapshot("0", 0, "-1", -2)
    for offset in (100, 200):
        place.add_statement(at(1, offset), f"ALTER TABLE t ADD c{offset} INT")
    history = place.storage()
    history.open()
    (of,) = history.stretches()
    assert not history.append(of.id, ddl(at(1, 200)))
    assert history.append(of.id, ddl(at(1, 300)), last=at(1, 400))
    history.extend(of.id, first=at(1, 50))
    base = history.snapshot(of.id, at(1, 99))
    assert base is not None
    assert base.position == at(1, 50)
    assert len(base.schemas) == 3
    history.write_snapshot(of.id, at(1, 250), schemas("t"))
    assert history.expire(at(1, 300).timestamp or 0) == 3
    assert [one.position.position for one in history.records(of.id)] == [300]
    assert len(place.rows("id", "meta_history")) == 1
    assert len(place.rows("id", "meta_snapshot")) == 1
    history.close()


def test_java_snapshot_that_is_broken(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A snapshot of the original that cannot be read is told, another one serves."""
    place.add_snapshot("0", 0, "-1", -2, data="{")
    for offset in (100, 200):
        place.add_statement(at(1, offset), "DROP TABLE x")
    place.add_snapshot("mysql-bin.000001", 200, "17", at(1, 200).timestamp)
    history = place.storage()
    history.open()
    assert "cannot be read" in caplog.text
    (of,) = history.stretches()
    assert of.first == at(1, 200)
    assert [one.contained for one in history.records(of.id)] == [True]
    history.close()


def test_java_without_a_base(place: Place) -> None:
    """Statements of the original without a snapshot are left alone, and give way."""
    place.add_statement(at(1, 100), "DROP TABLE javas")
    place.add_statement(at(1, 200), "DROP TABLE javas")
    history = place.storage()
    history.open()
    assert history.stretches() == []
    of = history.begin(stretch(at(1, 4)), schemas("t"))
    assert history.append(of.id, ddl(at(1, 100)))
    assert [row[1] for row in place.rows("id, sql_text", "meta_history")] == [
        "DROP TABLE javas",
        ddl(at(1, 100)).ddl,
    ]
    history.close()


def test_java_goes_on_with_ours(place: Place, history: MysqlHistoryStorage) -> None:
    """What the original asks for finds the snapshot of ours and what is behind it."""
    of = history.begin(stretch(at(1, 4)), schemas("t"))
    for offset in (100, 200, 300):
        history.append(of.id, ddl(at(1, offset)), last=at(1, offset + 1))
    history.write_snapshot(of.id, at(1, 150), schemas("t", "u"))
    wanted = at(1, 250).timestamp
    ((data, since, file, offset, master),) = place.server.execute(
        "SELECT data, binlog_timestamp, binlog_file, binlog_offest, binlog_master_id"
        f" FROM {place.name}.meta_snapshot WHERE destination = 'example'"
        f" AND binlog_timestamp < {wanted} ORDER BY binlog_timestamp DESC, id DESC"
        " LIMIT 1"
    )
    assert list(json.loads(data)) == ["db"]
    assert data.count("CREATE TABLE") == 2
    assert (file, offset, master) == ("mysql-bin.000001", 150, "17")
    rows = place.server.execute(
        "SELECT sql_text, use_schema, sql_type, sql_schema, sql_table FROM"
        f" {place.name}.meta_history WHERE destination = 'example' AND"
        f" binlog_timestamp >= {since} AND binlog_timestamp <= {wanted}"
        " ORDER BY binlog_timestamp, id"
    )
    assert [tuple(row) for row in rows] == [
        (ddl(at(1, 200)).ddl, "db", "ALTER", "db", "t")
    ]


def test_java_expired_our_base(
    place: Place, history: MysqlHistoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the original deleted old snapshots, stretches begin later or are gone."""
    lost = history.begin(stretch(at(1, 4)), schemas("lost"))
    history.append(lost.id, ddl(at(1, 50)))
    of = history.begin(stretch(at(2, 4)), schemas("t"))
    for offset in (100, 200):
        history.append(of.id, ddl(at(2, offset)), last=at(2, offset + 1))
    history.write_snapshot(of.id, at(2, 150), schemas("t", "u"))
    history.close()
    place.server.execute(
        f"DELETE FROM {place.name}.meta_snapshot WHERE binlog_timestamp <"
        f" {at(2, 150).timestamp}"
    )
    history.open()
    assert history.stretches() == [replace(of, first=at(2, 150), last=at(2, 201))]
    assert [one.position for one in history.records(of.id)] == [at(2, 200)]
    base = history.snapshot(of.id)
    assert base is not None
    assert base.schemas == schemas("t", "u")
    assert caplog.text.count("was deleted from meta_snapshot") == 2


def test_statement_deleted(place: Place, history: MysqlHistoryStorage) -> None:
    """A statement that somebody deleted is told where it is missed, with a remedy."""
    of = history.begin(stretch(at(1, 4)), schemas("t"))
    for offset in (100, 200):
        history.append(of.id, ddl(at(1, offset)))
    place.server.execute(
        f"DELETE FROM {place.name}.meta_history WHERE binlog_offest = 100"
    )
    with pytest.raises(TableMetaStoreError) as caught:
        list(history.records(of.id))
    told = str(caught.value)
    assert f"lacks the statement at {at(1, 100)}" in told
    remedy = f"DELETE FROM canal_server_stretch WHERE id = {of.id}"
    assert told.endswith(remedy)
    place.server.execute(remedy.replace("FROM ", f"FROM {place.name}."))
    again = history.begin(stretch(at(1, 4)), schemas("t"))
    assert history.append(again.id, ddl(at(1, 200)))
    assert history.stretches() == [again]


def test_stretch_changed_by_others(place: Place, history: MysqlHistoryStorage) -> None:
    """A stretch that cannot be read is told with the row to delete."""
    history.begin(stretch(at(1, 4)), schemas("t"))
    place.server.execute(f"UPDATE {place.name}.canal_server_stretch SET last = '?'")
    with pytest.raises(TableMetaStoreError, match="in canal_server_stretch: delete"):
        history.stretches()


def test_binlog_begun_anew(place: Place, history: MysqlHistoryStorage) -> None:
    """Two stretches of one server share places, and each keeps all it has."""
    old = history.begin(stretch(at(1, 4)), schemas("old"))
    history.append(old.id, ddl(at(1, 100), "DROP TABLE old"))
    new = history.begin(stretch(at(1, 4)), schemas("new"))
    assert history.append(new.id, ddl(at(1, 100), "DROP TABLE new"))
    for of, name in ((old, "old"), (new, "new")):
        (record,) = history.records(of.id)
        assert record == ddl(at(1, 100), f"DROP TABLE {name}")
        base = history.snapshot(of.id)
        assert base is not None
        assert base.schemas == schemas(name)
    servers = [row[0] for row in place.rows("binlog_master_id", "meta_history")]
    assert [int(str(server)) < 0 for server in servers] == [True, False]


def test_destinations_differ_in_case(place: Place) -> None:
    """Destinations whose names differ in case alone have histories of their own."""
    one, other = place.storage("Example"), place.storage("example")
    for storage in (one, other):
        storage.open()
        of = storage.begin(stretch(at(1, 4)), schemas("t"))
        assert storage.append(of.id, ddl(at(1, 100)))
        assert len(list(storage.records(of.id))) == 1
    for storage in (one, other):
        assert len(storage.stretches()) == 1
        storage.close()


def test_other_rows_stay(place: Place, history: MysqlHistoryStorage) -> None:
    """A stretch of another destination cannot be written by its number."""
    other = place.storage("other")
    other.open()
    of = history.begin(stretch(at(1, 4)), schemas("t"))
    with pytest.raises(TableMetaStoreError, match=f"no stretch {of.id} of other"):
        other.append(of.id, ddl(at(1, 100)))
    other.close()


def kill_connections(place: Place) -> None:
    """Cut all connections of the storages' account."""
    with place.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE user = %s",
            (place.name,),
        )
        for (identity,) in cursor.fetchall():
            cursor.execute(f"KILL {identity}")


def test_connection_lost(place: Place, history: MysqlHistoryStorage) -> None:
    """A connection that broke while it was idle is made anew, and nothing is missed."""
    of = history.begin(stretch(at(1, 4)), schemas("t"))
    kill_connections(place)
    assert history.append(of.id, ddl(at(1, 100)))
    kill_connections(place)
    assert history.stretches() == [of]
    kill_connections(place)
    assert history.begin(stretch(at(2, 4)), schemas("t")).id != of.id
    assert len(history.stretches()) == 2


def test_locked_out(place: Place, history: MysqlHistoryStorage) -> None:
    """Who comes second is told the connection of the first, by number and address."""
    history.begin(stretch(at(1, 4)), schemas("t"))
    number = history._server._connection.connection_id
    second = MysqlHistoryStorage(place.access, place.name, "example", lock_wait_s=0)
    with pytest.raises(TableMetaStoreError) as caught:
        second.open()
    told = f"is in use by another server (connection {number} from 127.0.0.1:"
    assert told in str(caught.value)
    assert "stop that one" in str(caught.value)
    assert place.name in str(caught.value)


def test_lock_of_a_lost_connection(place: Place, history: MysqlHistoryStorage) -> None:
    """A connection that we lost and the server has still does not keep us out."""
    of = history.begin(stretch(at(1, 4)), schemas("t"))
    connection = history._server._connection
    lost, connection._session = connection._session, None
    assert history.append(of.id, ddl(at(1, 50)))
    assert lost is not None
    with pytest.raises(ConnectionLost):
        lost.query("SELECT 1")


def test_lock_taken_meanwhile(place: Place, history: MysqlHistoryStorage) -> None:
    """Who lost the connection, and the lock to another server, writes no more."""
    of = history.begin(stretch(at(1, 4)), schemas("t"))
    kill_connections(place)
    second = place.storage()
    second.open()
    with pytest.raises(TableMetaStoreError, match="in use by another server"):
        history.append(of.id, ddl(at(1, 50)))
    assert second.append(of.id, ddl(at(1, 60)))
    second.close()
    assert history.append(of.id, ddl(at(1, 70)))
    found = [one.position.position for one in history.records(of.id)]
    assert found == [60, 70]


class Destination:
    """A destination that servers share, and who has it."""

    def __init__(self, place: Place, *, silent_s: int = 60) -> None:
        self.place = place
        self.silent_s = silent_s
        self.has_it = True

    def storage(self) -> MysqlHistoryStorage:
        """Return what a server has that has the destination as long as `has_it`."""
        owner = Owner(lambda: self.has_it, lambda: self.silent_s)
        place = self.place
        return MysqlHistoryStorage(
            place.access, place.name, "example", lock_wait_s=0, owner=owner
        )


def test_comes_back_when_another_has_the_destination(place: Place) -> None:
    """Who lost its connection and the destination writes no more, also without a lock.

    The other one may have lost its connection just then, too.
    """
    destination = Destination(place)
    old, new = destination.storage(), place.storage()
    old.open()
    of = old.begin(stretch(at(1, 4)), schemas("t"))
    kill_connections(place)
    new.open()
    assert new.append(of.id, ddl(at(1, 60)))
    new.close()
    destination.has_it = False
    for _ in range(2):
        with pytest.raises(TableMetaStoreError, match="not for this server to write"):
            old.append(of.id, ddl(at(1, 50)))
        old.close()
        with pytest.raises(TableMetaStoreError, match="not for this server to write"):
            old.open()
    new.open()  # nobody keeps the lock
    found = [one.position.position for one in new.records(of.id)]
    assert found == [60]
    new.close()
    destination.has_it = True
    assert old.append(of.id, ddl(at(1, 70)))
    old.close()


def test_one_that_is_silent_keeps_nobody_out(place: Place) -> None:
    """A server that was paused loses the lock; when it goes on it is told."""
    old = Destination(place, silent_s=1).storage()
    old.open()
    of = old.begin(stretch(at(1, 4)), schemas("t"))
    new = place.storage()

    def is_open() -> bool:
        with contextlib.suppress(TableMetaStoreError):
            new.open()
            return True
        return False

    eventually(is_open)
    assert new.append(of.id, ddl(at(1, 60)))
    with pytest.raises(TableMetaStoreError, match="in use by another server"):
        old.append(of.id, ddl(at(1, 50)))
    new.close()
    old.close()


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_server_killed(
    own_server: Callable[[str, Sequence[str]], PrivateServer],
    tmp_path: Path,
    flavour: str,
    rng: random.Random,
) -> None:
    """A server that dies in a write has all of it or nothing; the storage goes on."""
    server = own_server(flavour, [])
    with (
        mysql_database(server) as (access, name),
        closing(SqliteHistoryStorage(tmp_path / "model.sqlite")) as model,
        closing(MysqlHistoryStorage(access, name, "example")) as history,
    ):
        model.open()
        history.open()
        left = -1

        kills = 0

        def count() -> None:
            nonlocal left, kills
            if left == 0:
                server.kill()
                kills += 1
            left -= 1

        on_statement(history, count)
        for number in range(2 * WRITES):
            before = content(model)
            write(model, number)
            after = content(model)
            is_tried = number >= WRITES and number % WRITES in KINDS.values()
            left = rng.randrange(12) if is_tried else -1
            try:
                write(history, number)
            except TableMetaStoreError as error:
                assert "canal.instance.tsdb.url runs" in str(error)  # noqa: PT017
                server.restart()
                found = content(history)
                assert found in (before, after)
                if found == before:
                    write(history, number)
            left = -1
            assert content(history) == after
    print(f"the server was killed in {kills} writes")
    assert kills


class Cut:
    """Cuts the connection at the n-th statement, before or after it ran."""

    def __init__(
        self, place: Place, storage: MysqlHistoryStorage, *, after: bool
    ) -> None:
        self._place = place
        server: Any = storage._server
        self._connection = server._connection
        self._query = self._connection.query
        self._after = after
        self._left = -1
        self.statements: list[str] = []
        self._connection.query = self._counted

    def at(self, number: int) -> None:
        """Cut at this statement from now on, from 0 on."""
        self.statements.clear()
        self._left = number

    def _counted(self, sql: str, parameters: Sequence[object] = ()) -> object:
        self.statements.append(sql)
        now, self._left = self._left == 0, self._left - 1
        if now and not self._after:
            kill_connections(self._place)
        found = self._query(sql, parameters)
        if now and self._after:
            kill_connections(self._place)
            return self._query("SELECT 'the answer never comes'")
        return found


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_cut_anywhere(place: Place, history: MysqlHistoryStorage, after: bool) -> None:
    """Wherever the connection breaks in a write, it is done once and as a whole."""
    cut = Cut(place, history, after=after)
    writes: list[Callable[[int, int], object]] = [
        lambda of, n: history.append(of, ddl(at(1, n)), last=at(1, n)),
        lambda of, n: history.write_snapshot(of, at(1, n), schemas("t", "u")),
        lambda _, n: history.begin(stretch(at(2, n)), schemas("t")),
        lambda of, n: history.append_all(of, [ddl(at(3, n))], first=at(0, 9_999 - n)),
        lambda of, n: history.identify(of, f"server {n}", SourceTraits(version=n)),
        lambda of, n: history.expire(n),
    ]
    of = history.begin(stretch(at(1, 4)), schemas("t")).id
    for one_write in writes:
        cut.at(-1)
        assert one_write(of, 90) is not False
        count = len(cut.statements)
        assert count > 3
        for number in range(count):
            cut.at(number)
            assert one_write(of, 100 + number) is not False
        cut.at(-1)
    stretches = history.stretches()
    found = [one.position.order() for one in history.records(of)]
    assert found == sorted(set(found))
    appended = [offset for file, offset in found if file == 1]
    assert appended == [90, *range(100, 100 + len(appended) - 1)]
    begun = [one.first.position for one in stretches if one.first.order()[0] == 2]
    assert begun == [90, *range(100, 100 + len(begun) - 1)]
    assert min(len(appended), len(begun)) > 5
    (named,) = [one for one in stretches if one.id == of]
    assert named.source == f"server {named.traits.version}"


def test_no_server(place: Place) -> None:
    """A server that cannot be reached is told with what to look at."""
    storage = place.storage(address=Address("127.0.0.1", 1), connect_timeout_s=2.0)
    with pytest.raises(TableMetaStoreError) as caught:
        storage.open()
    assert f"in {place.name} on 127.0.0.1:1 cannot be read" in str(caught.value)
    assert "see whether the server of canal.instance.tsdb.url runs" in str(caught.value)


@pytest.mark.parametrize(
    ("user", "password", "name", "told"),
    [
        (None, "wrong secret", None, "check canal.instance.tsdb.dbUsername and"),
        (None, None, "missing", "GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON"),
        ("nobody", PASSWORD, None, "check canal.instance.tsdb.dbUsername and"),
    ],
)
def test_refused(
    place: Place,
    user: str | None,
    password: str | None,
    name: str | None,
    told: str,
) -> None:
    """Who is not let in reads why and what to do, and never a password."""
    place.name = name or place.name
    own = place.access.credentials
    storage = place.storage(
        credentials=Credentials(user or own.user, password or own.password)
    )
    with pytest.raises(TableMetaStoreError) as caught:
        storage.open()
    text = str(caught.value)
    assert told in text
    assert "secret" not in text
    assert "REPLICATION" not in text
    assert "secret" not in repr(storage.__dict__)


def test_no_right_to_write(place: Place) -> None:
    """An account that may only look is told what it lacks; reading works."""
    place.server.execute(
        f"REVOKE CREATE, INSERT, UPDATE, DELETE ON {place.name}.* FROM {place.name}"
    )
    storage = place.storage()
    storage.open()
    with pytest.raises(TableMetaStoreError, match="GRANT CREATE, SELECT, INSERT"):
        storage.begin(stretch(at(1, 4)), schemas("t"))
    assert storage.stretches() == []
    storage.close()


def test_dropped_while_in_use(place: Place, history: MysqlHistoryStorage) -> None:
    """A table that somebody drops is named, with what comes of it, and made anew."""
    of = history.begin(stretch(at(1, 4)), schemas("t"))
    tables = ("meta_history", "meta_snapshot", "canal_server_place")
    for table in (*tables, "canal_server_stretch"):
        place.server.execute(f"DROP TABLE {place.name}.{table}")
    with pytest.raises(TableMetaStoreError, match="canal_server_stretch") as caught:
        history.extend(of.id, last=at(1, 500))
    assert "the next attempt of a running server makes it anew" in str(caught.value)
    history.close()
    history.open()
    assert history.stretches() == []


def test_newer_form(place: Place) -> None:
    """Tables of a newer version are not touched, and the remedy is told."""
    place.server.execute(
        f"ALTER TABLE {place.name}.canal_server_stretch COMMENT 'x, version 2'"
    )
    with pytest.raises(TableMetaStoreError, match=r"newer canal-server \(version 2, "):
        place.storage().open()


def test_changed_by_others(place: Place, history: MysqlHistoryStorage) -> None:
    """A snapshot that somebody changed is refused, with the row to look at."""
    of = history.begin(stretch(at(1, 4)), schemas("t"))
    place.server.execute(f"UPDATE {place.name}.meta_snapshot SET data = '{{}}'")
    with pytest.raises(TableMetaStoreError, match=r"cannot be read .*meta_snapshot"):
        history.snapshot(of.id)


def test_too_large(
    own_server: Callable[[str, Sequence[str]], PrivateServer],
) -> None:
    """What the server does not take at once is told with both sizes, and not begun."""
    server = own_server("mysql", ["--max-allowed-packet=1M"])
    with mysql_database(server) as (access, name):
        storage = MysqlHistoryStorage(access, name, "example")
        storage.open()
        of = storage.begin(stretch(at(1, 4)), schemas("t"))
        with pytest.raises(TableMetaStoreError) as caught:
            storage.append(of.id, ddl(at(1, 100), "'" * 600_000))
        assert "max_allowed_packet is 1048576; raise that" in str(caught.value)
        assert list(storage.records(of.id)) == []
        assert storage.append(of.id, ddl(at(1, 100), "'" * 300_000))
        many = [ddl(at(2, n), "x" * 50_000) for n in range(100)]
        storage.append_all(of.id, many)
        assert len(list(storage.records(of.id))) == 101
        storage.close()
