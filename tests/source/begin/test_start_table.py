"""Where reading starts on real servers: a row for each branch of the decision.

The binlog of each server has three files, and a first one that was purged. Each holds
three transactions of one row; times are those of the sessions that wrote them. The
last row of a file is written in a transaction of two statements.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from fix_pump import DESTINATION, Pumped
from fix_source_access import access_of
from fix_store import eventually
from servers import PrivateServer, Unavailable

from canal_server.config.schema import HostConfig
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NEW_YEAR = 1_000_000_000  # s; long ago, so that fallback intervals are after it
STEP_S = 1000  # between two transactions
FILES, ROWS = 4, 3  # the first file is purged
LAST = FILES * ROWS - 1  # the last row that exists at first
KINDS = {
    "mysql": ("mysql", ()),
    "mysql-without-gtids": (
        "mysql",
        ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"),
    ),
    "mysql-compressed": ("mysql", ("--binlog-transaction-compression=ON",)),
    "mariadb": ("mariadb", ()),
}


@dataclass
class Written:
    """A server and what its binlog holds, by the number of the transaction."""

    server: PrivateServer
    kind: str
    files: list[str] = field(default_factory=list)
    # Before each transaction, and after the last one: file, offset, executed set.
    positions: list[tuple[str, int, str]] = field(default_factory=list)
    next_row: int = 100

    @property
    def has_gtids(self) -> bool:
        """Whether transactions have GTIDs."""
        return self.kind != "mysql-without-gtids"

    def write(self) -> None:
        """Write all transactions, with their files."""
        is_mariadb = self.server.flavour == "mariadb"
        variable = "gtid_binlog_pos" if is_mariadb else "gtid_executed"
        end = "MASTER STATUS" if is_mariadb else "BINARY LOG STATUS"
        with self.server.connect() as connection, connection.cursor() as cursor:

            def ask(*statements: str) -> Any:
                for statement in statements:
                    cursor.execute(statement)
                return cursor.fetchone()

            def record_position() -> None:
                file, offset = ask(f"SHOW {end}")[:2]
                (gtids,) = ask(f"SELECT @@global.{variable}")
                self.positions.append((file, offset, gtids.replace("\n", "")))

            for number in range(FILES * ROWS):
                if number % ROWS == 0:
                    before = f"SET timestamp = {time_of(number) - STEP_S // 2}"
                    ask(before, "FLUSH BINARY LOGS")
                    self.files.append(ask(f"SHOW {end}")[0])
                record_position()
                ask(f"SET timestamp = {time_of(number)}", *statements_of(number))
            record_position()
        # MariaDB keeps a file until its engines no longer need it.
        eventually(self._is_purged)

    def _is_purged(self) -> bool:
        purge = f"PURGE BINARY LOGS TO '{self.files[1]}'"
        ((oldest, *_), *_) = self.server.execute(purge, "SHOW BINARY LOGS")
        return bool(oldest == self.files[1])

    def events(self, number: int) -> list[tuple[str, int]]:
        """Return the types and offsets of a transaction's events."""
        file, first, _ = self.positions[number]
        last = self.positions[number + 1][1]
        if self.positions[number + 1][0] != file:
            last = 1 << 40
        rows = self.server.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {first}")
        return [(str(row[2]).lower(), int(row[1])) for row in rows if row[1] < last]


def statements_of(number: int) -> tuple[str, ...]:
    """Return the events of one transaction."""
    insert = f"INSERT INTO d.t VALUES ({number}, 0)"
    if (number + 1) % ROWS:
        return (insert,)
    return "BEGIN", insert, f"UPDATE d.t SET b = 1 WHERE a = {number}", "COMMIT"


def time_of(number: int) -> int:
    """Return the time at which a transaction was written, s."""
    return NEW_YEAR + number * STEP_S


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind, marks=getattr(pytest.mark, KINDS[kind][0])) for kind in KINDS
    ],
)
def written(request: pytest.FixtureRequest) -> Iterator[Written]:
    """Yield each kind of server with the binlog of the rows."""
    flavour, options = KINDS[request.param]
    try:
        server = PrivateServer(flavour, options).start()
    except Unavailable as error:
        pytest.skip(f"no {flavour} of our own: {error}")
    try:
        server.execute(
            "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY, b INT)"
        )
        made = Written(server, request.param)
        made.write()
        yield made
    finally:
        server.stop()


