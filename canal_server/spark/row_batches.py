"""The work of a task: read its range, and return the rows as Arrow record batches.

In a typed stream, a statement on the table may change the meaning of its columns, so
the task checks each statement before it continues.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from canal_server.arrow.arrow_batches import generic_batches, typed_batches
from canal_server.client.range_client import OTHER_EPOCH, RangePosition
from canal_server.errors import ClientError, PositionError, TableMetaError
from canal_server.filters.table_filters import compile_expression
from canal_server.messages import spark_messages
from canal_server.spark.columns.spark_schema import (
    requested_columns,
    typed_columns,
    zone_of,
)
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel, kept_channel
from canal_server.spark.options.source_options import TableName
from canal_server.spark.packed.packed_form import part_batch
from canal_server.spark.packed.packing import PackedBatches
from canal_server.spark.reading.ddl_statements import (
    is_about,
    renames_away,
    silent_change,
)
from canal_server.spark.reading.range_tasks import (
    earliest_of,
    is_lost,
    loss,
    parts_of_now,
    pieces,
    skipped_loss,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from canal_server.arrow.arrow_batches import Batches, Statement
    from canal_server.client.range_client import RangeTable
    from canal_server.spark.options.source_options import SourceOptions
    from canal_server.spark.packed.packing import ColumnsAt
    from canal_server.spark.reading.ddl_statements import SilentChange
    from canal_server.spark.reading.range_tasks import Range

log = logging.getLogger(__name__)


def read_rows(
    options: SourceOptions,
    schema: StructType,
    part: Range,
    channel: Channel | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, always the same ones.

    They are read through a channel that this process keeps, unless one is given. Raises
    PositionError for lost changes if that is not allowed, TableMetaError if the table
    does not match the stream.
    """
    channel = channel or kept_channel(options, part.destination)
    if options.is_packed:
        yield part_batch(part)
        if part.start == part.end:
            return
    has_started = False
    try:
        for batch in _rows_of_now(options, schema, part, channel):
            has_started = True
            yield batch
    except ClientError as error:
        if not is_lost(error):
            raise
        earliest = earliest_of(channel)
        lost = part.start, part.end
        if options.fail_on_data_loss or has_started:
            raise loss(options, part.destination, lost, earliest, error) from error
        spark_messages.SPARK_CHANGES_LOST.log(
            log, skipped_loss(part.destination, lost, earliest, error)
        )
        if version_of(earliest) < version_of(part.end):
            yield from _rows(options, schema, replace(part, start=earliest), channel)


def _rows_of_now(
    options: SourceOptions, schema: StructType, part: Range, channel: Channel
) -> Iterator[pa.RecordBatch]:
    """Yield the rows, even if the source was replaced since they were planned."""
    has_started = False
    try:
        for batch in _rows(options, schema, part, channel):
            has_started = True
            yield batch
    except ClientError as error:
        if error.code != OTHER_EPOCH:
            raise
        if part.is_cut and not (part.start.gtids and part.end.gtids):
            # Other tasks may have read their parts from the previous source.
            raise PositionError(
                f"the source was replaced while a batch with {part} was being read:"
                " restart the query to read the complete batch from the new server"
            ) from error
        if has_started:
            raise PositionError(
                f"the source was replaced while {part} was being read: the task must be"
                " restarted"
            ) from error
        for each in parts_of_now(channel, options, part):
            yield from _rows(options, schema, each, channel)


def _rows(
    options: SourceOptions, schema: StructType, part: Range, channel: Channel
) -> Iterator[pa.RecordBatch]:
    # Not the connection that reads the range.
    asking = channel.another()
    try:
        batches = _batches(options, schema, part, channel, asking)
        if _is_inside(part):
            batches.expect(version_of(part.commit), part.commit_ms)
        for piece in pieces(channel, options, part):
            yield from batches.feed(piece)
        if part.commit.journal:
            batches.finish(version_of(part.commit), part.commit_ms)
        rest = batches.rest()
        if rest is not None:
            yield rest
    finally:
        asking.close()


def _batches(
    options: SourceOptions,
    schema: StructType,
    part: Range,
    channel: Channel,
    asking: Channel,
) -> Batches | PackedBatches:
    if options.is_packed:
        return PackedBatches(
            part.destination,
            partial(_columns_at, asking, part),
            epoch=part.end.epoch,
            zone=options.time_zone,
            selects=compile_expression(options.filter),
        )
    if options.table is None:
        return generic_batches(
            part.destination,
            payload=options.payload,
            epoch=part.end.epoch,
            part=part.keys,
        )
    table = Table(options, schema, part)
    batches = typed_batches(
        options.table.schema,
        options.table.table,
        requested_columns(typed_columns(schema)),
        updates=options.updates,
        split_keys=options.key_changes == "split",
        zero_dates={"null": "null", "fail": "error"}[options.zero_dates],
        zone=zone_of(schema) or "UTC",
        missing=table.missing_at(part.start, channel),
        on_statement=table.receive_statement,
        epoch=part.end.epoch,
        part=part.keys,
    )
    table.batches = batches
    return batches


