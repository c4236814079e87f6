"""Statements of a GTID set after the first transaction it lacks, on real servers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from fix_servers import FLAVOURS
from fix_source_access import access_of

from canal_server.config.schema import InstanceConfig
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.model.positions import EntryPosition
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_scan import Scanner
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.schema.skipped_statements import SkipFinder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from servers import PrivateServer

CONFIG = InstanceConfig(destination="skipped")


@dataclass
class Source:
    """A private server, with transactions of its own and of others."""

    server: PrivateServer

    def __post_init__(self) -> None:
        self.is_mysql = self.server.flavour == "mysql"
        self.other = str(uuid.uuid4())  # a server, or with MariaDB a domain
        self.server.execute("CREATE DATABASE db", "CREATE TABLE db.t (a INT, b INT)")

    def run(self, statement: str, other: int = 0) -> None:
        """Run a statement, as this server or as another one, with that number."""
        if not other:
            self.server.execute(statement)
        elif self.is_mysql:
            gtid = self.parse(f"{self.other}:{other}")
            self.server.execute(f"SET gtid_next = '{gtid}'", statement)
        else:
            self.server.execute(
                "SET gtid_domain_id = 7", f"SET gtid_seq_no = {other}", statement
            )

    def parse(self, text: str) -> Any:
        """Return a set of the server's kind."""
        return (GtidSet if self.is_mysql else MariaGtidSet).parse(text)

    def executed(self) -> Any:
        """Return the executed set."""
        variable = "gtid_executed" if self.is_mysql else "gtid_binlog_pos"
        text = str(self.server.execute(f"SELECT @@global.{variable}")[0][0])
        return self.parse("".join(text.split()))

    def others(self, number: int) -> Any:
        """Return the set with transactions of the other one, up to a number."""
        if self.is_mysql:
            return self.parse(f"{self.other}:1-{number}")
        return self.parse(f"7-{self.server.port}-{number}")

    def here(self) -> EntryPosition:
        """Return the end of the binlog."""
        return EntryPosition(*self.server.binlog_position())

    def asking(
        self, expected: Any, at: EntryPosition, known: Iterable[EntryPosition] = ()
    ) -> str:
        """Return the set to request, as text."""
        access = access_of(self.server)
        with ControlConnection(access) as control:
            finder = SkipFinder(
                control,
                read_server_info(control),
                DdlScanner(CONFIG, access, Stop()),
                Scanner(CONFIG, access, Stop()),
            )
            return str(finder.asking_again(expected, at, known))


@pytest.fixture(params=FLAVOURS)
def source(
    request: pytest.FixtureRequest, own_server: Callable[[str], PrivateServer]
) -> Source:
    """Yield a MySQL, then a MariaDB."""
    return Source(own_server(request.param))


@pytest.fixture
def mysql_source(own_server: Callable[[str], PrivateServer]) -> Source:
    """Yield a MySQL; a MariaDB refuses sets that it has not executed."""
    return Source(own_server("mysql"))


def test_nothing_follows(source: Source) -> None:
    """A set that was executed at the start position is requested unchanged."""
    expected, at = source.executed(), source.here()
    source.run("ALTER TABLE db.t ADD c INT")
    assert source.asking(expected, at) == str(expected)


def test_a_later_statement(source: Source) -> None:
    """MySQL sends only schema changes again; MariaDB sends their domain."""
    source.run("INSERT INTO db.t VALUES (1, 1)", other=1)
    begin, at = source.executed(), source.here()
    source.run("INSERT INTO db.t VALUES (2, 2)")
    source.run("ALTER TABLE db.t ADD c INT", other=2)
    source.run("INSERT INTO db.t VALUES (3, 3, 3)", other=3)
    source.run("ALTER TABLE db.t ADD d INT", other=4)  # in no set
    found = source.asking(begin.union(source.others(3)), at)
    if source.is_mysql:
        assert found == str(begin.union(source.parse(f"{source.other}:1:3")))
    else:
        assert found == str(begin)


def test_a_domain_that_begins_after(source: Source) -> None:
    """From a server that had executed nothing there, everything is sent again."""
    begin, at = source.executed(), source.here()
    source.run("INSERT INTO db.t VALUES (2, 2)")
    source.run("ALTER TABLE db.t ADD c INT", other=1)
    assert source.asking(begin.union(source.others(1)), at) == str(begin)


def test_later_rows(source: Source) -> None:
    """Rows of the set are not sent again, wherever they lie."""
    begin, at = source.executed(), source.here()
    source.run("INSERT INTO db.t VALUES (1, 1)")
    source.run("INSERT INTO db.t VALUES (2, 2)", other=1)
    expected = begin.union(source.others(1))
    assert source.asking(expected, at) == str(expected)


def test_a_missing_statement(mysql_source: Source) -> None:
    """What this server has not executed is requested if it is a known statement.

    It may arrive later, or never: then its tables are without it.
    """
    source = mysql_source
    begin, at = source.executed(), source.here()
    expected = begin.union(source.others(3))
    known = EntryPosition("elsewhere.000001", 4, gtid=f"{source.other}:2")
    strange = EntryPosition("elsewhere.000001", 8, gtid="what somebody else wrote")
    found = source.asking(expected, at, [known, strange])
    assert found == str(begin.union(source.parse(f"{source.other}:1:3")))