@dataclass(frozen=True)
class Case:
    """A row of the table.

    `stored` and `settings` are built from what was written; `first` is the number of
    the first row delivered, None for one written while it reads; `why` is in the log
    line, which says that it starts at `at`.
    """

    name: str
    why: str
    first: int | None
    stored: Callable[[Written], dict[str, Any]] | None = None
    settings: Callable[[Written], dict[str, Any]] = lambda _: {}
    gtid_on: bool | None = None  # None: both ways
    at: Callable[[Written], str] | None = None


def configured(**host: Any) -> Callable[[Written], dict[str, Any]]:
    """Return settings of the master; functions are called with what was written."""
    return lambda w: {
        "master": HostConfig(
            **{
                name: value(w) if callable(value) else value
                for name, value in host.items()
            }
        )
    }


def end_event(number: int, **changes: Any) -> Callable[[Written], dict[str, Any]]:
    """Return the stored position of a transaction's end, like an acked cursor."""

    def position(w: Written) -> dict[str, Any]:
        names = ("xid", "query", "transaction_payload")
        offset = [at for kind, at in w.events(number) if kind in names][-1]
        return {
            "journal_name": w.positions[number][0],
            "position": offset,
            "timestamp": time_of(number) * 1000,
            "server_id": w.server.port,
        } | changes

    return position


def inside(number: int) -> Callable[[Written], int]:
    """Return the offset of a transaction's last row event, or of its table map."""

    def offset(w: Written) -> int:
        found = [at for kind, at in w.events(number) if "rows" in kind]
        return found[-1] if found else w.positions[number][1]

    return offset


def in_file(number: int) -> Callable[[Written], str]:
    """Return the file of a transaction."""
    return lambda w: w.positions[number][0]


def before(number: int) -> Callable[[Written], int]:
    """Return the offset at which a transaction begins."""
    return lambda w: w.positions[number][1]


def position_before(number: int) -> Callable[[Written], str]:
    """Return the position at which a transaction begins, as in the log."""
    return lambda w: "{}:{}".format(*w.positions[number][:2])


