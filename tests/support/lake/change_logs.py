"""Logs of changes in the lake of a mirror, as their readers read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fix_mirror_process import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fix_mirror_process import MirrorProcess


def changes(mirror: MirrorProcess, table: str) -> list[dict[str, Any]]:
    """Return all that readers find of a log, in its order; of copies last in theirs."""
    found = [each for each, _ in changes_by_file(mirror, table)]
    return sorted(found, key=lambda c: (c["_seq"], c["_row"]))


def changes_by_file(
    mirror: MirrorProcess, table: str
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield all changes of a log, with the names of their files."""
    from pyarrow import parquet  # noqa: PLC0415  # an extra

    folder = mirror.path / mirror.pipeline.schema / table
    for file in sorted(folder.glob("date=*/*")):
        if file.suffix == ".parquet":
            rows = parquet.ParquetFile(file).read().to_pylist()
        else:
            rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row in rows:
            yield row, file.name


def folded(mirror: MirrorProcess, table: str) -> dict[tuple[object, ...], Any]:
    """Return what the table is by its log: the last change of each key counts."""
    rows: dict[tuple[object, ...], Any] = {}
    found = changes(mirror, table)
    names = {name: None for change in found for name in change if name[0] != "_"}
    for change in found:
        if change["_change_type"] == "truncate":
            rows.clear()
            continue
        key = (change["id"],)
        rows.pop(key, None)
        if change["_change_type"] != "delete":
            rows[key] = names | {n: plain(change[n]) for n in names if n in change}
    return rows
