"""Changes of columns that end streams are logged with the columns."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from canal_server.mirror.follow.stream_ends import warn_of_ends
from canal_server.mirror.settings.table_values import MirrorTable, TableName

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = TableName("shop", "t")
BEFORE = pa.schema([("id", pa.int32()), ("n", pa.int32()), ("_seq", pa.int64())])


@pytest.mark.parametrize(
    ("after", "logged"),
    [
        ([("id", pa.int32()), ("n", pa.int32()), ("more", pa.string())], ""),
        ([("n", pa.int32()), ("id", pa.int32())], ""),
        (
            [("id", pa.int64()), ("n", pa.int32())],
            "column id is int64 instead of int32",
        ),
        (
            [("m", pa.int32()), ("id", pa.string())],
            "column id is string instead of int32, column n disappears",
        ),
    ],
)
def test_other_columns(
    caplog: pytest.LogCaptureFixture,
    after: Sequence[tuple[str, pa.DataType]],
    logged: str,
) -> None:
    """Additional columns and another order are no reason; other types are."""
    with caplog.at_level(logging.WARNING):
        for target, form in (("t", "delta"), ("t", "json"), ("_mirror/t", "delta")):
            table = MirrorTable(NAME, target, (), form=form)
            warn_of_ends(table, BEFORE, pa.schema(after))
    expected = f"shop.t: streams that read it in the lake end: {logged}"
    assert [each.getMessage() for each in caplog.records] == [expected] * bool(logged)
