"""A process that applies changes from a file to a table of the lake, batch by batch.

Reports on its standard output how far it is after each of them. Run again, it goes on
where the table is. The arguments: a folder with `changes.arrow` and `table.pickle`, and
how many changes are a batch. If the folder has `store.json`, a path and options, the
table is there.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from fix_lake import COPY, opened

from canal_server.mirror.lake.delta.delta import DeltaLakeTable

if TYPE_CHECKING:
    from canal_server.mirror.state.lake_tables import LakeTable


def run(folder: Path, rows: int) -> None:
    """Apply what is not applied yet; the last batch ends with the last change."""
    table = pickle.loads((folder / "table.pickle").read_bytes())
    with pa.ipc.open_file(str(folder / "changes.arrow")) as file:
        changes = file.read_all()
    store = folder / "store.json"
    lake: LakeTable
    if store.exists():
        path, options = json.loads(store.read_text())
        lake = DeltaLakeTable(path, table, options)
    else:
        lake = opened(folder / "lake", table)
    for first in range(0, len(changes), rows):
        batch = changes.slice(first, rows)
        upto = batch["_seq"][-1].as_py() + 1
        lake.apply(COPY, batch, upto, {"first": str(first)})
        print(upto, flush=True)
        lake.compact()


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
