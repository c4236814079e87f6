"""Two real servers of which one replicates from the other by GTID, and their roles."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Any

import pymysql
from servers import CANAL, PrivateServer, Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OPTIONS_OF = {
    "mysql": ("--loose-log-replica-updates=ON", "--relay-log=relay"),
    "mariadb": (
        "--log-slave-updates=ON",
        "--gtid-strict-mode=ON",
        "--relay-log=relay",
    ),
}

_GTID = re.compile(r"GTID \d+-\d+-(\d+)$")
_XA = re.compile(r"XA (START|COMMIT|ROLLBACK) X'([0-9a-f]+)'")

# Of itself a replica that could not connect waits as long as anybody has patience.
RETRY_S = 1
# A slow machine may have more.
PATIENCE_S = 3 * float(os.environ.get("CANAL_TEST_UNIT_S", "20"))


class Replicas:
    """A source and its replica; who is which changes with `take_over`."""

    def __init__(self, source: PrivateServer, replica: PrivateServer) -> None:
        self.source = source
        self.replica = replica
        self.flavour = source.flavour
        self._is_mysql = self.flavour == "mysql"

    def follow(self) -> None:
        """Let the replica follow the source from what it has on."""
        self._follow(self.replica, self.source)

    def _follow(
        self, replica: PrivateServer, source: PrivateServer, *, forget: bool = True
    ) -> None:
        if self._is_mysql:
            where = (
                "CHANGE REPLICATION SOURCE TO"
                f" SOURCE_HOST = '{source.host}', SOURCE_PORT = {source.port}"
                f", SOURCE_USER = '{CANAL[0]}', SOURCE_PASSWORD = '{CANAL[1]}'"
                ", SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
                f", SOURCE_CONNECT_RETRY = {RETRY_S}"
            )
        else:
            where = (
                f"CHANGE MASTER TO MASTER_HOST = '{source.host}'"
                f", MASTER_PORT = {source.port}, MASTER_USER = '{CANAL[0]}'"
                f", MASTER_PASSWORD = '{CANAL[1]}', MASTER_USE_GTID = slave_pos"
                f", MASTER_CONNECT_RETRY = {RETRY_S}"
            )
            if forget:
                # It may have been the source, whose transactions are its own.
                own = "SET GLOBAL gtid_slave_pos = @@global.gtid_binlog_pos"
                _execute(replica, "STOP REPLICA", own)
        _execute(replica, "STOP REPLICA", where, "START REPLICA")

    @contextlib.contextmanager
    def mutual(self) -> Iterator[None]:
        """Let the source follow its replica, too, inside."""
        self._follow(self.source, self.replica)
        yield
        _execute(self.source, "STOP REPLICA", "RESET REPLICA ALL")
        self.follow()

    def catch_up(self) -> None:
        """Wait until the replica has executed all that the source has."""
        self.wait_for(self.replica, self.executed(self.source))

    def wait_for(self, server: PrivateServer, gtids: str) -> None:
        """Wait until a server has executed what another one has.

        However long that takes on a busy machine, as long as it gets further.
        """
        wait = "WAIT_FOR_EXECUTED_GTID_SET" if self._is_mysql else "MASTER_GTID_WAIT"
        if self._is_mysql and not server.can(wait):
            # Returns how many it waited for; negative: in vain.
            wait = "0 > WAIT_UNTIL_SQL_THREAD_AFTER_GTIDS"
        before = ""
        while server.execute(f"SELECT {wait}('{gtids}', {PATIENCE_S:g})") != ((0,),):
            now = self.executed(server)
            if now == before and self._free(server, now):
                continue
            assert now != before, (
                f"the replica executed nothing in {PATIENCE_S:g} s: it has {now}, of"
                f" {gtids}; {_state_of(server)}"
            )
            before = now

    def _free(self, server: PrivateServer, executed: str) -> bool:
        """Let a MariaDB go on that was killed beside a prepared XA transaction.

        It may have lost that it has executed the preparation, or that it has not
        executed the end: then the prepared transaction holds rows which others wait
        for, until they give up.
        """
        if self._is_mysql or not executed:
            return False
        upto = int(executed.rpartition("-")[2])
        held = {bytes(row[3]).hex() for row in server.execute("XA RECOVER")}
        ends = []
        for name, started, ended, how in self._xa_transactions():
            if name in held and started > upto:  # it will be executed again
                ends.append(f"XA ROLLBACK X'{name}'")
            elif name in held and 0 < ended <= upto:
                ends.append(f"XA {how} X'{name}'")
        if ends:
            own = "SET SESSION sql_log_bin = 0"
            _execute(server, "STOP REPLICA", own, *ends, "START REPLICA")
        return bool(ends)

    def _xa_transactions(self) -> list[tuple[str, int, int, str]]:
        """Return those in the source's binlog: name, number of both ends, how it ended.

        0: the binlog does not have that end.
        """
        started: dict[str, int] = {}
        ended: dict[str, tuple[int, str]] = {}
        number = 0
        for file, *_ in self.source.execute("SHOW BINARY LOGS"):
            for row in self.source.execute(f"SHOW BINLOG EVENTS IN '{file}'"):
                text = str(row[5])
                if gtid := _GTID.search(text):
                    number = int(gtid[1])
                if found := _XA.match(text):
                    if found[1] == "START":
                        started[found[2]] = number
                    else:
                        ended[found[2]] = number, found[1]
        return [
            (name, started.get(name, 0), *ended.get(name, (0, "")))
            for name in started.keys() | ended.keys()
        ]

    def executed(self, server: PrivateServer) -> str:
        """Return the set that a server has executed, as one line of text."""
        variable = "gtid_executed" if self._is_mysql else "gtid_binlog_pos"
        text: str = server.execute(f"SELECT @@global.{variable}")[0][0]
        return text.replace("\n", "")

    @contextlib.contextmanager
    def lag(self) -> Iterator[None]:
        """Let the replica execute nothing inside; then it goes on, if still one."""
        replica = self.replica
        _execute(replica, "STOP REPLICA SQL_THREAD")
        yield
        if _execute(replica, "SHOW REPLICA STATUS"):
            _execute(replica, "START REPLICA SQL_THREAD")

    def take_over(self) -> None:
        """Make the replica a source, which it follows no more, and swap the roles.

        The old source need not run; `rejoin` makes it a replica.
        """
        _execute(self.replica, "STOP REPLICA", "RESET REPLICA ALL")
        self.source, self.replica = self.replica, self.source

    def begin_after(self) -> None:
        """Let the replica follow from now on, whatever it has too much or lacks.

        A MariaDB that died with transactions of its own is else refused.
        """
        if not self._is_mysql:
            _execute(self.replica, "STOP REPLICA", "RESET MASTER")
            self.replica.execute(
                f"SET GLOBAL gtid_slave_pos = '{self.executed(self.source)}'"
            )
        self._follow(self.replica, self.source, forget=False)

    def take_back(self) -> None:
        """Undo a `take_over`, as long as the new source wrote nothing."""
        self.source, self.replica = self.replica, self.source
        if self.source.pid is None:
            self.source.restart()
        self.follow()

    def rejoin(self) -> None:
        """Let the old source follow the new one, from where it was."""
        if self.replica.pid is None:
            self.replica.restart()
        self.follow()


def _execute(server: PrivateServer, *statements: str) -> Sequence[tuple[Any, ...]]:
    """Run statements, in the words of a server that may be old."""
    return server.execute(*(understood(server, statement) for statement in statements))


def understood(server: Server, statement: str) -> str:
    """Return a statement about replicas in the words of a server that may be old."""
    is_mysql = server.flavour == "mysql"
    if is_mysql and not server.can("CHANGE REPLICATION SOURCE"):
        statement = statement.replace("REPLICATION SOURCE", "MASTER")
        statement = statement.replace("SOURCE_", "MASTER_")
    if is_mysql and not server.can("caching_sha2_password"):
        statement = statement.replace(", GET_MASTER_PUBLIC_KEY = 1", "")
    if not server.can("START REPLICA"):
        statement = statement.replace(" REPLICA", " SLAVE")
    return statement


def _state_of(server: PrivateServer) -> str:
    by_name = server.connect(cursorclass=pymysql.cursors.DictCursor)
    with by_name, by_name.cursor() as cursor:
        cursor.execute(understood(server, "SHOW REPLICA STATUS"))
        rows = cursor.fetchall()
    words = ("rror", "Running", "State", "Gtid", "GTID")
    return str(
        [{k: v for k, v in row.items() if any(w in k for w in words)} for row in rows]
    )
