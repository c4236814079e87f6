"""The table history compared with real servers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fix_source_access import access_of

from canal_server.config.schema import InstanceConfig
from canal_server.errors import TableMetaError
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.source_settings import Credentials
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.schema.base_dump import BaseDumper
from canal_server.source.schema.schema_check import HistoryEnd, verify
from canal_server.source.schema.source_traits import source_of, traits_of
from canal_server.tablemeta.history.ddl_records import position_after
from canal_server.tablemeta.history.replay import Replay
from canal_server.tablemeta.storage.history_storage import BinlogSegment, SourceTraits

if TYPE_CHECKING:
    from servers import Server

    from canal_server.model.positions import EntryPosition
    from canal_server.source.schema.schema_check import Verified

CONFIG = InstanceConfig(destination="verify")


class Known:
    """The history of one schema of a server, as of when it was read."""

    def __init__(self, server: Server, schema: str) -> None:
        self.access = access_of(server)
        self.schema = schema
        with ControlConnection(self.access) as control:
            info = read_server_info(control)
            scanner = DdlScanner(CONFIG, self.access, Stop())
            dump = BaseDumper(control, info, scanner).take()
            traits = traits_of(control, info)
            self.segment = BinlogSegment(
                1, source_of(info), traits, dump.position, dump.position
            )
        self.replay = Replay(traits, dump.schemas)

    def verify(
        self, segment: BinlogSegment | None = None, event: EntryPosition | None = None
    ) -> Verified:
        """Compare with the server as it is now, this schema only."""
        segment = segment or self.segment
        return verify(
            CONFIG,
            self.access,
            HistoryEnd(segment, self.replay.model.freeze(), event or segment.last),
            lambda names: sorted(name for name in names if name[0] == self.schema),
        )

    def found(self) -> dict[str, list[str]]:
        """Return the differences, by table."""
        return {
            each.name[1]: [str(one) for one in each.found]
            for each in self.verify().differing
        }


@pytest.fixture
def known(source_server: Server, database: str) -> Known:
    """Yield the history of a schema with tables of many kinds."""
    source_server.execute(
        f"USE {database}",
        "CREATE TABLE plain (a INT PRIMARY KEY, b VARCHAR(9), UNIQUE (b))",
        "CREATE TABLE parent (a INT PRIMARY KEY)",
        "CREATE TABLE child (a INT, FOREIGN KEY (a) REFERENCES parent (a))",
        "CREATE VIEW seen AS SELECT a FROM plain",
    )
    return Known(source_server, database)


def test_nothing_differs(known: Known) -> None:
    """A history just read equals the server; views are not compared."""
    verified = known.verify()
    assert verified.differing == ()
    assert verified.compared == 3
    assert verified.unread == ()
    assert known.segment.last.order() <= verified.position.order()


def test_tables_that_the_account_may_not_see(
    source_server: Server, database: str, known: Known
) -> None:
    """A privilege on some tables only makes no differences for the others."""
    user = "'limited'@'%'"
    source_server.execute(
        f"CREATE USER {user} IDENTIFIED BY 'pass word'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
        f"GRANT SELECT ON {database}.plain TO {user}",
    )
    try:
        known.access = replace(
            known.access, credentials=Credentials("limited", "pass word")
        )
        verified = known.verify()
    finally:
        source_server.execute(f"DROP USER {user}")
    assert verified.differing == ()
    assert verified.compared == 1
    shown = [each.partition(": ")[0] for each in verified.unread]
    assert shown == [f"table {database}.child", f"table {database}.parent"]
    assert "GRANT SELECT" in verified.unread[0]


def test_later_statements_are_applied(
    source_server: Server, database: str, known: Known
) -> None:
    """DDL that the history does not know yet explains all its changes."""
    source_server.execute(
        f"USE {database}",
        "ALTER TABLE plain ADD c TEXT, MODIFY b CHAR(3), DROP PRIMARY KEY",
        "CREATE TABLE more LIKE child",
        "ALTER TABLE child ADD x INT, ADD y INT, ADD FOREIGN KEY (x) REFERENCES"
        " parent (a)",
        "RENAME TABLE plain TO renamed",
        "DROP TABLE child",
        f"ALTER DATABASE {database} CHARACTER SET latin1",
        "CREATE TABLE late (t VARCHAR(3))",
    )
    verified = known.verify()
    assert verified.differing == ()
    assert verified.compared == 4
    own = [each for each in verified.later if each.timestamp]
    assert len(own) >= 7


def test_what_was_not_logged_is_a_difference(
    source_server: Server, database: str, known: Known
) -> None:
    """Changes without binlog are found, from the history to the server."""
    source_server.execute(
        f"USE {database}",
        "SET sql_log_bin = 0",
        "ALTER TABLE plain ADD c DATE AFTER a, DROP KEY b",
        "DROP TABLE child",
        "CREATE TABLE secret (a DATE)",
        f"ALTER DATABASE {database} CHARACTER SET latin1",
    )
    assert known.found() == {
        "": ["~ default charset: utf8mb4 → latin1"],
        "plain": ["+ c date after a", "- unique key b (b)"],
        "child": ["- table " + database + ".child (1 column)"],
        "secret": ["+ table " + database + ".secret", "+ a date"],
    }


def test_doubt_is_reported(known: Known, database: str) -> None:
    """A table marked as uncertain in the history says so when it differs."""
    before = known.replay.model.find(database, "plain")
    assert before is not None
    known.replay.model.apply(None, database, "ALTER TABLE plain DROP b")
    known.replay.model.mark_uncertain(database, "plain")
    (differing,) = known.verify().differing
    assert differing.name == (database, "plain")
    assert differing.is_uncertain


def test_a_definition_that_nobody_can_read(known: Known, database: str) -> None:
    """A text that cannot be parsed is a difference, not an agreement."""
    known.replay.model.load(database, "CREATE TABLE gibberish", "plain")
    found = known.found()
    assert list(found) == ["plain"]
    assert "definition that cannot be parsed (history)" in found["plain"][0]


def test_right_after_a_statement(
    source_server: Server, database: str, known: Known
) -> None:
    """A history that ends with a statement is compared without applying it again."""
    source_server.execute(
        f"ALTER TABLE {database}.plain ADD c INT, RENAME COLUMN a TO d"
    )
    (position,) = known.verify().later[-1:]
    known.replay.model.apply(
        None, database, "ALTER TABLE plain ADD c INT, RENAME COLUMN a TO d"
    )
    segment = replace(known.segment, last=position_after(position))
    verified = known.verify(segment, position)
    assert (verified.differing, verified.later) == ((), ())
    source_server.execute(f"ALTER TABLE {database}.plain DROP c")
    verified = known.verify(segment, position)
    assert (verified.differing, len(verified.later)) == ((), 1)


def test_of_the_java_server(source_server: Server, database: str, known: Known) -> None:
    """A history that knows the server only by its number is compared, too."""
    with ControlConnection(known.access) as control:
        number = str(read_server_info(control).server_id)
    source_server.execute(f"CREATE TABLE {database}.late (t VARCHAR(3))")
    java = replace(known.segment, source=number, traits=SourceTraits())
    assert known.verify(java).differing == ()


@pytest.mark.parametrize("name", ["innodb_index_stats", "innodb_table_stats"])
def test_tables_that_no_dump_has(known: Known, database: str, name: str) -> None:
    """Tables that mysqldump leaves out are no difference when they are missing."""
    known.schema = "mysql"
    assert known.verify().differing == ()
    known.replay.model.apply(None, "mysql", f"DROP TABLE {name}")
    assert known.verify().differing == ()


def test_another_server(known: Known) -> None:
    """A history of another server is not compared, and the error says so."""
    with pytest.raises(TableMetaError, match="is of server someone, but"):
        known.verify(replace(known.segment, source="someone"))


def test_a_binlog_that_was_reset(known: Known) -> None:
    """A history whose end the binlog has not reached belongs to another binlog."""
    last = replace(known.segment.last, journal_name="binlog.999999")
    with pytest.raises(TableMetaError, match="the binlog was reset"):
        known.verify(replace(known.segment, last=last))
