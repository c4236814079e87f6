"""The columns that the pump gets, and when the server is asked, on real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_source_access import access_of

from canal_server.config.schema import InstanceConfig
from canal_server.errors import ConnectionLost
from canal_server.model.positions import EntryPosition
from canal_server.mysql.binlogs import binary_logs
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.binlog_scan import Scanner
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.read.start_position import StartPosition
from canal_server.source.schema import history_schemas
from canal_server.source.schema.history_schemas import HistorySchemas
from canal_server.tablemeta.history.tsdb import TableMetaTsdb
from canal_server.tablemeta.storage.sqlite_storage import (
    FILE_NAME,
    SqliteHistoryStorage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from servers import Server

CONFIG = InstanceConfig(destination="history")


class Session:
    """Schemas of a session that starts at the current end of the binlog."""

    def __init__(self, server: Server, schema: str, folder: Path) -> None:
        self.server = server
        self.schema = schema
        self.tsdb = TableMetaTsdb(SqliteHistoryStorage(folder / FILE_NAME))
        self.tsdb.init(CONFIG.destination)
        access = access_of(server)
        self.control = ControlConnection(access)
        self.control.open()
        self.scanner = DdlScanner(CONFIG, access, Stop())
        self.stop = Stop()
        self.images = HistorySchemas(
            self.tsdb,
            self.control,
            read_server_info(self.control),
            destination=CONFIG.destination,
            scanner=self.scanner,
            stop=self.stop,
        )
        self.read_to = self.here()
        self.images.begin(
            StartPosition(
                self.read_to.journal_name or "", self.read_to.position or 4, None
            ),
            None,
            SourceFiles(tuple(binary_logs(self.control))),
            Scanner(CONFIG, access, Stop()),
        )

    def here(self) -> EntryPosition:
        """Return the end of the binlog."""
        return EntryPosition(*self.server.binlog_position())

    def run(self, *statements: str, logged: bool = True) -> None:
        """Run statements in the schema, with or without the binlog."""
        self.server.execute(
            f"USE {self.schema}", f"SET sql_log_bin = {int(logged)}", *statements
        )

    def read(self) -> None:
        """Apply what the binlog has since."""
        end = self.here()
        for event in self.scanner.between(self.read_to, end):
            self.images.apply(event)
        self.read_to = end

    def find(self, table: str = "t") -> Sequence[str]:
        """Return a table's column names, as rows at this position have them."""
        found = self.images.find(self.schema, table, self.read_to)
        return [] if found is None else [column.name for column in found.columns]

    def refresh(self, table: str = "t") -> Sequence[str]:
        """Refresh a table, as when the binlog contradicts the known columns."""
        found = self.images.refresh(self.schema, table, self.read_to)
        return [] if found is None else [column.name for column in found.columns]

    def is_uncertain(self, table: str = "t") -> bool:
        """Return whether the table is in doubt."""
        return self.tsdb.is_uncertain(self.schema, table)


@pytest.fixture
def session(source_server: Server, database: str, tmp_path: Path) -> Iterator[Session]:
    """Yield a session with a table in doubt: it was created without the binlog."""
    made = Session(source_server, database, tmp_path)
    made.run("CREATE TABLE t (a INT)", logged=False)
    made.run("ALTER TABLE t ADD b INT")
    made.read()
    assert made.is_uncertain()
    yield made
    made.tsdb.close()
    made.control.close()


def test_a_doubt_is_settled(session: Session) -> None:
    """A table without later changes is as it is now, and is followed from there."""
    assert session.find() == ["a", "b"]
    assert not session.is_uncertain()
    session.run("ALTER TABLE t ADD c INT")
    assert session.find() == ["a", "b"]
    session.read()
    assert session.find() == ["a", "b", "c"]
    assert not session.is_uncertain()


def test_a_stop_comes_before_the_next_statement(session: Session) -> None:
    """A statement that is left when a stop is requested is applied by the next one."""
    assert session.find() == ["a", "b"]
    session.run("ALTER TABLE t ADD c INT")
    session.stop.request()
    with pytest.raises(ConnectionLost, match="stopped before the statement"):
        session.read()
    assert session.find() == ["a", "b"]


def test_a_doubt_stays(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """A table altered after the position may have been different; that is logged."""
    session.run("ALTER TABLE t RENAME COLUMN a TO z")
    for _ in range(2):
        assert session.find() == []
    assert caplog.text.count(f"table {session.schema}.t at this position are not") == 1
    assert session.refresh() == ["z", "b"]
    assert session.find() == []
    session.read()
    assert session.find() == ["z", "b"]
    assert not session.is_uncertain()


def test_other_tables_leave_no_doubt(session: Session) -> None:
    """Statements on other tables between the position and now do not count."""
    session.run("CREATE TABLE other (x INT)", "DROP TABLE other")
    assert session.find() == ["a", "b"]
    assert not session.is_uncertain()


def test_far_from_the_end(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the end is far, the rest is not read for the sake of one table."""
    monkeypatch.setattr(history_schemas, "LOOK_BYTES_MAX", -1)
    assert session.find() == []
    assert session.is_uncertain()
    assert session.refresh() == ["a", "b"]
    assert session.is_uncertain()


def test_a_table_that_nobody_knew(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """It is unknown until the server is asked; then the history has it.

    So is one that the account could not see when the history started.
    """
    session.run("CREATE TABLE quiet (a INT)", logged=False)
    assert session.find("quiet") == []
    caplog.clear()
    assert session.refresh("quiet") == ["a"]
    # Nothing was known that could be contradicted.
    assert not [each for each in caplog.messages if "contradicts" in each]
    (message,) = [each for each in caplog.messages if "was not in the history" in each]
    assert f"table {session.schema}.quiet" in message
    assert "the account had no SELECT on it" in message
    assert session.find("quiet") == ["a"]
    assert session.refresh("none") == []


def test_a_table_that_was_altered_without_the_binlog(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """What the binlog contradicts is corrected, stored, and logged with position."""
    assert session.find() == ["a", "b"]
    session.run("ALTER TABLE t ADD secret INT", logged=False)
    caplog.clear()
    assert session.refresh() == ["a", "b", "secret"]
    assert session.find() == ["a", "b", "secret"]
    (message,) = [each for each in caplog.messages if "contradicts the history" in each]
    assert f"binlog at {session.read_to} " in message
    assert f"of table {session.schema}.t:" in message


def test_a_connection_that_was_lost(session: Session) -> None:
    """The server is asked over a new connection when it has closed the old one."""
    session.server.execute(f"KILL {session.control.connection_id}")
    assert session.find() == ["a", "b"]
