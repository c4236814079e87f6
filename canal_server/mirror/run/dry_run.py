"""What a mirror would do, without doing it: its tables, and all problems found.

Nothing is written, neither to the database nor to the lake.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError, LakeError, SourceError, SourceRefused
from canal_server.mirror.follow.foreign_keys import hidden_keys
from canal_server.mirror.follow.source_columns import left_out_of, unknown_to
from canal_server.mirror.lake.lake_storage import check_bucket, open_folder
from canal_server.mirror.run.overview import aligned
from canal_server.mirror.run.resume import LEFT_OUT, SHADOW, binlog_problems
from canal_server.mirror.session.spark_session import in_settings, source_options
from canal_server.mirror.settings.lake_paths import checkpoint_warning, path_warnings
from canal_server.mirror.settings.selected_tables import (
    HIDDEN_PREFIX,
    survey,
    target_of,
)
from canal_server.mirror.state.known_tables import known_tables, targets_of
from canal_server.mirror.state.lake_tables import open_table, other_format
from canal_server.mirror.state.other_mirrors import owned_by_other
from canal_server.mirror.state.state import States
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.server_errors import account_text
from canal_server.runtime.private_files import reason_of
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.selected_tables import FoundTable
    from canal_server.mirror.settings.table_values import MirrorTable, TableName
    from canal_server.mirror.state.state import TableState
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.source_settings import Access

PATIENCE_MS: Final = 2_000  # for the server, while a person waits
HEADINGS: Final = (
    "table", "target", "format", "deletes", "key", "columns", "masked", "rows, about",
    "chunks, about",
)  # fmt: skip
_MAY_LOCK: Final = ("LOCK TABLES", "ALL PRIVILEGES")


@dataclass(slots=True)
class DryRun:
    """What a dry run has found."""

    settings: MirrorSettings
    database: str = ""
    reads: str = ""  # the replica from which rows are copied, if any
    server: str = ""
    tables: tuple[FoundTable, ...] = ()
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield it as readable text, except the problems."""
        settings = self.settings
        yield f"mirror {settings.name}: {len(self.tables)} tables"
        yield f"database: {self.database or settings.source.access.address}"
        if self.reads:
            yield f"rows are copied from: {self.reads}"
        yield f"canal-server: {self.server or settings.canal.servers}"
        yield f"lake: {settings.lake.path}"
        if self.tables:
            yield ""
            yield from aligned([HEADINGS, *map(self._row, self.tables)])
        if self.warnings:
            yield ""
            yield from (f"warning: {each}" for each in self.warnings)

    def _row(self, found: FoundTable) -> tuple[str, ...]:
        table = found.table
        masked = [f"{c.target}: {c.mask.kind}" for c in table.columns if c.mask]
        left_out = len(found.columns) - len(table.columns)
        columns = f"{len(table.columns)}"
        return (
            str(table.source),
            table.target,
            table.form,
            "-" if table.is_log else table.deletes,
            ", ".join(table.key) or "none",
            f"{columns}, {left_out} left out" if left_out else columns,
            ", ".join(masked) or "-",
            f"{found.rows:,}",
            f"{self._chunks(found):,}",
        )

    def _chunks(self, found: FoundTable) -> int:
        if found.table.is_keyless:
            return 1
        return max(1, -(-found.rows // self.settings.copy.chunk_rows))


def dry_run(settings: MirrorSettings) -> DryRun:
    """Check the database, the server and the lake without changing them."""
    found = DryRun(settings)
    _look_at_database(found, _known(settings))
    if settings.source.replica is not None:
        _look_at_replica(found, settings.source.replica)
    _look_at_server(found)
    found.warnings += path_warnings(settings)
    if warning := checkpoint_warning(settings):
        found.warnings.append(warning)
    _look_at_lake(found)
    _look_at_spark(found)
    return found


def _known(settings: MirrorSettings) -> dict[TableName, TableState]:
    try:
        return known_tables(settings)
    except LakeError:
        return {}  # `_look_at_lake` says why


def _look_at_database(found: DryRun, states: Mapping[TableName, TableState]) -> None:
    settings = found.settings
    try:
        with ControlConnection(settings.source.access) as control:
            info = read_server_info(control)
            found.database = f"{settings.source.access.address}, {_version(info)}"
            found.problems += binlog_problems(info)
            seen = survey(control, settings, targets_of(states))
            found.tables = seen.tables
            found.problems += seen.problems
            if seen.left_out:
                names = ", ".join(map(str, seen.left_out))
                found.warnings.append(f"{LEFT_OUT}: {names}")
            if seen.shadows:
                names = ", ".join(map(str, seen.shadows))
                found.warnings.append(f"{SHADOW}: {names}")
            keys = hidden_keys(control, settings)
            found.warnings += [each.warning for each in keys if each.warning]
            if settings.source.replica is None:
                _check_rights(found, control)
    except SourceError as error:
        found.problems.append(f"source: {in_settings(str(error))}")


def _look_at_replica(found: DryRun, access: Access) -> None:
    try:
        with ControlConnection(access) as control:
            info = read_server_info(control)
            found.reads = f"{access.address}, {_version(info)}"
            _check_rights(found, control)
    except SourceError as error:
        found.problems.append(f"source.replica: {in_settings(str(error))}")


def _version(info: ServerInfo) -> str:
    kind = "MariaDB" if info.is_mariadb else "MySQL"
    return f"{kind} {info.version_text}"


def _check_rights(found: DryRun, control: ControlConnection) -> None:
    """Add a problem for each right that the account lacks."""
    account = control.access.credentials.user
    for each in found.tables:
        try:
            control.query(_no_rows(each.table))
        except SourceRefused as error:
            found.problems.append(
                f"table {each.table.source}: account {account} may not read all "
                f"columns that are mirrored: {in_settings(str(error))}"
            )
    keyless = [each.table for each in found.tables if each.table.is_keyless]
    if not keyless or not found.settings.copy.keyless_lock:
        return
    grants = [str(row[0]).upper() for row in control.query("SHOW GRANTS")]
    if not any(right in grant for grant in grants for right in _MAY_LOCK):
        found.problems.append(
            f"copy.keyless_lock: account {account} may not lock table "
            f"{keyless[0].source}, which has no primary key; have an administrator "
            f"run: GRANT LOCK TABLES ON {_quoted(keyless[0].source.schema)}.* TO "
            f"{account_text(account)}"
        )


def _no_rows(table: MirrorTable) -> str:
    columns = ", ".join(_quoted(column.name) for column in table.columns)
    name = ".".join(map(_quoted, table.source))
    return f"SELECT {columns} FROM {name} LIMIT 0"  # noqa: S608  # quoted


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _look_at_server(found: DryRun) -> None:
    settings = found.settings
    destination = settings.canal.destination
    options = source_options(settings) | {"retryTimeoutMs": str(PATIENCE_MS)}
    channel = Channel(read_options(options), destination)
    try:
        position = channel.call(lambda client: client.locate(destination, "latest"))
        found.server = (
            f"{channel.server}, destination {destination}, reads up to "
            f"{position.journal}:{position.position}"
        )
        for each in found.tables:
            found.problems += _compared(each, channel, settings)
    except (CanalError, OSError) as error:
        found.problems.append(f"canal: {in_settings(str(error))}")
    finally:
        channel.close()


def _compared(
    found: FoundTable, channel: Channel, settings: MirrorSettings
) -> Iterator[str]:
    """Yield differences between the server's and the account's view of a table."""
    name = found.table.source
    known = channel.call(lambda c: c.schema(channel.destination, *name))
    if not known.columns:
        yield f"table {name}: {unknown_to(channel.destination)}"
        return
    if known.left_out:
        yield f"table {name}: {left_out_of(known, channel.destination)}"
    seen = {each.name for each in found.columns}
    hidden = [
        each.name
        for each in known.columns
        if each.name not in seen and not each.name.startswith(HIDDEN_PREFIX)
    ]
    if hidden:
        account = settings.source.read_from.credentials.user
        yield (
            f"table {name}: account {account} does not see {', '.join(hidden)}; have "
            f"an administrator run: GRANT SELECT ON {'.'.join(map(_quoted, name))} TO "
            f"{account_text(account)}"
        )


def _look_at_lake(found: DryRun) -> None:
    try:
        _check_folder(found)
        folder = open_folder(found.settings.lake, found.settings.folder)
        states = States(folder).read_all()
        _keep_folders(found, states)
        for each in found.tables:
            lake = open_table(found.settings, each.table)
            state = states.get(each.table.source)
            copy_id = "" if state is None else state.copy_id
            problem = owned_by_other(found.settings, each.table, lake, copy_id)
            problem = problem or other_format(found.settings, each.table)
            if problem:
                found.problems.append(f"table {each.table.source}: {problem}")
    except LakeError as error:
        found.problems.append(f"lake: {error}")


def _keep_folders(found: DryRun, states: Mapping[TableName, TableState]) -> None:
    """Show tables in the folders that they have so far, if they keep them."""
    found.tables = tuple(
        _in_its_folder(each, states, found.settings) for each in found.tables
    )


def _in_its_folder(
    found: FoundTable, states: Mapping[TableName, TableState], settings: MirrorSettings
) -> FoundTable:
    name = found.table.source
    state, rule = states.get(name), settings.rule_of(name)
    if state is None or rule is None:
        return found
    target = target_of(name, rule, state.target)
    return replace(found, table=replace(found.table, target=target))


def _check_folder(found: DryRun) -> None:
    lake = found.settings.lake
    if not lake.is_local:
        check_bucket(lake)
        open_folder(lake, found.settings.folder).names()
        return
    there = Path(lake.path)
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        found.problems.append(f"lake.path: {there} is not a folder")
        return
    try:
        # Without a name, where the file system can do that.
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        found.problems.append(
            f"lake.path: {there} cannot be written: {reason_of(error)}"
        )


def _look_at_spark(found: DryRun) -> None:
    if importlib.util.find_spec("deltalake") is None:
        found.problems.append(
            "deltalake is not installed: pip install 'canal-server[mirror]'"
        )
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java").exists() if home else shutil.which("java")
    if not java:
        where = f"not found in JAVA_HOME = {home}" if home else "not found in PATH"
        found.problems.append(
            f"Spark needs Java 17 or later, {where}: install it, or set JAVA_HOME"
        )
