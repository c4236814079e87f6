"""Measures how many rows a second become messages on one core, without a broker.

    python benchmarks/queue_messages.py [--quick]

All forms, with one partition and with a hash of the key. The entries have the columns
and the number of rows that those of `loads` have, and are made in memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from canal_server.config.schema import MessageLayout, RegistryConfig, RoutingConfig
from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    EntryType,
    EventType,
    Header,
    RowChange,
    RowData,
)
from canal_server.protocol.protobuf import encode, varint
from canal_server.queues.message_form import MessageForm
from canal_server.queues.producers.queue_producer import size_of
from canal_server.queues.routing import Router
from canal_server.queues.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Sequence

# Names, types in JDBC and MySQL, and texts; {id} stands for the row's key.
COLUMNS = (
    ("id", -5, "bigint unsigned", "{id}"),
    ("k", -5, "bigint", "7919{id}"),
    ("name", 12, "varchar(64)", "name-{id}"),
    ("email", 12, "varchar(128)", "user{id}@example.org"),
    ("amount", 3, "decimal(12,2)", "{id}.00"),
    ("status", -6, "tinyint", "3"),
    ("created", 93, "datetime", "2024-01-01 00:00:00"),
    ("updated", 93, "timestamp", "2024-03-01 00:00:00"),
    ("note", 12, "varchar(255)", "a note on item number {id}"),
    ("flag", -7, "bit(1)", "1"),
)
EVENT_BYTES, ROW_BYTES = 8192, 97  # of a row event of the source, and of a row in it
ENTRIES = 4  # of a batch: more than the 50 KiB of `canal.mq.canalBatchSize`
RUNS = 5
FORMS: dict[str, dict[str, Any]] = {
    "flat": {},
    "protobuf": {"flat": False},
    "flat with keys": {"has_keys": True},
    "maxwell with keys": {"has_keys": True, "layout": MessageLayout.MAXWELL},
    "debezium with keys": {"has_keys": True, "layout": MessageLayout.DEBEZIUM},
    "debezium with keys and schemas": {
        "has_keys": True, "layout": MessageLayout.DEBEZIUM, "debezium_schemas": True,
    },
    "debezium in Avro with keys": {
        "has_keys": True, "layout": MessageLayout.DEBEZIUM_AVRO,
    },
}  # fmt: skip
HASHES = {"one partition": "", "hash of the key": r".*\..*:$pk$"}


class Schemas(SchemaRegistry):
    """A registry that knows every schema: how fast one answers is not measured."""

    def __init__(self) -> None:
        super().__init__(RegistryConfig())

    def id_of(self, topic: str, is_key: bool, record: str, schema: str) -> int:
        """Return an id."""
        del topic, is_key, record, schema
        return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the best of some runs of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    seconds = 0.2 if parser.parse_args(arguments).quick else 2.0
    for title, kind in (("inserts", EventType.INSERT), ("updates", EventType.UPDATE)):
        body, rows = batch(kind)
        for how, hashes in HASHES.items():
            for form, options in FORMS.items():
                rate, size = measure(body, rows, hashes, seconds, **options)
                print(
                    f"multi-row {title}, {how}, {form}: {rate:,.0f} rows/s,"
                    f" {size / rows:.0f} bytes a row",
                    flush=True,
                )
    return 0


def measure(
    body: bytes, rows: int, hashes: str, seconds: float, **options: Any
) -> tuple[float, int]:
    """Return rows a second of CPU time, and the bytes of the messages of a batch."""
    settings = RoutingConfig(topic="bench", partitions=4, partition_hash=hashes)
    given = {"flat": True, "raw": True, "drops_markers": False} | options
    form = MessageForm(**given)
    encoder = form.encoder(Router(settings), Schemas())
    size = sum(map(size_of, encoder(1, body, 0)))
    best = 0.0
    for _ in range(RUNS):
        count = 0
        began = time.process_time()
        while (taken := time.process_time() - began) < seconds / RUNS:
            encoder(count, body, 0)
            count += 1
        best = max(best, count * rows / taken)
    return best, size


def batch(kind: EventType) -> tuple[bytes, int]:
    """Return the body of a batch, and how many rows it has."""
    images = 2 if kind is EventType.UPDATE else 1
    rows = EVENT_BYTES // (images * ROW_BYTES)
    entries = [encode(entry(kind, at * rows, rows)) for at in range(ENTRIES)]
    body = b"".join(b"\x12" + varint(len(each)) + each for each in entries)
    return body, ENTRIES * rows


def entry(kind: EventType, first: int, count: int) -> Entry:
    """Return an entry with so many rows; an update changes all columns but the key."""
    is_update = kind is EventType.UPDATE
    change = RowChange(
        table_id=90,
        event_type=kind,
        is_ddl=False,
        row_datas=tuple(
            RowData(
                before_columns=image(number, is_new=False) if is_update else (),
                after_columns=image(number, is_new=True),
            )
            for number in range(first, first + count)
        ),
    )
    header = Header(
        version=1,
        logfile_name="binlog.000001",
        logfile_offset=4711,
        server_id=1,
        serveren_code="UTF-8",
        execute_time=1_700_000_000_000,
        schema_name="canal_bench",
        table_name="items",
        event_length=EVENT_BYTES,
        event_type=kind,
    )
    return Entry(
        header=header, entry_type=EntryType.ROWDATA, store_value=encode(change)
    )


def image(number: int, *, is_new: bool) -> tuple[Column, ...]:
    """Return the columns of a row."""
    return tuple(
        Column(
            index=at,
            sql_type=sql_type,
            name=name,
            is_key=at == 0,
            updated=is_new and at > 0,
            is_null=False,
            value=text.format(id=1_000_000 + number),
            mysql_type=mysql_type,
        )
        for at, (name, sql_type, mysql_type, text) in enumerate(COLUMNS)
    )


if __name__ == "__main__":
    sys.exit(main())