END_OF_4 = end_event(4)
END_OF_4_BY_77 = end_event(4, server_id=77)
AT_ENDS = (END_OF_4, END_OF_4_BY_77)
ELSEWHERE = LogIdentity("elsewhere.invalid", 3306)
BY_TIME = "less 60 s, by reading"
CASES = (
    Case("nothing", "nothing stored, nothing configured: the current end", None),
    Case(
        "file-and-offset",
        "configured file and position",
        7,
        settings=configured(journal_name=in_file(7), position=before(7)),
        at=position_before(7),
    ),
    Case(
        "file-and-offset-inside",
        "inside a transaction, moved back to its start",
        8,
        settings=configured(journal_name=in_file(8), position=inside(8)),
        at=position_before(8),
    ),
    Case(
        "file",
        "configured file, from its first event",
        6,
        settings=configured(journal_name=in_file(6)),
    ),
    Case(
        "oldest",
        "configured: the oldest file",
        3,
        settings=configured(journal_name="oldest"),
    ),
    Case(
        "file-and-time",
        "configured file .* and time .*, by reading",
        7,
        settings=configured(
            journal_name=in_file(6), timestamp_ms=time_of(7) * 1000 - 1
        ),
        at=position_before(7),
    ),
    Case(
        "file-and-early-time",
        "configured file .* and time .*, by all of it is newer",
        6,
        settings=configured(journal_name=in_file(6), timestamp_ms=1000),
    ),
    Case(
        "time",
        "configured time .*, by reading",
        4,
        settings=configured(timestamp_ms=(time_of(4) - 1) * 1000),
        at=position_before(4),
    ),
    Case(
        "time-between-files",
        "configured time .*, by reading",
        6,
        settings=configured(timestamp_ms=time_of(6) * 1000),
    ),
    Case(
        "time-to-come",
        "configured time",
        None,
        settings=configured(timestamp_ms=4_000_000_000_000),
    ),
    Case(
        "gtids",
        "configured GTID set",
        5,
        settings=configured(gtid=lambda w: w.positions[5][2]),
        gtid_on=True,
    ),
    Case("stored", "stored position", 5, END_OF_4, gtid_on=False),
    Case(
        "stored-before-gtid-mode",
        "stored position .*, by",
        5,
        END_OF_4,
        gtid_on=True,
    ),
    Case(
        "stored-of-a-source-in-front",
        "stored position",
        5,
        END_OF_4_BY_77,
        gtid_on=False,
    ),
    Case(
        "stored-gtids",
        "stored GTID set",
        8,
        lambda w: {
            "journal_name": "old.000001",
            "position": 4,
            "gtid": w.positions[8][2],
        },
        gtid_on=True,
    ),
    Case(
        "stored-time",
        f"stored position .* without a file: its time .* {BY_TIME}",
        7,
        lambda _: {"timestamp": (time_of(7) + 59) * 1000},
    ),
    Case(
        "another-address",
        f"of another server: its time .* {BY_TIME}",
        7,
        lambda _: {
            "journal_name": "binlog.000003",
            "position": 500,
            "timestamp": (time_of(7) + 59) * 1000,
            "identity": ELSEWHERE,
        },
    ),
    Case(
        "another-server-behind-the-address",
        f"of server id 77, now it is .* {BY_TIME}",
        4,
        end_event(7, timestamp=(time_of(4) + 59) * 1000, server_id=77),
    ),
    Case(
        "another-servers-file",
        f"of server id 77, now it is .* {BY_TIME}",
        4,
        end_event(
            7, timestamp=(time_of(4) + 59) * 1000, server_id=77, journal_name="x.1"
        ),
    ),
    Case(
        "amid-an-event",
        f"of server id 77, now it is .* {BY_TIME}",
        4,
        end_event(7, timestamp=(time_of(4) + 59) * 1000, server_id=77, position=131),
    ),
    Case(
        "purged",
        "reported 3 times .* the current end",
        None,
        lambda w: {
            "journal_name": w.files[0],
            "position": 4,
            "timestamp": time_of(0) * 1000,
            "server_id": w.server.port,
        },
        lambda _: {"auto_reset_latest": True},
    ),
    Case(
        "purged-gtids",
        "reported 3 times .* the current end",
        None,
        lambda w: {"gtid": w.positions[1][2]},
        lambda _: {"auto_reset_latest": True},
        gtid_on=True,
    ),
    Case(
        "reset",
        "reported 3 times .* the current end",
        None,
        end_event(7, timestamp=5000),
        lambda _: {"auto_reset_latest": True},
    ),
)
BOTH = [
    pytest.param(case, gtid_on, id=f"{case.name}-{'gtid' if gtid_on else 'file'}")
    for case in CASES
    for gtid_on in (False, True)
    if case.gtid_on in (None, gtid_on)
]


@pytest.mark.parametrize(("case", "gtid_on"), BOTH)
def test_position(
    written: Written, case: Case, *, gtid_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It starts where the table says, logs the reason, and delivers what follows."""
    if gtid_on and not written.has_gtids:
        pytest.skip("this server has no GTIDs")
    if case.name.endswith("inside") and written.kind == "mysql-compressed":
        pytest.skip("no offset is inside an event")
    caplog.set_level(logging.INFO, "canal_server")
    found = Pumped(
        access_of(written.server), "d", gtid_on=gtid_on, **case.settings(written)
    )
    if case.stored is not None:
        fields = {"journal_name": None, "position": None} | case.stored(written)
        identity = fields.pop("identity", found.pump.identity)
        stored = LogPosition(identity, EntryPosition(**fields))
        found.positions.persist(DESTINATION, stored)
    found.pump.start()
    try:
        eventually(lambda: found.pump.status.state.value == "running")
        eventually(lambda: re.search(case.why, begins(caplog)[-1]))
        eventually(found.is_idle.is_set)
        row = case.first
        if row is None:
            row = written.next_row = written.next_row + 1
            written.server.execute(
                f"SET timestamp = {time_of(LAST + 1)}",
                f"INSERT INTO d.t VALUES ({row}, 0)",
            )
        eventually(lambda: found.values)
    finally:
        found.stop()
    line = begins(caplog)[-1]
    assert re.search(case.why, line)
    assert case.at is None or f" starts at {case.at(written)}: " in line
    assert found.values[0] == str(row - of_one_event(written, case))


def of_one_event(written: Written, case: Case) -> int:
    """Return 1 where a stored end is that of an event with the whole transaction."""
    return written.kind == "mysql-compressed" and case.stored in AT_ENDS


def begins(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines about the start of sessions."""
    messages = (record.getMessage() for record in caplog.records)
    return [line for line in messages if " starts at " in line] or [""]
