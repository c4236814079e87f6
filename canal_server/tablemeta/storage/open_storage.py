"""Selects the storage of a destination's table history by its settings."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final

from canal_server.messages import history_messages
from canal_server.mysql.source_settings import Access, Address, Credentials, server_key
from canal_server.tablemeta.storage.mysql_storage import MysqlHistoryStorage
from canal_server.tablemeta.storage.sqlite_storage import (
    FILE_NAME,
    SqliteHistoryStorage,
)
from canal_server.tls.source_tls import TlsMode, TlsOptions

if TYPE_CHECKING:
    from canal_server.config.schema import InstanceConfig, MysqlDatabase
    from canal_server.tablemeta.storage.history_storage import HistoryStorage
    from canal_server.tablemeta.storage.mysql_lock import Owner

_log = logging.getLogger(__name__)

JAVA_FILE_NAME: Final = "h2.mv.db"


def open_storage(
    config: InstanceConfig, *, read_only: bool = False, owner: Owner | None = None
) -> HistoryStorage:
    """Return the configured storage; the caller must `open` it.

    A `read_only` storage may be read while a server writes it, and is not created if it
    does not exist. `owner`: for a destination that servers share.
    """
    settings = config.table_meta
    database = settings.database
    if database is None:
        return SqliteHistoryStorage(settings.dir / FILE_NAME, read_only=read_only)
    access = history_access(config, database)
    return MysqlHistoryStorage(
        access, database.name, config.destination, read_only=read_only, owner=owner
    )


def history_bytes(config: InstanceConfig) -> int | None:
    """Return the size of the configured file; None: there is none, or a database."""
    if config.table_meta.database is not None:
        return None
    # A server with many destinations asks often: no objects of paths.
    path = f"{config.table_meta.dir}/{FILE_NAME}"
    try:
        found = os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return None
    with contextlib.suppress(OSError):  # what was not moved into the file yet
        found += os.stat(f"{path}-wal").st_size  # noqa: PTH116
    return found


def history_access(
    config: InstanceConfig, database: MysqlDatabase, *, timeout_s: float | None = None
) -> Access:
    """Return how to reach the server of a history, with a time-out of at most this."""
    settings = config.table_meta
    limit_s = config.source.so_timeout_s
    if timeout_s is not None:
        limit_s = min(limit_s, timeout_s)
    return Access(
        named_by="canal.instance.tsdb.url",
        address=Address(database.address.host, database.address.port),
        credentials=Credentials(settings.user, settings.password),
        tls=TlsOptions(mode=TlsMode[database.ssl_mode.name]),
        server_key=server_key(
            database.server_public_key, database.allow_public_key_retrieval
        ),
        connect_timeout_s=limit_s,
        io_timeout_s=limit_s,
    )


def warn_of_java_history(config: InstanceConfig) -> bool:
    """Log that an H2 history of the Java server is ignored; returns whether it did.

    Call it when a history starts.
    """
    found = config.table_meta.dir / JAVA_FILE_NAME
    if config.table_meta.database is not None or not found.exists():
        return False
    history_messages.JAVA_HISTORY_IGNORED.log(_log, config.destination, found)
    return True
