"""What is read of a server for its checks, each part by itself.

A part that the server refuses is the error instead: the checks that need it are
skipped, and say why.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from canal_server.errors import CanalError
from canal_server.mysql.binlogs import current_end
from canal_server.mysql.capture_settings import CaptureFacts, read_capture_facts
from canal_server.mysql.server_answers import answer_about, reads_answers
from canal_server.runtime.lifecycle import Stop
from canal_server.source.archive.archive_survey import survey_archive
from canal_server.source.archive.source_binlogs import readable_logs, unreadable_gtids
from canal_server.source.check.unlogged_changes import unlogged_changes
from canal_server.source.check.visible_tables import hidden_keys, visible_tables
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.binlog_scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.silent_foreign_keys import ForeignKey
    from canal_server.source.archive.archive_survey import ArchiveSurvey

Table = tuple[str, str]
_Part = TypeVar("_Part")

# "SHOW REPLICAS was added in MySQL 8.0.22" (MySQL manual, 15.7.7.33).
_REPLICAS_SINCE: Final = (8, 0, 22)


@dataclass(frozen=True, slots=True)
class OtherReplica:
    """A replica that is connected to a server, by the host name that it gave."""

    server_id: int
    host: str


@dataclass(frozen=True, slots=True)
class SourceClock:
    """The time by the clock of a server, and how far that is ahead of our own."""

    now_s: float
    ahead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """A server at one moment.

    `oldest_ms` is when the oldest binlog file was started; None: it was not read.
    """

    address: str
    capture: CaptureFacts
    clock: SourceClock | CanalError
    tables: list[Table] | CanalError
    keys: list[ForeignKey] | CanalError
    files: SourceFiles | CanalError
    end_file: str | CanalError
    purged: str | CanalError
    replicas: list[OtherReplica] | CanalError
    unlogged: list[str] | CanalError
    oldest_ms: int | CanalError | None = None
    archive: ArchiveSurvey | CanalError | None = None  # None: there is none

    @property
    def info(self) -> ServerInfo:
        """Return the settings of the server."""
        return self.capture.info


def read_source_facts(
    control: ControlConnection,
    config: InstanceConfig,
    *,
    with_oldest: bool = False,
    clock: Callable[[], float] = time.time,
) -> SourceFacts:
    """Query an open connection's server.

    `with_oldest`: also read the beginning of the oldest file. Raises SourceError only
    if not even the settings can be read.
    """
    capture = read_capture_facts(control)
    info = capture.info
    tables = _part(lambda: visible_tables(control))
    files = _part(lambda: SourceFiles(tuple(readable_logs(control))))
    return SourceFacts(
        address=str(control.access.address),
        capture=capture,
        clock=_part(lambda: _clock(control, clock)),
        tables=tables,
        keys=tables
        if isinstance(tables, CanalError)
        else _part(lambda: hidden_keys(control, tables)),
        files=files,
        end_file=_part(lambda: current_end(control, info).file),
        purged=_part(lambda: unreadable_gtids(control, info) if info.has_gtids else ""),
        replicas=_part(lambda: _replicas(control, info)),
        unlogged=tables
        if isinstance(tables, CanalError)
        else _part(lambda: unlogged_changes(control, info, config.filter, tables)),
        oldest_ms=_part(lambda: _oldest_ms(control, config, files))
        if with_oldest
        else None,
        archive=_part(lambda: survey_archive(control)),
    )


def _part(read: Callable[[], _Part]) -> _Part | CanalError:
    try:
        return read()
    except CanalError as error:
        return error


@reads_answers("its clock")
def _clock(control: ControlConnection, clock: Callable[[], float]) -> SourceClock:
    before_s = clock()
    rows = control.query("SELECT UNIX_TIMESTAMP(NOW(3))")
    now_s = float(str(rows[0][0]))
    return SourceClock(now_s, now_s - (before_s + clock()) / 2)


@reads_answers("its replicas")
def _replicas(control: ControlConnection, info: ServerInfo) -> list[OtherReplica]:
    is_new = not info.is_mariadb and info.version >= _REPLICAS_SINCE
    rows = control.query_named("SHOW REPLICAS" if is_new else "SHOW SLAVE HOSTS")
    return [
        OtherReplica(
            int(str(row.get("Server_Id", row.get("Server_id", 0)))),
            str(row.get("Host", "")),
        )
        for row in rows
    ]


def _oldest_ms(
    control: ControlConnection, config: InstanceConfig, files: SourceFiles | CanalError
) -> int:
    if isinstance(files, CanalError):
        raise files
    with answer_about("its binary logs", control.access.address):
        oldest = files.files[0].name
    return Scanner(config, control.access, Stop()).first_event_ms(oldest)
