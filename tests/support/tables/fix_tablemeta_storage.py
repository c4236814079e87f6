"""Storages of table histories, and what tests put there."""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from fix_source_access import access_of
from history_writer import url_of

from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import (
    BinlogSegment,
    DdlRecord,
    SourceTraits,
    StoredSchema,
)
from canal_server.tablemeta.storage.mysql_storage import MysqlHistoryStorage
from canal_server.tablemeta.storage.sqlite_storage import (
    FILE_NAME,
    SqliteHistoryStorage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from servers import Server

    from canal_server.mysql.source_settings import Access
    from canal_server.tablemeta.storage.history_storage import HistoryStorage

T0_MS = 1_700_000_000_000  # when the binlogs of these tests begin
# A snapshot as the original wrote it, but for the names.
JAVAS = json.dumps(
    {
        "`Od-d`": "CREATE TABLE `t;``q` (\n\t`select` int(11) DEFAULT NULL\n)"
        " ENGINE = `InnoDB` DEFAULT CHARSET = `latin1`; \n",
        "`shop`": "CREATE TABLE `b` (\n\t`a` enum('x', 'y; \n') DEFAULT NULL,\n\t"
        "KEY `a` (`a`)\n) ENGINE = `InnoDB`; \nCREATE TABLE `order` (\n\t`id` int(11)"
        " NOT NULL,\n\t`note` varchar(20) DEFAULT NULL COMMENT 'it''s; \n a \"x\" `y`'"
        ",\n\tPRIMARY KEY (`id`)\n) ENGINE = `InnoDB`; \n",
        "`leer`": "",
    }
)

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def at(file: int, offset: int, **fields: object) -> EntryPosition:
    """Return a position; its time follows from it unless it is given."""
    fields = {
        "timestamp": T0_MS + file * 1_000_000 + offset * 10,
        "server_id": 17,
        **fields,
    }
    return EntryPosition(f"mysql-bin.{file:06}", offset, **fields)  # type: ignore[arg-type]


def ddl(position: EntryPosition, text: str = "", **fields: object) -> DdlRecord:
    """Return a statement, by default one that only its position has."""
    text = text or f"ALTER TABLE t ADD c{position.position} INT"
    return DdlRecord(
        position,
        "db",
        text,
        Context(schema="db", sql_mode=4, charset_client="utf8mb4"),
        event_type="ALTER",
        sql_schema="db",
        sql_table="t",
        **fields,  # type: ignore[arg-type]
    )


def segment(
    first: EntryPosition, last: EntryPosition | None = None, source: str = UUID
) -> BinlogSegment:
    """Return a stretch that no storage has numbered yet."""
    traits = SourceTraits(version=80401, lower_case_table_names=1)
    return BinlogSegment(0, source, traits, first, last or first, created_ms=T0_MS)


def schemas(*tables: str, name: str = "db") -> tuple[StoredSchema, ...]:
    """Return one schema with these tables."""
    return (
        StoredSchema(
            name,
            "utf8mb4_bin",
            tuple((table, f"CREATE TABLE `{table}` (a INT)") for table in tables),
        ),
    )


class HistoryLocation:
    """Where storages of one kind keep their histories, each by its destination."""

    def __init__(
        self, make: Callable[[str, bool], HistoryStorage], target: str
    ) -> None:
        self._make = make
        self._open = ExitStack()
        self.target = target  # of "example", for programs

    def storage(
        self, destination: str = "example", *, read_only: bool = False
    ) -> HistoryStorage:
        """Return a storage that is not open; it is closed at the end of the test."""
        storage = self._make(destination, read_only)
        self._open.callback(storage.close)
        return storage

    def open(
        self, destination: str = "example", *, read_only: bool = False
    ) -> HistoryStorage:
        """Return an open storage; it is closed at the end of the test."""
        storage = self.storage(destination, read_only=read_only)
        storage.open()
        return storage

    def close(self) -> None:
        """Close what was opened."""
        self._open.close()


PASSWORD = "the history's secret"


@contextmanager
def mysql_database(server: Server) -> Iterator[tuple[Access, str]]:
    """Give a fresh database on a server, and how its own account gets there."""
    name = f"history_{uuid.uuid4().hex[:12]}"
    secret = PASSWORD.replace("'", "''")
    server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE USER {name} IDENTIFIED BY '{secret}'",
        f"GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON {name}.* TO {name}",
    )
    try:
        yield access_of(server, user=name, password=PASSWORD), name
    finally:
        server.execute(f"DROP DATABASE {name}", f"DROP USER {name}")


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def history_location(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[HistoryLocation]:
    """Give a fresh location of each kind."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            location = HistoryLocation(
                lambda destination, read_only: SqliteHistoryStorage(
                    tmp_path / destination / FILE_NAME, read_only=read_only
                ),
                str(tmp_path / "example" / FILE_NAME),
            )
        else:
            server: Server = request.getfixturevalue(f"{request.param}_server")
            access, name = stack.enter_context(mysql_database(server))
            location = HistoryLocation(
                lambda destination, read_only: MysqlHistoryStorage(
                    access, name, destination, read_only=read_only
                ),
                url_of(access, name),
            )
        stack.callback(location.close)
        yield location


@pytest.fixture
def history(history_location: HistoryLocation) -> HistoryStorage:
    """Give an open storage without content."""
    return history_location.open()
