"""Ranges during an outage: the error says so, and nothing is reported as lost."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from fake_mysql import account
from fix_ranged import rows_of
from fix_source_access import access_of
from fix_tablemeta_storage import PASSWORD, mysql_database

from canal_server.config.schema import (
    HostPort,
    InstanceConfig,
    MysqlDatabase,
    TableMetaConfig,
)
from canal_server.errors import ClientError, ConnectionLost, SourceError
from canal_server.model.ranges import Epoch, EpochPosition
from canal_server.mysql.binlogs import BinaryLog
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.server_errors import READING_BINLOG_FAILED, source_error
from canal_server.ranges.epochs import is_same
from canal_server.ranges.range_mapping import RangeMapper
from canal_server.runtime.lifecycle import Stop
from canal_server.source.begin.gtid_tracking import tracked
from canal_server.source.begin.search import BinlogSearch
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.binlog_scan import Scanner
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.read.gtid_sets import parse
from canal_server.source.read.start_position import StartPosition
from canal_server.source.schema.source_traits import source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fix_proxy import Proxy

CONFIG = InstanceConfig(destination="outage")
ADDRESS = "127.0.0.1:3306"
UNUSED: Any = None
NO_WORD = {
    "busy": source_error(1040, "Too many connections", address=ADDRESS),
    "ended": source_error(2013, "Lost connection", address=ADDRESS),
    "stops": source_error(1053, "Server shutdown in progress", address=ADDRESS),
    "locked": source_error(3118, "Account is locked", address=ADDRESS),
    "no file": source_error(
        READING_BINLOG_FAILED, "Could not open log file", address=ADDRESS
    ),
    "same id": source_error(
        READING_BINLOG_FAILED,
        "A replica with the same server_uuid/server_id has connected",
        address=ADDRESS,
    ),
}


class Silent(Scanner):
    """A scanner whose server reports something unrelated to the requested file."""

    def __init__(self, error: SourceError) -> None:
        self.error = error

    def _fail(self, *_args: object, **_named: object) -> Any:
        raise self.error

    first_event_ms = executed_at = event_at = _fail


# --- what is unavailable ----------------------------------------------------------


class Moved:
    """A history in a folder, which is moved away and back."""

    def __init__(self, folder: Any) -> None:
        self.settings = TableMetaConfig(dir=folder / "history")
        self.said = "there is no table history"

    @contextmanager
    def out(self) -> Iterator[None]:
        """Remove the folder."""
        there = self.settings.dir
        away = there.rename(there.with_name("away"))
        try:
            yield
        finally:
            away.rename(there)


class Killed:
    """A history on a server that stops, and restarts."""

    def __init__(self, proxy: Proxy, name: str, user: str) -> None:
        self.proxy = proxy
        self.settings = TableMetaConfig(
            database=MysqlDatabase(HostPort("127.0.0.1", proxy.port), name),
            user=user,
            password=PASSWORD,
        )
        self.said = f"the table history in {name} on 127.0.0.1:{proxy.port} cannot be"

    @contextmanager
    def out(self) -> Iterator[None]:
        """Stop the server."""
        with self.proxy.refuse():
            self.proxy.end_all()
            yield


@pytest.fixture(params=["folder", "server"])
def history(request, tmp_path, source_server, make_proxy) -> Iterator[Moved | Killed]:
    """Yield where a history is stored, and how to be without it."""
    if request.param == "folder":
        yield Moved(tmp_path)
        return
    with mysql_database(source_server) as (access, name):
        yield Killed(make_proxy(source_server), name, access.credentials.user)


@pytest.fixture
def table(source_server, database) -> str:
    """Yield the name of a table that has one column."""
    name = f"{database}.t"
    source_server.execute(f"CREATE TABLE {name} (a INT PRIMARY KEY)")
    return name


def refusal(call: Callable[[], object]) -> ClientError:
    """Return the refusal of a call."""
    with pytest.raises(ClientError) as refused:
        call()
    return refused.value


def requests(lake, start, end) -> list[Callable[[], object]]:
    """Return requests that cannot be answered from memory."""
    schema = lake.filter.partition("\\")[0]
    return [
        partial(lake.head, start),
        partial(lake.plan, start, end, 2),
        partial(lake.read, start, end, name=""),
        partial(lake.read, start, end),
        partial(lake.ranges.columns, schema, "t", start),
        partial(lake.ranges.columns, schema, "t", None),
    ]


def test_without_the_table_history(make_lake, source_server, table, history) -> None:
    """What needs it is refused with a retry code, and works when it is back."""
    lake = make_lake(source_server, tables=history.settings)
    start = lake.subscribe()
    source_server.execute(
        f"INSERT INTO {table} VALUES (1)",
        f"ALTER TABLE {table} ADD COLUMN b INT",
        f"INSERT INTO {table} VALUES (2, 20)",
    )
    end = lake.until(start, 3)
    whole = lake.read(start, end)
    lake = make_lake(source_server, memory=0, tables=history.settings)
    lake.subscribe()
    lake.wait_until_delivered(end)
    with history.out():
        for request in requests(lake, start, end):
            refused = refusal(request)
            assert (refused.code, history.said in str(refused)) == (503, True), refused
            assert str(refused).endswith("; try again")
    assert lake.head(start).end.order() > start.order()
    assert lake.read(start, end) == whole
    rows = [row for row in rows_of(whole) if row[0] == "t"]
    assert rows == [("t", "a", "1"), ("t", "a", "2", "b", "20")]
    schema = lake.filter.partition("\\")[0]
    assert len(lake.ranges.columns(schema, "t", start).columns) == 1


def test_a_source_that_lets_nobody_in(make_lake, source_server, table) -> None:
    """A temporarily locked account is no reason to report a loss."""
    name = "locked_out"
    with account(
        source_server, name, "IDENTIFIED BY 'x'", f"GRANT ALL ON *.* TO '{name}'@'%'"
    ):
        lake = make_lake(source_server, memory=0, user=name, password="x")
        start = lake.subscribe()
        source_server.execute(f"INSERT INTO {table} VALUES (1)")
        end = lake.until(start, 1)
        lake.wait_until_delivered(end)
        whole = lake.read(start, end)
        source_server.execute(f"ALTER USER '{name}'@'%' ACCOUNT LOCK")
        asked = requests(lake, start, end)
        asked.append(partial(lake.ranges.locate, "", "latest"))
        for request in asked:
            refused = refusal(request)
            said = re.search(r"the source cannot be read now: .* lock", str(refused))
            assert (refused.code, bool(said)) == (503, True), refused
        source_server.execute(f"ALTER USER '{name}'@'%' ACCOUNT UNLOCK")
        assert lake.read(start, end) == whole
        assert lake.subscribe().epoch == start.epoch


# --- errors that prove nothing ----------------------------------------------------


class Listing:
    """A connection to a source that lists these files."""

    def __init__(self, *names: str) -> None:
        self.rows = [(name, 900) for name in names]
        self.access = SimpleNamespace(address=ADDRESS, archive=None)

    def query(self, sql: str) -> list[tuple[str, int]]:
        """Return the files."""
        assert sql == "SHOW BINARY LOGS"
        return self.rows


@pytest.mark.parametrize("error", NO_WORD.values(), ids=NO_WORD)
def test_a_failed_look_is_no_other_binlog(error) -> None:
    """It starts no new epoch, in which all earlier positions would be invalid."""
    files = SourceFiles((BinaryLog("binlog.000001", 900),))
    epoch = Epoch(0, "uuid-1", "binlog.000001", 1_500_000_000)
    with pytest.raises(SourceError) as raised:
        is_same(epoch, files, Silent(error), cast("ControlConnection", Listing()))
    assert raised.value is error
    deleted = source_error(
        READING_BINLOG_FAILED,
        "Could not find first log file name in binary log index file",
        address=ADDRESS,
    )
    # The index names a file that does not exist; it was purged; or reset and rotated.
    for names, is_known in (
        (["binlog.000001"], False),
        (["binlog.000002"], True),
        (["binlog.000000"], False),
    ):
        control = cast("ControlConnection", Listing(*names))
        assert is_same(epoch, files, Silent(deleted), control) is is_known


@pytest.mark.parametrize("word", ["busy", "ended", "stops", "locked", "same id"])
def test_a_failed_query_proves_nothing_about_a_position(word) -> None:
    """Whether a set covers a position, and the executed set, is queried again."""
    search = BinlogSearch(Silent(NO_WORD[word]), mariadb=False, source="", index=None)
    with pytest.raises(SourceError) as raised:
        search.covers(UNUSED, "binlog.000001", 400)
    assert raised.value is NO_WORD[word]


def test_a_failed_query_leaves_no_position_without_its_set(source_server) -> None:
    """Without the set a cursor would mean nothing on another server."""
    search = BinlogSearch(Silent(NO_WORD["busy"]), mariadb=False, source="", index=None)
    with ControlConnection(access_of(source_server)) as control:
        info = read_server_info(control)
    with pytest.raises(SourceError) as raised:
        tracked(StartPosition("binlog.000001", 400, None), info, None, search)
    assert raised.value is NO_WORD["busy"]


@pytest.mark.parametrize("word", ["no file", "same id"])
def test_a_failed_look_is_no_set_that_is_refused(source_server, database, word) -> None:
    """A position on another server is searched again, not reported as lost."""
    assert database, "whose creation is the first transaction of a fresh server"
    error = NO_WORD[word]
    access = access_of(source_server)

    class Failing(DdlScanner):
        def first_position(self, position):
            raise error

    with ControlConnection(access) as control:
        info = read_server_info(control)
        executed = "gtid_binlog_pos" if info.is_mariadb else "gtid_executed"
        ((gtids,),) = source_server.execute(f"SELECT @@GLOBAL.{executed}")
        text = str(parse(gtids, info))
        epochs = (
            Epoch(0, "another", "binlog.000001", 0),
            Epoch(1, source_of(info), "binlog.000001", 0),
        )
        scanner = Scanner(CONFIG, access, Stop())
        mapper = RangeMapper(
            control,
            info,
            epochs,
            SourceFiles(()),
            BinlogSearch(scanner, mariadb=info.is_mariadb, source="", index=None),
            scanner,
            Failing(CONFIG, access, Stop()),
        )
        with pytest.raises(SourceError) as raised:
            mapper.start(EpochPosition(0, "binlog.000001", 4, gtids=text))
    assert raised.value is error
    assert isinstance(error, ConnectionLost) == (word == "same id")
