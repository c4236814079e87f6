"""Micro-batches of packed changes, as Spark hands them over, made by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from canal_server.client.range_client import RangePosition
from canal_server.spark.options.offsets import offset_to_json, version_of
from canal_server.spark.packed.packed_rows import PART

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.spark.packed.packed_rows import Packed

FILE = "b.000001"


def at(position: int, gtids: str = "") -> RangePosition:
    """Return a position in the only file."""
    return RangePosition(0, FILE, position, gtids=gtids)


class Frame:
    """A micro-batch, as Spark hands it over."""

    def __init__(
        self, end: int, *items: Packed, start: int = 100, gtids: str = ""
    ) -> None:
        self._start, self._end, self._gtids = start, end, gtids
        self._items = items

    @property
    def rdd(self) -> Any:
        """Return one partition."""
        return SimpleNamespace(getNumPartitions=lambda: 1)

    def collect(self) -> list[Any]:
        """Return its rows, that of the part first."""
        return list(self._rows())

    def _rows(self) -> Iterator[Any]:
        end = json.dumps(offset_to_json({"d": at(self._end, self._gtids)}))
        start = json.dumps(offset_to_json({"d": at(self._start)}))
        part = {"kind": PART, "destination": "d", "start": start, "end": end}
        yield self._row(part | {"_seq": 0})
        for item in self._items:
            name, columns = item.table, item.columns
            yield self._row(
                {
                    "kind": item.kind, "destination": "d", "db": name.schema,
                    "table": name.table, "_seq": item.seq, "rows": item.count,
                    "sql": item.sql, "event_type": item.event_type,
                    "is_ddl": item.is_ddl, "arrow": item.arrow, "journal": FILE,
                    "columns": json.dumps([_json_of(*c) for c in columns]),
                    "_commit_timestamp": item.committed,
                }
            )  # fmt: skip

    def _row(self, values: dict[str, Any]) -> Any:
        names = (
            "kind destination db table _seq _row rows _commit_version "
            "_commit_timestamp journal position sql event_type is_ddl columns start "
            "end arrow"
        )
        row = dict.fromkeys(names.split()) | {"_row": 0} | values
        return Row(asDict=lambda: row, row=row)


def _json_of(name: str, mysql_type: str, charset: str, is_key: bool) -> dict[str, Any]:
    """Return a column as the source delivers it."""
    return {"name": name, "mysql_type": mysql_type, "charset": charset, "key": is_key}


class Row(SimpleNamespace):
    """A row of Spark, as far as it is used."""

    def __getitem__(self, name: str) -> Any:
        return self.row[name]


def seq(position: int) -> int:
    """Return the number of a position."""
    return version_of(at(position))
