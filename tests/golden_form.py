"""Decodes recorded binlogs and gives entries the JSON form of the golden files."""

from __future__ import annotations

import json
from pathlib import Path

from canal_server.config.schema import FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.gtid import GtidSet
from canal_server.core.maria_gtid import MariaGtidSet
from canal_server.core.subjects import Subjects
from canal_server.dump.files import FileSource
from canal_server.dump.reader import Reader
from canal_server.lifecycle import Stop
from canal_server.model.entry import EntryType
from canal_server.model.table import ColumnMeta, TableMeta
from canal_server.protocol.entries import decode_entry
from canal_server.sink.columns import ColumnFilter
from canal_server.sink.filters import TableFilter


class RecordedImages:
    """The port TableImages over the columns that tables had in the end."""

    def __init__(self, tables: list[dict]) -> None:
        self.tables = {
            (table["schema"], table["table"]): TableMeta(
                table["schema"],
                table["table"],
                tuple(
                    ColumnMeta(
                        column["column_name"],
                        column["column_type"],
                        column.get("character_set_name"),
                        column.get("column_key") == "PRI"
                        and "PRIMARY KEY" in table["create"],
                        column["is_nullable"] == "YES",
                    )
                    for column in table["columns"]
                ),
            )
            for table in tables
        }

        # The table that every workload ends with is not in its list.
        done = (ColumnMeta("id", "int", None, is_key=True, nullable=False),)
        self.tables["zz_end", "done"] = TableMeta("zz_end", "done", done)

    def find(self, schema, table):
        return self.tables.get((schema, table))

    refresh = find

    def apply(self, schema, ddl, position):
        """Tables keep the columns that they had in the end."""


def entries_of(field_bytes: bytes):
    """Yield the entries of records laid end to end."""
    at = 0
    while at < len(field_bytes):
        assert field_bytes[at] == 0x12
        at += 1
        n = shift = 0
        while True:
            byte = field_bytes[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield decode_entry(field_bytes[at : at + n])
        at += n


def decode_files(paths, images, *, black="", gtids=None, filters=None):
    """Return the entries of binlog files in their order."""
    subjects = Subjects()
    reader = Reader(
        BlockPool(),
        subjects,
        images,
        wants=TableFilter(r".*\..*", black).accepts,
        columns=ColumnFilter("", ""),
        filters=filters or FilterConfig(),
        packets=False,
        gtids=gtids,
    )
    found = []

    def deliver(spans):
        for block, first, stop in spans:
            found.extend(entries_of(bytes(block.slice(first, stop))))
        return True

    for path in paths:
        with FileSource(path) as source:
            reader.start(path.name.partition(".")[2], 4)
            assert reader.run(source, deliver, lambda: None, Stop())
    return found


def settings_of(sql_file: Path) -> dict[str, str]:
    """Return what the workload's `-- @` lines say."""
    found: dict[str, str] = {}
    for line in sql_file.read_text("utf-8").splitlines():
        if line.startswith("-- @"):
            key, _, value = line[4:].partition(" ")
            if key == "canal":
                name, _, value = value.partition("=")
                found[name.strip()] = value.strip()
            elif key == "server":
                found["server"] = value.strip()
    return found


def decode_workload(folder: Path, name: str):
    """Return the entries of a recorded workload in JSON form."""
    settings = settings_of(folder / f"{name}.sql")
    tables = json.loads((folder / f"{name}.tables.json").read_text("utf-8"))
    gtids = None
    if settings.get("canal.instance.gtidon") == "true":
        gtids = MariaGtidSet() if settings["server"] == "mariadb" else GtidSet()
    black = settings.get("canal.instance.filter.black.regex", "")
    paths = sorted(folder.glob(f"{name}.binlog.*"))
    entries = decode_files(
        paths, RecordedImages(tables), black=black.replace("\\\\", "\\"), gtids=gtids
    )
    return [to_json(n, entry) for n, entry in enumerate(entries)]


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
