"""Drives a decoder by hand, without the reader around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import binlog_bytes as b
from binlog_bytes import Binlog
from golden_form import entries_of

from canal_server.core.blocks import BlockPool
from canal_server.decoder.events import engine
from canal_server.decoder.events.engine import Decoder
from canal_server.decoder.rows.layout_plan import compile_layout
from canal_server.decoder.rows.table_map import parse_table_map
from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.model.entry import EntryType

if TYPE_CHECKING:
    from canal_server.core.blocks import RecordFields
    from canal_server.decoder.rows.row_layout import TableLayout
    from canal_server.protocol.entry_messages import Entry

INT = (b.LONG, b"")


def meta(*names: str) -> TableMeta:
    """Return a table of INT columns."""
    return TableMeta("db", "t", tuple(ColumnMeta(name, "int") for name in names))


class Driven:
    """A decoder that is fed by hand; answers tables itself, statements with nothing."""

    def __init__(self, decoder: Decoder | None = None, **options: Any) -> None:
        self.decoder = decoder or Decoder(BlockPool(), **options)
        self.decoder.start("bin.000001", 4)
        self.meta = meta("a")
        self.layout: TableLayout | None = None  # instead of one from `meta`
        self.fields = bytearray()
        self.records: list[RecordFields] = []
        self.halts: list[int] = []
        self.bodies: list[bytes] = []
        self.tables_asked = 0

    def feed(self, data: bytes) -> None:
        """Give bytes and decode what is whole."""
        feed = self.decoder.feed
        with feed.space(len(data)) as space:
            space[: len(data)] = data
        feed.filled(len(data))
        self.decode()

    def decode(self) -> None:
        """Decode until the input is used up, keeping what was decoded."""
        while True:
            try:
                halt = self.decoder.decode()
            finally:
                for block, first, stop in self.decoder.take():
                    self.fields += block.slice(first, stop)
                    self.records += [block.record(i) for i in range(first, stop)]
            if halt in (engine.HALT_NEED_INPUT, engine.HALT_LIMIT):
                self.last_halt = halt
                return
            if halt != engine.HALT_PAUSE:
                self._answer(halt)

    def _answer(self, halt: int) -> None:
        self.halts.append(halt)
        self.bodies.append(self.decoder.body)
        if halt == engine.HALT_TABLE:
            self.tables_asked += 1
            table_map = parse_table_map(self.decoder.body)
            layout = self.layout or compile_layout(
                table_map, self.meta, table_ordinal=1
            )
            self.decoder.install_table(layout)
        elif halt == engine.HALT_ROTATE:
            name = self.decoder.body[8:].decode()
            position = int.from_bytes(self.decoder.body[:8], "little")
            self.decoder.skip()
            self.decoder.start(name, position)
        else:
            self.decoder.skip()

    @property
    def entries(self) -> list[Entry]:
        """Return what was decoded."""
        return list(entries_of(bytes(self.fields)))


def transaction(log: Binlog, *values: int, table_id: int = 5) -> None:
    """Append a transaction that inserts rows of one INT column."""
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT], table_id=table_id))
    rows = b"".join(map(b.int_row, values))
    log.add(b.WRITE_ROWS, b.rows_body(1, rows, table_id=table_id))
    log.xid()


def values_of(entries: list[Entry]) -> list[str]:
    """Return the first column's new value of every row."""
    return [
        row.after_columns[0].value
        for entry in entries
        if entry.entry_type == EntryType.ROWDATA
        for row in entry.row_change().row_datas
    ]


def small_log(*, checksums: bool = True) -> Binlog:
    """Return a binlog of two transactions."""
    log = Binlog(checksums=checksums)
    log.start()
    transaction(log, 1, 2)
    transaction(log, 3)
    return log
