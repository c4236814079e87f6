"""A reader over chunks of a binlog made by hand, and what it asks and delivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import binlog_bytes as b
from binlog_bytes import Binlog
from byte_source import Bytes
from fix_blocks import ROWS
from golden_form import entries_of

from canal_server.config.schema import FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import NAMES_MAX, TableIds
from canal_server.filters.column_filters import ColumnFilter
from canal_server.filters.table_filters import TableFilter
from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.model.entry import EntryType
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_reader import Reader
from canal_server.source.read.unreadable_events import Unreadable

if TYPE_CHECKING:
    from fix_blocks import Span

    from canal_server.model.ddl_statement import DdlStatement
    from canal_server.protocol.entry_messages import Entry

INT = (b.LONG, b"")


def columns_of(types: tuple[str, ...]) -> tuple[ColumnMeta, ...]:
    """Return columns named c0, c1 and so on."""
    return tuple(ColumnMeta(f"c{n}", each) for n, each in enumerate(types))


class Images:
    """The port TableSchemas over a dict, with what was asked of it noted."""

    def __init__(self, **tables: tuple[str, ...]) -> None:
        self.tables = {
            name: TableMeta("db", name, columns_of(types))
            for name, types in tables.items()
        }
        self.fresh: dict[str, TableMeta] = {}
        self.refreshed: list[str] = []
        self.applied: list[tuple[str, str, str]] = []

    def find(
        self, schema: str, table: str, position: object = None
    ) -> TableMeta | None:
        """Return what is known."""
        return self.tables.get(table)

    def refresh(
        self, schema: str, table: str, position: object = None
    ) -> TableMeta | None:
        """Look again."""
        self.refreshed.append(table)
        self.tables.update(self.fresh)
        return self.tables.get(table)

    def apply(self, statement: DdlStatement) -> None:
        """Note the statement."""
        self.applied.append((statement.schema, statement.ddl, str(statement.position)))

    def passed(self, position):
        """Take note of nothing."""


class Reading:
    """A reader over chunks, and what it delivers."""

    def __init__(
        self,
        images: Images | None = None,
        *,
        black: str = "",
        field: str = "",
        names_max: int = NAMES_MAX,
        unreadable: Unreadable | None = None,
        **options: object,
    ) -> None:
        self.images = images or Images(t=("int",))
        self.fields = bytearray()
        self.idle = 0
        self.stop = Stop()
        self.table_ids = TableIds(names_max)
        self.row_table_ordinals: list[int] = []
        self.unreadable = unreadable or Unreadable()
        settings = {
            name: options.pop(name)
            for name in list(options)
            if name in FilterConfig.__dataclass_fields__
        }
        self.reader = Reader(
            BlockPool(),
            self.table_ids,
            self.images,
            table_filter=TableFilter(r".*\..*", black).accepts,
            columns=ColumnFilter(field, ""),
            filters=FilterConfig(**settings),  # type: ignore[arg-type]
            unreadable=self.unreadable,
            **options,  # type: ignore[arg-type]
        )
        self.reader.start("bin.000001", 4)

    def run(self, *chunks: bytes | None) -> bool:
        """Read chunks to their end."""
        return self.reader.run(Bytes(chunks), self.deliver, self.note_idle, self.stop)

    def deliver(self, spans: list[Span]) -> bool:
        """Keep what is delivered."""
        for block, first, stop in spans:
            self.fields += block.slice(first, stop)
            self.row_table_ordinals += [
                record["table_ordinal"]
                for record in map(block.record, range(first, stop))
                if record["kind"] == ROWS
            ]
        return True

    def note_idle(self) -> None:
        """Count."""
        self.idle += 1

    @property
    def entries(self) -> list[Entry]:
        """Return what was delivered."""
        return list(entries_of(bytes(self.fields)))

    @property
    def values(self) -> list[str]:
        """Return the first column of every row that was delivered."""
        return [
            (row.after_columns or row.before_columns)[0].value
            for entry in self.entries
            if entry.entry_type == EntryType.ROWDATA
            for row in entry.row_change().row_datas
        ]


def log_with(*statements: str | bytes, schema: str = "db", **options: Any) -> Binlog:
    """Return a binlog of statements."""
    log = Binlog()
    log.start()
    for sql in statements:
        text = sql if isinstance(sql, bytes) else sql.encode()
        log.add(b.QUERY, b.query_body(text, schema.encode(), **options))
    return log


def insert(log: Binlog, value: int, *, table: str = "t", table_id: int = 5) -> None:
    """Append a transaction with one row."""
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT], table=table, table_id=table_id))
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(value), table_id=table_id))
    log.xid()
