"""Whatever a source sends, at any step: an error of ours with a text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from binlog_driver import small_log
from hostile_source import HostileSource

from canal_server.errors import CanalError, SourceError
from canal_server.mysql import (
    binlogs,
    collations,
    flavour,
    silent_foreign_keys,
    standby,
)
from canal_server.mysql.schema_dump import SchemaReader
from canal_server.mysql.server_columns import TableColumns
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_part import FilePosition, Part

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from canal_server.mysql.control_connection import ControlConnection


def read_all(access: Access) -> None:
    """Read the binlog of a source as far as possible."""
    part = Part(images=None, take=lambda _: True)
    part.read_server(access, FilePosition("bin.000001", 4), Stop())


def test_garbage_at_each_step(rng: random.Random) -> None:
    """Login, statements and a dump end in an error of ours, whatever is sent."""
    stream = small_log().as_stream()
    ended = []
    with HostileSource(stream) as source:
        access = Access(
            address=Address("127.0.0.1", source.port),
            credentials=Credentials("canal", "s3cret"),
            connect_timeout_s=10.0,
            io_timeout_s=10.0,
        )
        for case in source.cases(rng):
            try:
                read_all(access)
            except CanalError as error:
                ended.append(str(error))
            except Exception as error:
                raise AssertionError(f"{error!r} when {case}") from error
    assert len(ended) > 1000
    assert all(ended)
    assert "s3cret" not in "".join(ended)


# What a source may send instead of the expected answer.
ANSWERS: list[list[tuple[Any, ...]]] = [
    [],
    [()],
    [(None,)],
    [(None,) * 9],
    [("",)],
    [("x",) * 2],
    [("x",) * 9],
    [(b"\xff",) * 4],
    [(float("nan"),) * 5],
    [("-1",) * 2, ("-1",)],
    [("99999999999999999999", "99999999999999999999", 1e300, "", "uuid:1-")],
    [("version", "no version")],
    [("version", None), ("server_id", "many")],
    [("version", "9.9.9"), ("server_id", "many")],
    [("version", "9.9.9"), ("lower_case_table_names", "0x")],
    [("3e11fa47-71ca-11e1-9e33-c80aa9429562:5-1",)],
    [("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-99999999999999999999999",)],
    [("3e11fa47-71ca-11e1-9e33:1",)],
    [("0-1-2,0-1",)],
    [("bin.000001", "4", "", "", "damaged")],
    [("bin.000001", None, "", "", "")],
]
INFO = {
    False: flavour.server_info({"version": "9.7.0", "server_id": "1"}),
    True: flavour.server_info({"version": "10.11.2-MariaDB", "server_id": "1"}),
}


class Answering:
    """A connection on which every query has the same answer."""

    is_open, connection_id = True, 1

    def __init__(self, rows: list[tuple[Any, ...]], version: str) -> None:
        self.access = SimpleNamespace(address="db:3306")
        self.server_version = version
        self.is_mariadb = "maria" in version.lower()
        self.info = INFO[self.is_mariadb]
        self.rows = rows

    def open(self) -> None:
        """Be open."""

    def query(self, _sql: str, _parameters: object = ()) -> list[tuple[Any, ...]]:
        """Return the rows."""
        return self.rows

    def query_named(self, _sql: str) -> list[dict[str, object]]:
        """Return the rows with column names."""
        return [dict(zip("abcdefghi", row, strict=False)) for row in self.rows]


def questions(asked: Answering) -> list[Callable[[], object]]:
    """Return all queries of a source."""
    connection, info = cast("ControlConnection", asked), asked.info
    reader = SchemaReader(connection)
    return [
        lambda: binlogs.current_end(connection, info),
        lambda: binlogs.binary_logs(connection),
        lambda: binlogs.executed_gtids(connection, info),
        lambda: binlogs.purged_gtids(connection, info),
        lambda: binlogs.server_time_s(connection),
        lambda: flavour.read_server_info(connection),
        lambda: collations.collation_names(connection),
        lambda: silent_foreign_keys.hidden_foreign_keys(connection, ["s"]),
        lambda: standby.without_lost(connection, "0-1-5"),
        lambda: standby.replica_channels(connection, info),
        lambda: standby.missing_gtids(connection, info, ""),
        lambda: standby.examine(
            connection, standby.Requirements(gtid_on=True, gtids="0-1-5")
        ),
        lambda: TableColumns(connection).fetch_many([("s", "t"), ("x", "x")]),
        lambda: reader.show_create("s", "t"),
        lambda: reader.read_all(lambda _done, _of: None),
    ]


VERSIONS = (
    "9.7.0",
    "5.5.5-10.11.2-MariaDB",
    "",
    "Maria",
    "9" * 400 + ".1.1",
    "\u0663.1",
)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_that_make_no_sense(version: str) -> None:
    """A query with an unexpected answer fails as the source's error."""
    refused = []
    for rows in ANSWERS:
        for ask in questions(Answering(rows, version)):
            try:
                ask()
            except SourceError as error:
                refused.append(str(error))
    assert len(refused) > 50
    assert all(refused)


def test_a_damaged_set_of_gtids_is_named() -> None:
    """GTIDs sent by a source are checked where they are queried."""
    asked = Answering([("3e11fa47-71ca-11e1-9e33:1",)], "9.7.0")
    with pytest.raises(SourceError, match=r"db:3306: the server's answer about GTIDs"):
        binlogs.executed_gtids(cast("ControlConnection", asked), asked.info)
