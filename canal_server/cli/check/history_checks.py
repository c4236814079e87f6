"""Checks of the storage of a destination's table history."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from canal_server.errors import SourceError, TableMetaStoreError
from canal_server.model.check_results import fail, ok, skip, warn
from canal_server.mysql.account_grants import read_grants
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_answers import answer_about
from canal_server.mysql.server_errors import account_text
from canal_server.tablemeta.storage.open_storage import history_access, open_storage
from canal_server.tablemeta.storage.sqlite_storage import FILE_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig, MysqlDatabase
    from canal_server.model.check_results import CheckResult
    from canal_server.mysql.account_grants import Grants

NAME: Final = "table_history"
RIGHTS: Final = ("CREATE", "SELECT", "INSERT", "UPDATE", "DELETE")
URL: Final = "canal.instance.tsdb.url"
DIR: Final = "canal.instance.tsdb.dir"
CONNECT_S: Final = 5.0


def check_history(config: InstanceConfig) -> CheckResult:
    """Check that the history of a source can be opened and written."""
    settings = config.table_meta
    if not settings.enable:
        return warn(
            NAME,
            "no table history: the columns of rows before an ALTER TABLE are unknown",
            "set canal.instance.tsdb.enable = true",
        )
    if settings.database is None:
        return _check_file(config, settings.dir / FILE_NAME)
    return _check_database(config, settings.database)


def _check_file(config: InstanceConfig, path: Path) -> CheckResult:
    if not path.exists():
        above = next((each for each in path.parents if each.exists()), path)
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            return ok(NAME, f"{path} can be created")
        why = "cannot be written" if above.is_dir() else "is not a folder"
        return fail(NAME, f"{path} cannot be created: {above} {why}", f"set {DIR}")
    storage = open_storage(config, read_only=True)
    try:
        storage.open()
    except TableMetaStoreError as error:
        return fail(NAME, str(error))
    finally:
        storage.close()
    if not os.access(path, os.W_OK):
        return fail(NAME, f"{path} cannot be written", f"run chown on {path}")
    return ok(NAME, f"{path} can be read and written")


def _check_database(config: InstanceConfig, database: MysqlDatabase) -> CheckResult:
    access = history_access(config, database, timeout_s=CONNECT_S)
    where = f"{database.name} on {access.address}"
    control = ControlConnection(access)
    try:
        with control:
            with answer_about("its schemas", access.address):
                found = control.query(
                    "SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s",
                    (database.name,),
                )
            grants, account = read_grants(control), control.account()
            is_read_only = _is_read_only(control)
    except SourceError as error:
        return fail(NAME, f"the table history in {where}: {error}", f"check {URL}")
    return database_result(
        database.name,
        where,
        exists=bool(found),
        is_read_only=is_read_only,
        grants=grants,
        account=account,
    )


def _is_read_only(control: ControlConnection) -> bool:
    with answer_about("its variables", control.access.address):
        return str(control.query("SELECT @@global.read_only")[0][0]) not in ("0", "OFF")


def database_result(
    name: str,
    where: str,
    *,
    exists: bool,
    is_read_only: bool,
    grants: Grants | None,
    account: tuple[str, str],
) -> CheckResult:
    """Check what is known of the database of a history."""
    lacking = [
        right
        for right in RIGHTS
        if grants is not None and grants.lacks(right, name, "")
    ]
    named = f"`{name.replace('`', '``')}`"
    rights = f"GRANT {', '.join(RIGHTS)} ON {named}.* TO {account_text(*account)}"
    if not exists and not lacking:
        return fail(
            NAME,
            f"the table history: there is no database {where}",
            f"have an administrator run: CREATE DATABASE {named}",
        )
    if lacking:
        return fail(
            NAME,
            f"the table history in {where}: account {account[0]} lacks"
            f" {', '.join(lacking)}",
            f"have an administrator run: {rights}",
        )
    if is_read_only:
        return fail(
            NAME,
            f"the table history in {where}: the server is read-only",
            f"set a writable server in {URL}",
        )
    if grants is None:
        return skip(NAME, f"the account in {where}", "the server does not show grants")
    return ok(NAME, f"the table history in {where} can be read and written")