def _columns_at(
    channel: Channel, part: Range, name: TableName, at_position: ColumnsAt | None
) -> RangeTable:
    """Return a table at a position of a part; None: at the start of the part."""
    at = part.start
    if at_position is not None:
        at = RangePosition(part.end.epoch, *at_position)
    return channel.call(lambda c: c.schema(part.destination, *name, at))


def _is_inside(part: Range) -> bool:
    """Return whether a part is completely inside one transaction.

    Its rows then need not be held until the end of the transaction.
    """
    begin = part.end.begin
    return bool(
        part.commit.journal
        and begin
        and part.start.journal == part.end.journal
        and begin in (part.start.begin, part.start.position)
    )


class Table:
    """The table of a typed stream, as seen by one task."""

    def __init__(self, options: SourceOptions, schema: StructType, part: Range) -> None:
        self.batches: Batches | None = None  # of its rows
        self._options = options
        self._columns = typed_columns(schema)
        self._part = part
        self._missing: set[str] = set()
        self._is_folded: bool | None = (
            None  # whether the server ignores the case of names
        )
        assert options.table is not None  # set in typed streams
        self._name = options.table

    def missing_at(self, position: RangePosition, channel: Channel) -> set[str]:
        """Return the columns of the stream that the table lacks at a position."""
        there = self._ask(channel, position)
        names = {column.name.lower() for column in there.columns}
        if there.found:
            self._missing = {
                c.name for c in self._columns if c.name.lower() not in names
            }
        return self._missing

    def receive_statement(self, statement: Statement) -> None:
        """Check a statement before the entries after it are read.

        Raises TableMetaError if the stream cannot continue unchanged.
        """
        # Not the connection that reads the range.
        channel = Channel(self._options, self._part.destination)
        try:
            self._receive(statement, channel)
        finally:
            channel.close()

    def _receive(self, statement: Statement, channel: Channel) -> None:
        where = f"{statement.journal}:{statement.position}"
        is_ours = partial(self._is_ours, channel)
        change = silent_change(statement, self._name, is_ours)
        if change is not None:
            self._check_silent_change(where, statement.sql, change)
        if not statement.is_ddl or not is_about(statement, is_ours):
            return
        if self._options.schema_change == "fail":
            self._check_now(channel, where, statement)
        after = RangePosition(self._part.end.epoch, statement.journal, statement.end)
        missing = self.missing_at(after, channel)
        assert self.batches is not None
        self.batches.set_missing(missing)

    def _is_ours(self, channel: Channel, name: TableName) -> bool:
        """Return whether a name means the table; some servers ignore case."""
        ours = self._name
        if name == ours or str(name).lower() != str(ours).lower():
            return name == ours
        if self._is_folded is None:
            other = TableName(ours.schema.swapcase(), ours.table.swapcase())
            self._is_folded = any(
                self._ask(channel, at_position, other).found
                for at_position in (self._part.start, None)
            )
        return self._is_folded

    def _check_silent_change(self, where: str, sql: str, change: SilentChange) -> None:
        problem = (
            f"table {self._name} {change.what} at {where} without row events "
            f"({sql[:200]})"
        )
        if self._options.truncates == "fail":
            raise TableMetaError(
                f"{problem}; {change.remedy}, then restart the query with "
                "truncates = ignore"
            )
        spark_messages.SPARK_ROWS_CHANGED_BY_STATEMENT.log(
            log, self._part.destination, problem
        )

    def _check_now(self, channel: Channel, where: str, statement: Statement) -> None:
        """Raise an error if the current columns of the table differ from the stream.

        The current columns count, not those after the statement: a restarted stream
        uses them, and continues.
        """
        name, sql = self._name, statement.sql[:200]
        now = self._ask(channel, None)
        if not now.found:
            if renames_away(statement, partial(self._is_ours, channel)):
                raise TableMetaError(
                    f"table {name} was renamed at {where} ({sql}), and no table has "
                    "that name now: start a stream of the new name, or set "
                    "schemaChange = ignore"
                )
            return
        own = {column.name.lower(): column.mysql_type for column in self._columns}
        there = {column.name.lower(): column.mysql_type for column in now.columns}
        if self._options.columns:  # other columns do not matter
            there = {name: text for name, text in there.items() if name in own}
        if own == there:
            return
        other = sorted(
            each
            for each in own.keys() | there.keys()
            if own.get(each) != there.get(each)
        )
        raise TableMetaError(
            f"table {name} has different columns since {where} ({sql}): "
            f"{', '.join(other)[:500]}; restart the query to use the current columns, "
            "or set schemaChange = ignore"
        )

    def _ask(
        self,
        channel: Channel,
        position: RangePosition | None,
        name: TableName | None = None,
    ) -> RangeTable:
        schema, table = name or self._name
        at = () if position is None else (position,)
        return channel.call(
            lambda c: c.schema(self._part.destination, schema, table, *at)
        )
