"""Decodes recorded binlogs and gives entries the JSON form of the golden files."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ddl_event import statement_of
from support_paths import TESTS

from canal_server.config.schema import FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.core.table_ids import TableIds
from canal_server.decoder.text.charset_names import charset_of_collation
from canal_server.filters.column_filters import ColumnFilter
from canal_server.filters.table_filters import TableFilter
from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.model.entry import EntryType
from canal_server.model.positions import EntryPosition
from canal_server.pipeline.empty_transactions import EmptyTransactionFilter
from canal_server.pipeline.transaction_buffer import TransactionBuffer
from canal_server.protocol.entry_messages import decode_entry
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_files import FileSource
from canal_server.source.read.binlog_reader import Reader
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.tables.memory_tables import MemoryTableMeta

if TYPE_CHECKING:
    from pathlib import Path

DATA = TESTS / "golden" / "data"
MiB = 1024 * 1024

Json = dict[str, Any]  # an object as it was read


class RecordedImages:
    """The port TableSchemas over the tables at each position of a recorded binlog.

    `history` shows for each position whose tables changed there: "end", the offset
    after the statement, the changed tables, and those that are "gone".
    """

    def __init__(self, history: list[Json]) -> None:
        self._history = history
        self.tables: dict[tuple[str, str], TableMeta] = {}

    def find(self, schema, table, position=None):
        """Return the columns as of the last statement that was applied."""
        return self.tables.get((schema, table))

    refresh = find

    def passed(self, position):
        """Take note of nothing: a position matters with statements only."""

    def apply(self, statement):
        """Continue with what the statement made of the tables."""
        position = statement.position
        at = (position.journal_name, position.position)
        while self._history and self._begins_before(self._history[0], at):
            self._take(self._history.pop(0))

    def _begins_before(self, step, at):
        return (step["file"], step["begin"]) <= at

    def _take(self, step):
        for schema, table in step["gone"]:
            self.tables.pop((schema, table), None)
        for table in step["tables"]:
            key = table["schema"], table["table"]
            columns = tuple(ColumnMeta(*column) for column in table["columns"])
            self.tables[key] = TableMeta(*key, columns)


class ReplayedImages:
    """The port TableSchemas over the statements of the recording, and nothing else."""

    def __init__(self, *, mariadb: bool) -> None:
        self._model = MemoryTableMeta(mariadb=mariadb)

    def find(self, schema, table, position=None):
        """Return the columns as of the last statement that was applied."""
        found = self._model.find(schema, table)
        assert not self._model.is_uncertain(schema, table)
        return None if found is None else found.meta

    refresh = find

    def passed(self, position):
        """Take note of nothing: a position matters with statements only."""

    def apply(self, statement):
        """Apply a statement."""
        context = named(Context.from_json(statement.extra))
        applied = self._model.apply(
            statement.position, statement.schema, statement.ddl, context
        )
        assert not applied.problem, (statement.ddl, applied)


def named(context: Context) -> Context:
    """Give collations that are reported by number a name of the same character set."""
    names: dict[str, Any] = {
        field: f"{charset_of_collation(int(number))}_general_ci"
        for field in (
            "collation_connection",
            "collation_server",
            "collation_database",
            "collation_utf8mb4",
        )
        if (number := getattr(context, field)) is not None
    }
    return replace(context, **names)


@dataclass
class Workload:
    """A recorded run: its binlogs, and what was right to deliver for them."""

    name: str
    sql: str
    binlogs: dict[str, bytes]
    golden: list[Json]
    truth: list[Json]
    faults: Json
    history: list[Json]

    @property
    def settings(self) -> dict[str, str]:
        """What the `-- @` lines of the workload say."""
        found: dict[str, str] = {}
        for line in self.sql.splitlines():
            if line.startswith("-- @"):
                key, _, value = line[4:].partition(" ")
                if key == "canal":
                    name, _, value = value.partition("=")
                    found[name.strip()] = value.strip().replace("\\\\", "\\")
                elif key == "server":
                    found["server"] = value.strip()
        return found

    def last_columns(self) -> dict[tuple[str, str], dict[str, ColumnMeta]]:
        """Return the columns in the end, by table and by name."""
        images = RecordedImages(list(self.history))
        images.apply(statement_of("", at=EntryPosition("binlog.999999", 0)))
        return {
            key: {column.name: column for column in table.columns}
            for key, table in images.tables.items()
        }


def load_workload(name: str) -> Workload:
    """Read a workload from its archive."""
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        files = {
            entry.name: content.read()
            for entry in archive.getmembers()
            if (content := archive.extractfile(entry)) is not None
        }

    def lines(name):
        return [json.loads(line) for line in files[name].splitlines()]

    return Workload(
        name,
        files["sql"].decode(),
        {k: v for k, v in sorted(files.items()) if k.startswith("binlog.")},
        lines("jsonl"),
        lines("rows.jsonl"),
        json.loads(files.get("faults.json", "{}")),
        json.loads(files["history.json"]),
    )


class Delivery:
    """Takes spans through transaction buffer and thinning, as an instance does."""

    def __init__(self) -> None:
        self.fields = bytearray()  # of Messages, one an entry
        self._empty_filter = EmptyTransactionFilter()
        self._buffer = TransactionBuffer(1024, 8 * MiB)

    def put(self, spans) -> bool:
        """Take what a reader delivers."""
        while spans:
            ready, spans = self._buffer.put(spans)
            for block, first, stop in self._empty_filter.thin(ready):
                self.fields += block.slice(first, stop)
            self._buffer.commit()
        return True


def raw_entries_of(fields: bytes):
    """Yield the serialized entries of records laid end to end."""
    at = 0
    while at < len(fields):
        assert fields[at] == 0x12
        at += 1
        n = shift = 0
        while True:
            byte = fields[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield bytes(fields[at : at + n])
        at += n


def entries_of(fields: bytes):
    """Yield the entries of records laid end to end."""
    return map(decode_entry, raw_entries_of(fields))


def make_reader(images, *, black="", **options):
    """Return a reader of files that selects all tables but those of `black`."""
    return Reader(
        BlockPool(),
        TableIds(),
        images,
        **{
            "table_filter": TableFilter(r".*\..*", black).accepts,
            "columns": ColumnFilter("", ""),
            "filters": FilterConfig(),
            "packets": False,
            **options,
        },
    )


def decode_fields(workload: Workload, folder: Path, images=None, **options) -> bytes:
    """Return what is delivered for a workload, as fields of Messages."""
    settings = workload.settings
    gtids = None
    if settings.get("canal.instance.gtidon") == "true":
        start = settings.get("canal.instance.master.gtid", "")
        kind = MariaGtidSet if settings["server"] == "mariadb" else GtidSet
        gtids = kind.parse(start)
    reader = make_reader(
        images or RecordedImages(list(workload.history)),
        black=settings.get("canal.instance.filter.black.regex", ""),
        gtids=gtids,
        **options,
    )
    delivery = Delivery()
    for name, content in workload.binlogs.items():
        path = folder / name
        path.write_bytes(content)
        with FileSource(path) as source:
            reader.start(name, 4)
            assert reader.run(source, delivery.put, lambda: None, Stop())
    return bytes(delivery.fields)


def decode_workload(workload: Workload, folder: Path) -> list[Json]:
    """Return the entries of a recorded workload in JSON form."""
    fields = decode_fields(workload, folder)
    return [to_json(n, entry) for n, entry in enumerate(entries_of(fields))]


def _name(value):
    return None if value is None else getattr(value, "name", value)


def _props(pairs):
    return {pair.key: pair.value for pair in sorted(pairs, key=lambda pair: pair.key)}


def _column(column):
    return {
        "index": column.index,
        "sqlType": column.sql_type,
        "name": column.name,
        "isKey": column.is_key,
        "updated": column.updated,
        "isNull": column.is_null,
        "value": column.value,
        "mysqlType": column.mysql_type,
        "length": column.length,
        "props": _props(column.props),
    }


def to_json(n, entry):
    """Return one entry as the golden files have it."""
    header = entry.header
    found = {
        "n": n,
        "entryType": entry.entry_type.name,
        "header": {
            "version": header.version,
            "logfileName": header.logfile_name,
            "logfileOffset": header.logfile_offset,
            "serverId": header.server_id,
            "serverenCode": header.serveren_code,
            "executeTime": header.execute_time,
            "sourceType": _name(header.source_type),
            "schemaName": header.schema_name,
            "tableName": header.table_name,
            "eventLength": header.event_length,
            "eventType": _name(header.event_type),
            "gtid": header.gtid,
            "props": _props(header.props),
        },
    }
    if entry.entry_type == EntryType.TRANSACTIONBEGIN:
        begin = entry.transaction_begin()
        found["begin"] = {
            "threadId": begin.thread_id,
            "transactionId": begin.transaction_id,
            "executeTime": begin.execute_time,
            "props": _props(begin.props),
        }
    elif entry.entry_type == EntryType.TRANSACTIONEND:
        end = entry.transaction_end()
        found["end"] = {
            "transactionId": end.transaction_id,
            "executeTime": end.execute_time,
            "props": _props(end.props),
        }
    else:
        change = entry.row_change()
        found["rowChange"] = {
            "tableId": change.table_id,
            "eventType": _name(change.event_type),
            "isDdl": change.is_ddl,
            "sql": change.sql,
            "ddlSchemaName": change.ddl_schema_name,
            "props": _props(change.props),
            "rowDatas": [
                {
                    "before": [_column(column) for column in row.before_columns],
                    "after": [_column(column) for column in row.after_columns],
                    "props": _props(row.props),
                }
                for row in change.row_datas
            ],
        }
    return found
