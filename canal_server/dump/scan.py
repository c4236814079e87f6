"""Looks into binlog files of a server for what a start needs to know.

Each question opens a dump of its own, as another replica, and ends it when it is
answered. Rows are not decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.core.gtid import GtidSet
from canal_server.core.maria_gtid import MariaGtidSet
from canal_server.dump.side_dump import SideDump, StatementCollector
from canal_server.mysql.replication import FileStart

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.dump.reader import Reader
    from canal_server.lifecycle import Stop
    from canal_server.mysql.settings import Access
    from canal_server.ports import Span

FIRST_EVENT = 4
_END = 3  # Kind of a record: TRANSACTIONEND
_OTHER = 5
_OPEN = 2  # flag of a record: its transaction goes on behind it
_SCANNER_REPLICA = 1


class Scanner:
    """Answers questions about one server's files; for one thread."""

    def __init__(self, config: InstanceConfig, access: Access, stop: Stop) -> None:
        self._dump = SideDump(config, access, stop, replica=_SCANNER_REPLICA)

    def first_event_ms(self, file: str) -> int:
        """Return the time of a file's first event, ms."""
        reader = self._scan(file, None, until=FIRST_EVENT + 1)
        return reader.decoder.last_event_time * 1000

    def boundary_before(self, file: str, timestamp_ms: int) -> int | None:
        """Return the offset behind the file's last transaction older than a time.

        None when the file begins with a younger one or has none.
        """
        found: int | None = None

        def take(spans: list[Span]) -> bool:
            nonlocal found
            for block, first, stop in spans:
                if block.file != file:
                    return False
                for i in range(first, stop):
                    record = block.record(i)
                    if record["time"] * 1000 >= timestamp_ms:
                        return False
                    if record["kind"] == _END or (
                        record["kind"] == _OTHER and not record["flags"] & _OPEN
                    ):
                        found = record["offset"] + record["event_length"]
            return True

        self._scan(file, None, take)
        return found

    def gtids_at(
        self, file: str, offset: int, *, mariadb: bool
    ) -> GtidSet | MariaGtidSet:
        """Return the set that was executed before an offset of a file.

        It is the one that the file begins with, and the transactions in front of the
        offset.
        """
        gtids: GtidSet | MariaGtidSet = MariaGtidSet() if mariadb else GtidSet()
        found = self._scan(file, gtids, until=offset).gtids
        assert found is not None
        return found

    def _scan(
        self,
        file: str,
        gtids: GtidSet | MariaGtidSet | None,
        take: Callable[[list[Span]], bool] | None = None,
        *,
        until: int | None = None,
    ) -> Reader:
        """Read a file from its beginning; ends when `take` says so or at `until`."""
        reader = self._dump.reader(StatementCollector(), gtids=gtids, until=until)
        self._dump.run(reader, FileStart(file, FIRST_EVENT), take)
        return reader
