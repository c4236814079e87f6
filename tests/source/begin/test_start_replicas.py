"""Where reading starts when another server is at an address: a row for each case.

Two real servers, one the replica of the other: the same transactions have other
offsets in files of the same names. What was read before is really read, so that
the boundary index has it.
"""

from __future__ import annotations

import itertools
import logging
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from fix_pump import DESTINATION, Pumped
from fix_source_access import access_of
from fix_store import eventually

from canal_server.config.schema import HostConfig
from canal_server.model.positions import (
    EntryPosition,
    Executed,
    LogIdentity,
    LogPosition,
)
from canal_server.mysql.source_settings import Address
from canal_server.source.begin.boundary_index import BoundaryIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fix_proxy import Proxy
    from fix_replicas import Replicas
    from servers import PrivateServer

XID_BYTES = 31  # of the event that ends a transaction
ROWS, ACKED = 6, 3  # the last one acked
STEP_S = 100  # between two transactions; by time, reading moves back by 60 s
# GTID sources that only the replica has, of one test each.
ALONE = "77777777-7777-7777-7777-777777777777"
PARALLEL = "88888888-8888-8888-8888-888888888888"
ELSEWHERE = LogIdentity("elsewhere.invalid", 3306)

_numbers = itertools.count(2)


@dataclass
class Pair:
    """A source `a`, its replica `b`, and the ends of the transactions on both."""

    a: PrivateServer
    b: PrivateServer
    schema: str
    begin_s: int
    table: str = "t"
    gtids: list[str] = field(default_factory=list)  # executed after each
    ends: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def server(self, name: str) -> PrivateServer:
        """Return a server by its letter."""
        return {"a": self.a, "b": self.b}[name]

    def write(self, replicas: Replicas) -> None:
        """Write the transactions, a row each, and find them on both servers."""
        begins = {name: self.server(name).binlog_position() for name in "ab"}
        for number in range(ROWS):
            self.a.execute(
                f"SET timestamp = {self.begin_s + number * STEP_S}",
                f"INSERT INTO {self.schema}.{self.table} VALUES ({number})",
            )
            self.gtids.append(replicas.executed(self.a))
        replicas.catch_up()
        for name, (file, offset) in begins.items():
            events = self.server(name).execute(
                f"SHOW BINLOG EVENTS IN '{file}' FROM {offset}"
            )
            self.ends[name] = [
                (row[0], int(row[1])) for row in events if row[2] == "Xid"
            ]
            assert len(self.ends[name]) == ROWS
        assert self.ends["a"] != self.ends["b"]


@pytest.fixture
def pair(replicas: Replicas, replicated_schema: str) -> Pair:
    """Yield both servers with the transactions of the rows."""
    a, b = replicas.source, replicas.replica
    # Other offsets than on the source, whatever was written before.
    b.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    a.execute(f"CREATE TABLE {replicated_schema}.t (a INT PRIMARY KEY)")
    replicas.catch_up()
    ((now_s,),) = a.execute("SELECT UNIX_TIMESTAMP()")
    # After everything written so far: times increase in both binlogs.
    begin_s = int(now_s) + next(_numbers) * (ROWS + 2) * STEP_S
    made = Pair(a, b, replicated_schema, begin_s)
    made.write(replicas)
    return made


@pytest.fixture
def index(tmp_path: Path) -> Iterator[BoundaryIndex]:
    """Yield an empty boundary index."""
    made = BoundaryIndex(tmp_path / "boundaries.sqlite")
    made.open()
    yield made
    made.close()


@dataclass(frozen=True)
class Case:
    """A row of the table.

    `read` are the servers read before, `stored` the one whose position is stored,
    `now` the current one. An `exact` start repeats nothing, one by time repeats the
    transaction that was acked last.
    """

    name: str
    why: str
    read: str
    stored: str
    now: str
    exact: bool = False
    gtid_on: bool = False
    with_set: bool = False
    stored_set: bool = False  # outside of GTID mode a set is stored with the position
    identity: LogIdentity | None = None  # None: of the address itself


