"""The columns of a lake's table after a DDL, and its rows with these columns.

Leaves out how the table is read and written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.arrow.arrow_batches import typed_schema
from canal_server.mirror.lake.generated.expressions import UnsureError
from canal_server.mirror.lake.lake_table import ADDED, UnlikeError
from canal_server.mirror.lake.steps import (
    AddColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.arrow.arrow_columns import RequestedColumn
    from canal_server.mirror.lake.steps import Step

ZERO = ("0000-", "-00")  # parts of dates that only MySQL accepts


def are_alike(before: pa.Schema, after: pa.Schema) -> bool:
    """Return whether columns have the same names and types, in any order."""
    one, other = (sorted((f.name, str(f.type)) for f in s) for s in (before, after))
    return one == other


class Reshape:
    """The effect of steps on the columns of one table."""

    def __init__(self, schema: pa.Schema, steps: Sequence[Step]) -> None:
        """Apply steps to the current columns. UnlikeError for steps that do not fit."""
        self._steps = steps
        schemas = [schema]
        for step in steps:
            schemas.append(_stepped(schemas[-1], step))
        self._before, self._schemas = schemas[:-1], schemas[1:]
        self.schema = schemas[-1]

    @property
    def is_metadata_only(self) -> bool:
        """Whether existing rows only get further columns with NULL."""
        return all(
            (isinstance(step, AddColumn) and not step.writes)
            or (isinstance(step, WidenColumn) and was == now)
            for step, was, now in self._moves()
        )

    def new_fields(self) -> list[pa.Field]:
        """Return the added columns."""
        return [
            self.schema.field(step.name)
            for step in self._steps
            if isinstance(step, AddColumn)
        ]

    def renamed(self, name: str) -> str:
        """Return a column's name after the steps."""
        for step in self._steps:
            if isinstance(step, RenameColumn) and step.old == name:
                name = step.new
        return name

    def rows(self, table: pa.Table) -> pa.Table:
        """Return rows with the new columns. UnlikeError for values that do not fit."""
        for step, schema in zip(self._steps, self._schemas, strict=True):
            columns = {name: table[name] for name in table.column_names}
            if isinstance(step, RenameColumn):
                columns[step.new] = columns.pop(step.old)
            elif isinstance(step, AddColumn):
                kind = schema.field(step.name).type
                columns[step.name] = _added(step, table, kind)
            elif isinstance(step, WidenColumn):
                kind = schema.field(step.name).type
                columns[step.name] = _cast(columns[step.name], step.name, kind)
            table = pa.table({name: columns[name] for name in schema.names})
        return table

    def _moves(self) -> list[tuple[Step, pa.Schema, pa.Schema]]:
        return list(zip(self._steps, self._before, self._schemas, strict=True))


def _added(step: AddColumn, rows: pa.Table, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the new column of existing rows."""
    if step.generated is not None:
        try:
            return step.generated.values(rows, kind)
        except UnsureError as error:
            raise UnlikeError(f"column {step.name} is generated: {error}") from error
    return pa.chunked_array([pa.repeat(filled(step.fill, kind), len(rows))])


def filled(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the value that an entry would carry as this text.

    UnlikeError for a text that is not valid for the type.
    """
    if text is None:
        return pa.scalar(None, kind)
    if pa.types.is_binary(kind):
        return pa.scalar(text.encode("latin-1"), kind)
    if pa.types.is_temporal(kind) and (text.startswith(ZERO[0]) or ZERO[1] in text):
        return pa.scalar(None, kind)
    try:
        if pa.types.is_timestamp(kind):
            time = pa.scalar(text).cast(pa.timestamp("us"))
            return pc.assume_timezone(time, kind.tz) if kind.tz else time
        if pa.types.is_int64(kind) and int(text) > 2**63 - 1:  # BIT(64)
            return pa.scalar(int(text) - 2**64, kind)
        return pa.scalar(text).cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise UnlikeError(f"{text!r} cannot be a default of type {kind}") from error


def _stepped(schema: pa.Schema, step: Step) -> pa.Schema:
    """Return the columns after a step."""
    if isinstance(step, AddColumn):
        _expect(step.name not in schema.names, f"already has a column {step.name}")
        own = [name for name in schema.names if name not in ADDED]
        return schema.insert(len(own), _field(step.requested))
    old = step.old if isinstance(step, RenameColumn) else step.name
    _expect(old in schema.names, f"has no column {old}")
    index = schema.get_field_index(old)
    if isinstance(step, DropColumn):
        return schema.remove(index)
    if isinstance(step, RenameColumn):
        _expect(step.new not in schema.names, f"already has a column {step.new}")
        return schema.set(index, schema.field(index).with_name(step.new))
    return schema.set(index, _field(step.requested))


def _field(requested: RequestedColumn) -> pa.Field:
    return typed_schema([requested]).field(0)


def _cast(column: pa.ChunkedArray, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise UnlikeError(
            f"column {name} has values that are not of type {kind}: {error}"
        ) from error


def _expect(true: bool, otherwise: str) -> None:
    if not true:
        raise UnlikeError(f"it {otherwise}")
