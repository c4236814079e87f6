"""The table history in a MySQL that fails, or that another server took over."""

from __future__ import annotations

import contextlib
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from fix_store import eventually
from fix_tablemeta_storage import (
    at,
    ddl,
    mysql_database,
    schemas,
    segment,
)
from history_writer import KINDS, WRITES, content, on_statement, write
from mysql_history import MysqlLocation, fresh_location, open_history

from canal_server.errors import ConnectionLost, TableMetaStoreError
from canal_server.tablemeta.storage.history_storage import SourceTraits
from canal_server.tablemeta.storage.mysql_lock import Owner
from canal_server.tablemeta.storage.mysql_storage import MysqlHistoryStorage
from canal_server.tablemeta.storage.sqlite_storage import SqliteHistoryStorage

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from servers import PrivateServer


location = pytest.fixture(fresh_location, name="location")
history = pytest.fixture(open_history, name="history")


def connections(location: MysqlLocation) -> list[int]:
    """Return the numbers of all connections of the storages' account."""
    with location.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE user = %s",
            (location.name,),
        )
        return [number for (number,) in cursor.fetchall()]


def kill_connections(location: MysqlLocation) -> None:
    """Cut all connections of the storages' account."""
    for number in connections(location):
        location.server.execute(f"KILL {number}")


def test_connection_lost(location: MysqlLocation, history: MysqlHistoryStorage) -> None:
    """A connection that broke while idle is reopened, and nothing is lost."""
    of = history.begin(segment(at(1, 4)), schemas("t"))
    kill_connections(location)
    assert history.append(of.id, ddl(at(1, 100)))
    kill_connections(location)
    assert history.segments() == [of]
    kill_connections(location)
    assert history.begin(segment(at(2, 4)), schemas("t")).id != of.id
    assert len(history.segments()) == 2


def test_locked_out(location: MysqlLocation, history: MysqlHistoryStorage) -> None:
    """The second server gets the connection of the first, by number and address."""
    history.begin(segment(at(1, 4)), schemas("t"))
    (number,) = connections(location)
    second = MysqlHistoryStorage(
        location.access, location.name, "example", lock_wait_s=0
    )
    with pytest.raises(TableMetaStoreError) as caught:
        second.open()
    shown = f"is in use by another server (connection {number} from 127.0.0.1:"
    assert shown in str(caught.value)
    assert "stop that server" in str(caught.value)
    assert location.name in str(caught.value)


def test_lock_of_a_lost_connection(
    location: MysqlLocation, history: MysqlHistoryStorage
) -> None:
    """A connection that we lost and the server has still does not keep us out."""
    of = history.begin(segment(at(1, 4)), schemas("t"))
    connection = history._server._connection
    lost, connection._session = connection._session, None
    assert history.append(of.id, ddl(at(1, 50)))
    assert lost is not None
    with pytest.raises(ConnectionLost):
        lost.query("SELECT 1")


def test_lock_acquired_meanwhile(
    location: MysqlLocation, history: MysqlHistoryStorage
) -> None:
    """A server that lost the connection and the lock to another writes no more."""
    of = history.begin(segment(at(1, 4)), schemas("t"))
    kill_connections(location)
    second = location.storage()
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

    def __init__(self, location: MysqlLocation, *, silent_s: int = 60) -> None:
        self.location = location
        self.silent_s = silent_s
        self.has_it = True

    def storage(self) -> MysqlHistoryStorage:
        """Return what a server has that has the destination as long as `has_it`."""
        owner = Owner(lambda: self.has_it, lambda: self.silent_s)
        location = self.location
        return MysqlHistoryStorage(
            location.access, location.name, "example", lock_wait_s=0, owner=owner
        )


def test_comes_back_when_another_has_the_destination(location: MysqlLocation) -> None:
    """A server that lost its connection and the destination stops, even without a lock.

    The other one may have lost its connection just then, too.
    """
    destination = Destination(location)
    old, new = destination.storage(), location.storage()
    old.open()
    of = old.begin(segment(at(1, 4)), schemas("t"))
    kill_connections(location)
    new.open()
    assert new.append(of.id, ddl(at(1, 60)))
    new.close()
    destination.has_it = False
    for _ in range(2):
        with pytest.raises(
            TableMetaStoreError, match="cannot be written by this server"
        ):
            old.append(of.id, ddl(at(1, 50)))
        old.close()
        with pytest.raises(
            TableMetaStoreError, match="cannot be written by this server"
        ):
            old.open()
    new.open()  # no connection keeps the lock
    found = [one.position.position for one in new.records(of.id)]
    assert found == [60]
    new.close()
    destination.has_it = True
    assert old.append(of.id, ddl(at(1, 70)))
    old.close()


def test_one_that_is_silent_keeps_nobody_out(location: MysqlLocation) -> None:
    """A paused server loses the lock, which is reported when it resumes."""
    old = Destination(location, silent_s=1).storage()
    old.open()
    of = old.begin(segment(at(1, 4)), schemas("t"))
    new = location.storage()

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
    """A server that dies during a write has all of it or nothing."""
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
                assert "canal.instance.tsdb.url is running" in str(error)  # noqa: PT017
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
        self, location: MysqlLocation, storage: MysqlHistoryStorage, *, after: bool
    ) -> None:
        self._location = location
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
            kill_connections(self._location)
        found = self._query(sql, parameters)
        if now and self._after:
            kill_connections(self._location)
            return self._query("SELECT 'the answer never comes'")
        return found


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_cut_anywhere(
    location: MysqlLocation, history: MysqlHistoryStorage, after: bool
) -> None:
    """Wherever the connection breaks in a write, it is done once and as a whole."""
    cut = Cut(location, history, after=after)
    writes: list[Callable[[int, int], object]] = [
        lambda of, n: history.append(of, ddl(at(1, n)), last=at(1, n)),
        lambda of, n: history.write_snapshot(of, at(1, n), schemas("t", "u")),
        lambda _, n: history.begin(segment(at(2, n)), schemas("t")),
        lambda of, n: history.append_all(of, [ddl(at(3, n))], first=at(0, 9_999 - n)),
        lambda of, n: history.identify(of, f"server {n}", SourceTraits(version=n)),
        lambda of, n: history.expire(n),
    ]
    of = history.begin(segment(at(1, 4)), schemas("t")).id
    for one_write in writes:
        cut.at(-1)
        assert one_write(of, 90) is not False
        count = len(cut.statements)
        assert count > 3
        for number in range(count):
            cut.at(number)
            assert one_write(of, 100 + number) is not False
        cut.at(-1)
    segments = history.segments()
    found = [one.position.order() for one in history.records(of)]
    assert found == sorted(set(found))
    appended = [offset for file, offset in found if file == 1]
    assert appended == [90, *range(100, 100 + len(appended) - 1)]
    started = [one.first.position for one in segments if one.first.order()[0] == 2]
    assert started == [90, *range(100, 100 + len(started) - 1)]
    assert min(len(appended), len(started)) > 5
    (named,) = [one for one in segments if one.id == of]
    assert named.source == f"server {named.traits.version}"
