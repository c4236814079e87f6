"""Properties of a Delta table: the size of files, the columns with statistics.

A reader skips a file whose statistics exclude its condition. delta-rs writes wrong
statistics of some decimals (converted to a double, or capped at the greatest 64-bit
number), so such columns have none.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from canal_server.mirror.lake.file_bounds import quoted
from canal_server.mirror.lake.lake_table import DELETED, HASH, ROW

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from canal_server.mirror.settings.table_values import CopiedFile

FILE_ROWS: Final = 100_000  # a merge rewrites whole files
FILE_BYTES: Final = (1 << 20, 128 << 20)  # at least, at most
FILE_BYTES_UNKNOWN: Final = 8 << 20
FILES_MAX: Final = 5_000  # beyond that, files become larger
STATISTICS_MAX: Final = 32  # columns with statistics, in addition to the key
KEPT_HOURS: Final = 7 * 24  # default for old versions

CHANGE_FEED: Final = "delta.enableChangeDataFeed"
FILE_SIZE: Final = "delta.targetFileSize"
STATISTICS_COLUMNS: Final = "delta.dataSkippingStatsColumns"
LOG_KEPT: Final = "delta.logRetentionDuration"
DELETED_KEPT: Final = "delta.deletedFileRetentionDuration"

_DOUBLE_DIGITS: Final = 15
_WHOLE_DIGITS: Final = 18  # any such number fits 64 bits
_WHOLE_MAX: Final = 2**63 - 1
_WITHOUT_STATISTICS: Final = (
    HASH.name,
    DELETED.name,
    ROW.name,
)  # that no query filters by
_QUOTED: Final = re.compile("`((?:[^`]|``)*)`")


def of_copy(
    schema: pa.Schema,
    key: Collection[str],
    files: Sequence[CopiedFile],
    *,
    change_feed: bool,
    kept_hours: int = KEPT_HOURS,
    sources: Collection[str] = (),
) -> dict[str, str]:
    """Return the properties of a published table; `schema` is that of its files.

    `sources`: the columns by which it is partitioned, which have statistics, too.
    """
    rows = sum(file.rows for file in files)
    size = FILE_BYTES_UNKNOWN
    if rows:
        rows_of_file = max(FILE_ROWS, rows // FILES_MAX)
        size = sum(file.size for file in files) * rows_of_file // rows
    least, most = FILE_BYTES
    found = [json.loads(file.stats) for file in files if file.rows]
    wide = [name for name in key if all(_is_within(each, name) for each in found)]
    return {
        CHANGE_FEED: str(change_feed).lower(),
        FILE_SIZE: str(min(max(size, least), most)),
        STATISTICS_COLUMNS: text_of(with_statistics(schema, [*key, *sources], wide)),
        **retention(kept_hours),
    }


def retention(hours: int) -> dict[str, str]:
    """Return how long the log and its records of removed files are kept.

    Vacuum treats a file without such a record as one that was never named.
    """
    text = f"interval {max(1, hours)} hours"
    return {LOG_KEPT: text, DELETED_KEPT: text}


def with_statistics(
    schema: pa.Schema, key: Collection[str], wide: Collection[str] = ()
) -> list[str]:
    """Return the columns that have statistics.

    Columns of the key in `wide` hold no number beyond 64 bits so far.
    """
    names: list[str] = []
    for field in schema:
        few = len(names) < STATISTICS_MAX or field.name in key
        true = _is_true(field.type) or (field.name in wide and _is_whole(field.type))
        if few and true and field.name not in _WITHOUT_STATISTICS:
            names.append(field.name)
    return names


def statistics_columns(configuration: Mapping[str, str | None]) -> list[str] | None:
    """Return the columns that have statistics; None: Delta's default."""
    text = configuration.get(STATISTICS_COLUMNS)
    if text is None:
        return None
    return [name.replace("``", "`") for name in _QUOTED.findall(text)]


def text_of(names: Iterable[str]) -> str:
    """Return columns as a property."""
    return ",".join(quoted(name) for name in names)


def too_wide(
    tables: Callable[[], Iterable[pa.Table]], schema: pa.Schema, names: Iterable[str]
) -> set[str]:
    """Return the numeric columns whose statistics would be wrong.

    `tables` has the rows, and is called only if a type has such values.
    """
    asked = [
        name
        for name in names
        if name in schema.names
        and _is_whole(kind := schema.field(name).type)
        and not _is_true(kind)
    ]
    found: set[str] = set()
    for rows in tables() if asked else ():
        for name in asked:
            ends = pc.min_max(rows[name]).as_py()
            if any(v is not None and abs(v) >= _WHOLE_MAX for v in ends.values()):
                found.add(name)
    return found


def statistics(text: str, names: Collection[str]) -> str:
    """Return a file's statistics, reduced to some columns."""
    found = json.loads(text)
    for part in ("minValues", "maxValues", "nullCount"):
        values = found.get(part, {})
        found[part] = {name: values[name] for name in values if name in names}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _is_true(kind: pa.DataType) -> bool:
    """Check whether statistics are right for all values of a type."""
    if not pa.types.is_decimal(kind):
        return not (pa.types.is_binary(kind) or pa.types.is_nested(kind))
    return bool(kind.precision <= (_DOUBLE_DIGITS if kind.scale else _WHOLE_DIGITS))


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) and kind.scale == 0)


def _is_within(statistics: Mapping[str, Any], name: str) -> bool:
    """Check whether a file's statistics of a column are 64-bit numbers."""
    ends = [statistics.get(part, {}).get(name) for part in ("minValues", "maxValues")]
    return all(
        isinstance(value, int | float) and abs(value) < _WHOLE_MAX for value in ends
    )
