"""The table history of a destination, opened to read it beside the server."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.errors import TableMetaError
from canal_server.tablemeta.history.tsdb import TableMetaTsdb
from canal_server.tablemeta.storage.open_storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.config.schema import InstanceConfig
    from canal_server.tablemeta.storage.history_storage import HistoryStorage


@dataclass(frozen=True, slots=True)
class History:
    """The table history of a destination, open."""

    config: InstanceConfig
    storage: HistoryStorage
    tsdb: TableMetaTsdb


@contextlib.contextmanager
def opened_history(
    config: InstanceConfig, *, read_only: bool = True
) -> Iterator[History]:
    """Open the history of a destination, also while a server writes it.

    Raises TableMetaStoreError, and TableMetaError if the history is empty.
    """
    storage = open_storage(config, read_only=read_only)
    tsdb = TableMetaTsdb(storage)
    try:
        known = tsdb.init(config.destination)
        if not known and read_only:
            raise TableMetaError(
                f"the table history of destination {config.destination} is empty: the"
                " server starts it when it first connects to its source"
            )
        yield History(config, storage, tsdb)
    finally:
        tsdb.close()