BY_TIME = "its time .* less 60 s, by "
BY_SET = "the GTID set stored with it"
CASES = (
    Case("never-read", f"of server id .*, now it is .*{BY_TIME}", "", "a", "b"),
    Case("changed", f"of another server than .* at this .*{BY_TIME}", "a", "a", "b"),
    Case("back-on-its-position", "stored position", "ab", "a", "a", exact=True),
    Case("back-on-the-others", f"of another server than .*{BY_TIME}", "ab", "b", "a"),
    Case("replicas-own-position", "stored position", "b", "b", "b", exact=True),
    Case("replicas-own-never-read", "stored position", "", "b", "b", exact=True),
    Case(
        "other-address",
        f"of another server: {BY_TIME}",
        "a",
        "a",
        "b",
        identity=ELSEWHERE,
    ),
    Case("never-read-set", BY_SET, "", "a", "b", exact=True, stored_set=True),
    Case("changed-set", BY_SET, "a", "a", "b", exact=True, stored_set=True),
    Case("back-set", BY_SET, "ab", "b", "a", exact=True, stored_set=True),
    Case(
        "other-address-set",
        f"of another server: {BY_SET}",
        "a",
        "a",
        "b",
        exact=True,
        stored_set=True,
        identity=ELSEWHERE,
    ),
    Case(
        "own-position-and-set",
        "stored position",
        "a",
        "a",
        "a",
        exact=True,
        stored_set=True,
    ),
    Case(
        "changed-gtid",
        "stored GTID set",
        "a",
        "a",
        "b",
        exact=True,
        gtid_on=True,
        with_set=True,
    ),
    Case(
        "never-read-gtid",
        "stored GTID set",
        "",
        "a",
        "b",
        exact=True,
        gtid_on=True,
        with_set=True,
    ),
    Case(
        "back-gtid",
        "stored GTID set",
        "ab",
        "b",
        "a",
        exact=True,
        gtid_on=True,
        with_set=True,
    ),
    Case(
        "other-address-gtid",
        "stored GTID set",
        "a",
        "a",
        "b",
        exact=True,
        gtid_on=True,
        with_set=True,
        identity=ELSEWHERE,
    ),
    Case(
        "changed-before-gtid-mode",
        f"of another server than .*{BY_TIME}",
        "a",
        "a",
        "b",
        gtid_on=True,
    ),
    Case(
        "back-before-gtid-mode",
        "stored position .*, by ",
        "ab",
        "a",
        "a",
        exact=True,
        gtid_on=True,
    ),
)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_position(
    pair: Pair,
    make_proxy: Callable[[PrivateServer], Proxy],
    index: BoundaryIndex,
    caplog: pytest.LogCaptureFixture,
    case: Case,
) -> None:
    """It starts where the table says, logs the reason, and delivers what follows."""
    proxy = make_proxy(pair.a)
    for name in case.read:
        read_all(pair, proxy, name, index)
    caplog.clear()
    caplog.set_level(logging.INFO, "canal_server")

    found = pumped(pair, proxy, case.now, index, gtid_on=case.gtid_on)
    stored = acked(pair, case.stored)
    if case.with_set:
        stored = replace(stored, gtid=pair.gtids[ACKED])
    identity = case.identity or found.pump.identity
    executed = executed_at(pair, case.stored) if case.stored_set else None
    found.positions.persist(DESTINATION, LogPosition(identity, stored, executed))
    found.pump.start()
    try:
        eventually(lambda: str(ROWS - 1) in found.values)
    finally:
        found.stop()
    (line,) = [each for each in caplog.messages if " starts at " in each]
    assert re.search(case.why, line), line
    first = ACKED + 1 if case.exact else ACKED
    assert found.values == [str(number) for number in range(first, ROWS)]


