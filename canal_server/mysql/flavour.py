"""What kind of server the source is, and whether its settings allow capture."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from canal_server.errors import SourceRefused
from canal_server.mysql.server_answers import reads_answers

if TYPE_CHECKING:
    from collections.abc import Collection

    from canal_server.mysql.control_connection import ControlConnection

Version = tuple[int, int, int]

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")

_VARIABLES = (
    "version",
    "version_comment",
    "server_id",
    "server_uuid",
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_checksum",
    "gtid_mode",
    "lower_case_table_names",
    "time_zone",
    "system_time_zone",
)


class Flavour(Enum):
    """The vendor of a server; Percona's differs from MySQL's in name only."""

    MYSQL = "mysql"
    PERCONA = "percona"
    MARIADB = "mariadb"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """A server's global settings, as far as capture depends on them.

    Enumeration values are upper case. A text is empty where the server has no such
    variable.
    """

    flavour: Flavour
    version: Version
    version_text: str
    server_id: int
    server_uuid: str  # empty for MariaDB
    log_bin: bool
    binlog_format: str  # ROW, STATEMENT, MIXED
    row_image: str  # FULL, MINIMAL, NOBLOB, FULL_NODUP
    checksum: str  # CRC32, NONE
    gtid_mode: str  # ON, OFF, ON_PERMISSIVE, OFF_PERMISSIVE; MariaDB: always ON
    lower_case_table_names: int
    time_zone: str  # of a session that sets none; a name or an offset

    @property
    def is_mariadb(self) -> bool:
        """Whether GTIDs, statements and events have MariaDB's format."""
        return self.flavour is Flavour.MARIADB

    @property
    def has_gtids(self) -> bool:
        """Whether all transactions have GTIDs."""
        return self.gtid_mode == "ON"

    def __str__(self) -> str:
        return f"{self.flavour.value} {self.version_text}, server id {self.server_id}"


def parse_version(text: str) -> Version:
    """Return the three numbers of a version such as `8.0.36-28` or `9.1`.

    Raises ValueError when it has none.
    """
    found = _VERSION.search(text.removeprefix("5.5.5-"))  # MariaDB's disguise
    if found is None:
        raise ValueError(f"not a version: {text!r}")
    return int(found[1]), int(found[2]), int(found[3] or 0)


def version_number(text: str) -> int:
    """Return a version as in executable comments: 80401 for 8.4.1; 0: unknown."""
    try:
        major, minor, patch = parse_version(text)
    except ValueError:
        return 0
    return major * 10000 + minor * 100 + patch


@reads_answers("its variables")
def read_server_info(connection: ControlConnection) -> ServerInfo:
    """Query the settings of an open connection's server, in one statement."""
    marks = ", ".join(["%s"] * len(_VARIABLES))
    rows = connection.query(
        f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", _VARIABLES
    )
    return server_info({str(name): str(value) for name, value in rows})


def server_info(variables: dict[str, str]) -> ServerInfo:
    """Build the info from global variables; missing ones count as empty."""
    version_text = variables.get("version", "")
    flavour = _flavour(version_text, variables.get("version_comment", ""))
    time_zone = variables.get("time_zone", "")
    if time_zone.upper() in ("", "SYSTEM"):
        time_zone = variables.get("system_time_zone", "")

    def upper(name: str, missing: str = "") -> str:
        return variables.get(name, missing).upper()

    return ServerInfo(
        flavour=flavour,
        version=parse_version(version_text),
        version_text=version_text,
        server_id=int(variables.get("server_id") or 0),
        server_uuid=variables.get("server_uuid", ""),
        log_bin=upper("log_bin") in ("ON", "1"),
        # A server without these variables knows no other format or image.
        binlog_format=upper("binlog_format", "ROW"),
        row_image=upper("binlog_row_image", "FULL"),
        checksum=upper("binlog_checksum", "NONE"),
        gtid_mode="ON" if flavour is Flavour.MARIADB else upper("gtid_mode", "OFF"),
        lower_case_table_names=int(variables.get("lower_case_table_names") or 0),
        time_zone=time_zone,
    )


def _flavour(version: str, comment: str) -> Flavour:
    if "mariadb" in version.lower() or "mariadb" in comment.lower():
        return Flavour.MARIADB
    return Flavour.PERCONA if "percona" in comment.lower() else Flavour.MYSQL


def check_capture(
    info: ServerInfo,
    *,
    address: object,
    formats: Collection[str] = (),
    images: Collection[str] = (),
) -> None:
    """Raise SourceRefused when the server's settings make capture impossible.

    `formats` and `images` are the allowed values of binlog_format and
    binlog_row_image, in upper case; empty for no check. All problems are reported at
    once, each with its remedy.
    """
    problems = []
    if not info.log_bin:
        problems.append("binary logging is off: set log_bin and restart it")
    if info.server_id == 0:
        problems.append("server_id is 0, which allows no replicas: set another one")
    if formats and info.binlog_format not in formats:
        problems.append(
            f"binlog_format is {info.binlog_format}, allowed by "
            f"canal.instance.binlog.format: {', '.join(sorted(formats))}; "
            f"{_remedy('binlog_format', info.binlog_format, 'ROW', formats)}"
        )
    if images and info.row_image not in images:
        problems.append(
            f"binlog_row_image is {info.row_image}, allowed by "
            f"canal.instance.binlog.image: {', '.join(sorted(images))}; "
            f"{_remedy('binlog_row_image', info.row_image, 'FULL', images)}"
        )
    if problems:
        raise SourceRefused(f"server {address} ({info}): {'; '.join(problems)}")


def _remedy(name: str, value: str, best: str, allowed: Collection[str]) -> str:
    """Return the remedy for a variable whose value is not allowed."""
    if value == best:
        # The server already has the best value.
        return f"allow {value} there"
    proposed = best if best in allowed else min(allowed)
    return f"run SET GLOBAL {name}={proposed} or allow {value} there"


def capture_warnings(info: ServerInfo) -> list[str]:
    """Return what an operator should know about settings that allow capture."""
    if info.binlog_format == "ROW":
        return []
    return [
        (
            f"binlog_format of the source is {info.binlog_format}: changes that it "
            "logs as statements arrive without rows; run SET GLOBAL binlog_format=ROW"
        )
    ]
