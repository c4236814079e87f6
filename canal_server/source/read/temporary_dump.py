"""Short dumps next to the pump's own: each reads a part of a binlog and ends.

Each one connects as a separate replica and never follows the binlog. Rows are not
decoded.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from canal_server.config.schema import FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.errors import ConnectionLost
from canal_server.filters.column_filters import ColumnFilter
from canal_server.mysql.replication import FileStart, replica_id
from canal_server.mysql.server_errors import error_of_packet
from canal_server.source.archive.archived_dump import dump_of
from canal_server.source.read.binlog_reader import Reader, StreamEnd
from canal_server.source.read.silence_limit import options_of
from canal_server.source.read.unreadable_events import unreadable_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.core.gtid.mariadb_sets import MariaGtidSet
    from canal_server.core.gtid.mysql_sets import GtidSet
    from canal_server.model.columns_known import TableMeta
    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.model.positions import EntryPosition
    from canal_server.mysql.replication import DumpStart
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import Span
    from canal_server.runtime.lifecycle import Stop


_SERIALS: Final = itertools.count()  # of the dumps of this process
_READERS: Final = 1 << 16  # numbers of readers are below


class StatementCollector:
    """The port TableSchemas for a reader that needs only the statements."""

    def __init__(self) -> None:
        self.events: list[DdlStatement] = []

    def find(
        self, schema: str, table: str, position: EntryPosition
    ) -> TableMeta | None:
        """Refuse: the reader never looks up a table."""
        raise AssertionError(f"looked up {schema}.{table} at {position}")

    refresh = find

    def apply(self, statement: DdlStatement) -> None:
        """Keep the statement."""
        self.events.append(statement)

    def passed(self, position: EntryPosition) -> None:
        """Keep no history."""


class TemporaryDump:
    """Reads parts of one server's binlog; for one thread.

    `replica` distinguishes it from other readers of the same destination. Each dump has
    an id of its own: MariaDB would let it wait for an earlier one with the same id that
    is stuck in a link, and sends nothing meanwhile.
    """

    def __init__(
        self, config: InstanceConfig, access: Access, stop: Stop, *, replica: int
    ) -> None:
        self._config = config
        self._access = access
        self._stop = stop
        self._replica = replica
        self._asked = ""  # start of the last dump, empty for a GTID set

    def reader(
        self,
        collector: StatementCollector,
        kind: type[Reader] = Reader,
        *,
        gtids: GtidSet | MariaGtidSet | None = None,
        until: int | None = None,
        whole: bool = False,
    ) -> Reader:
        """Return a reader for `run` that passes the statements to `collector`.

        Its spans are those of the transactions' ends; `whole`: also of all statements.
        """
        address = str(self._access.address)
        return kind(
            BlockPool(),
            TableIds(),
            collector,
            table_filter=lambda _names: whole,
            columns=ColumnFilter("", ""),
            filters=FilterConfig(rows=whole),
            events=self._config.source.events,
            unreadable=unreadable_of(self._config, self._access, is_quiet=True),
            gtids=gtids,
            error_of_packet=lambda body: error_of_packet(
                body, address=address, position=self._asked
            ),
            until=until,
        )

    def run(
        self,
        reader: Reader,
        position: DumpStart,
        take: Callable[[list[Span]], bool] | None = None,
    ) -> None:
        """Read until `take` returns false, or the reader or the binlog ends.

        Raises SourceError, and ConnectionLost when the read ended early.
        """
        is_enough = False
        self._asked = str(position) if isinstance(position, FileStart) else ""

        def deliver(spans: list[Span]) -> bool:
            nonlocal is_enough
            is_enough = take is not None and not take(spans)
            return not is_enough

        source = self._config.source
        stream = dump_of(
            self._access,
            replica_id(
                self._config.destination,
                source.slave_id,
                reader=self._replica + _READERS * next(_SERIALS),
            ),
            position,
            self._stop,
            options_of(source, follow=False),
        )
        try:
            stream.open()
            if isinstance(position, FileStart):
                reader.start(position.file, position.position)
            cut = reader.run(stream, deliver, _nothing, self._stop)
        except StreamEnd:
            cut = False
        except ConnectionLost:
            # So it also learns of an end inside a compressed transaction.
            if not is_enough:
                raise
            cut = False
        finally:
            stream.close()
        # The server reports its end; without that report the result is incomplete.
        if cut or self._stop.requested():
            why = "stopped" if self._stop.requested() else "the connection broke"
            raise ConnectionLost(
                f"{self._access.address}: {why} while the binlog was scanned"
            )


def _nothing() -> None:
    return None