def test_what_only_the_other_server_has(
    pair: Pair,
    replicas: Replicas,
    make_proxy: Callable[[PrivateServer], Proxy],
    index: BoundaryIndex,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a set, what that server did alone since is delivered, and nothing older.

    The set has neither, so by GTID mode's rules both would be sent.
    """
    caplog.set_level(logging.INFO, "canal_server")
    proxy = make_proxy(pair.a)
    begin_s = pair.begin_s + (ROWS + 1) * STEP_S
    next(_numbers)  # times already in use
    write_alone(pair, 1, begin_s - STEP_S)
    pair.a.execute(f"CREATE TABLE {pair.schema}.u (a INT PRIMARY KEY)")
    later = Pair(pair.a, pair.b, pair.schema, begin_s, "u")
    later.write(replicas)
    write_alone(pair, 2, begin_s + ROWS * STEP_S)

    found = pumped(pair, proxy, "b", index)
    position = LogPosition(ELSEWHERE, acked(later, "a"), executed_at(later, "a"))
    found.positions.persist(DESTINATION, position)
    found.pump.start()
    try:
        eventually(lambda: "1002" in found.values)
    finally:
        found.stop()
    expected = [str(number) for number in range(ACKED + 1, ROWS)]
    assert found.values == [*expected, "1002"]
    assert "plus what only this server had before" in caplog.text


def test_what_a_replica_had_not_executed_yet(
    pair: Pair,
    replicas: Replicas,
    make_proxy: Callable[[PrivateServer], Proxy],
    index: BoundaryIndex,
) -> None:
    """What the set lacks between others is delivered, however old it is.

    A replica that applies several at a time, out of order, has the older one later.
    """
    if pair.a.flavour == "mariadb":
        pytest.skip("its sets have no holes")
    begin_s = pair.begin_s + (ROWS + 1) * STEP_S
    next(_numbers)  # times already in use
    for number in range(1, 4):
        write_alone(pair, number, begin_s - STEP_S, PARALLEL)
    pair.a.execute(f"CREATE TABLE {pair.schema}.u (a INT PRIMARY KEY)")
    later = Pair(pair.a, pair.b, pair.schema, begin_s, "u")
    later.write(replicas)
    executed = executed_at(later, "a")
    hole = replace(executed, gtids=f"{executed.gtids},{PARALLEL}:1:3")
    found = pumped(pair, make_proxy(pair.a), "b", index)
    position = LogPosition(ELSEWHERE, acked(later, "a"), hole)
    found.positions.persist(DESTINATION, position)
    found.pump.start()
    try:
        eventually(lambda: str(ROWS - 1) in found.values)
    finally:
        found.stop()
    expected = [str(number) for number in range(ACKED + 1, ROWS)]
    assert found.values == ["1002", *expected]


def write_alone(pair: Pair, number: int, when_s: int, sid: str = ALONE) -> None:
    """Write a row on the replica only, under a GTID of an unknown source."""
    insert = f"INSERT INTO {pair.schema}.t VALUES ({1000 + number})"
    at = f"SET timestamp = {when_s}"
    if pair.b.flavour == "mariadb":
        pair.b.execute(at, "SET gtid_domain_id = 77", insert)
        return
    gtid = f"SET gtid_next = '{sid}:{number}'"
    pair.b.execute(at, gtid, insert, "SET gtid_next = AUTOMATIC")


def acked(pair: Pair, name: str) -> EntryPosition:
    """Return the position of the acked transaction, on one of the servers."""
    file, offset = pair.ends[name][ACKED]
    time_ms = (pair.begin_s + ACKED * STEP_S) * 1000
    # The server that wrote it, which all servers record.
    return EntryPosition(file, offset, time_ms, pair.a.port)


def executed_at(pair: Pair, name: str) -> Executed:
    """Return the set after the acked transaction, as stored with its position."""
    file, offset = pair.ends[name][ACKED]
    return Executed(file, offset, offset + XID_BYTES, pair.gtids[ACKED])


def pumped(
    pair: Pair, proxy: Proxy, name: str, index: BoundaryIndex, **changes: object
) -> Pumped:
    """Return a pump that finds this server at the address."""
    server = pair.server(name)
    proxy.target = (server.host, server.port)
    access = replace(access_of(server), address=Address("127.0.0.1", proxy.port))
    return Pumped(access, pair.schema, index, **changes)


def read_all(pair: Pair, proxy: Proxy, name: str, index: BoundaryIndex) -> None:
    """Read what a server has after the first transaction."""
    file, offset = pair.ends[name][0]
    begin = HostConfig(journal_name=file, position=offset)
    reading = pumped(pair, proxy, name, index, master=begin)
    reading.pump.start()
    eventually(lambda: str(ROWS - 1) in reading.values)
    reading.stop()
