"""What kind of server the source is, and its settings.

Whether these allow capture is decided in `capture_settings`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from canal_server.mysql.server_answers import reads_answers

if TYPE_CHECKING:
    from canal_server.mysql.control_connection import ControlConnection

Version = tuple[int, int, int]

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")

_DAY_S = 24 * 3600

_VARIABLES = (
    "version",
    "version_comment",
    "server_id",
    "server_uuid",
    "log_bin",
    "binlog_storage_engine",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_expire_logs_seconds",
    "binlog_expire_logs_auto_purge",
    "expire_logs_days",
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
    binlog_engine: str  # that keeps the binlog (MariaDB 12.3); empty: files
    binlog_format: str  # ROW, STATEMENT, MIXED
    row_image: str  # FULL, MINIMAL, NOBLOB, FULL_NODUP
    row_metadata: str  # FULL, MINIMAL; MariaDB also NO_LOG
    row_value_options: str  # PARTIAL_JSON
    binlog_expire_s: int  # after which a file may be purged; 0: never
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
        binlog_engine=upper("binlog_storage_engine"),
        # A server without these variables knows no other format or image.
        binlog_format=upper("binlog_format", "ROW"),
        row_image=upper("binlog_row_image", "FULL"),
        row_metadata=upper("binlog_row_metadata"),
        row_value_options=upper("binlog_row_value_options"),
        binlog_expire_s=_expire_s(variables),
        checksum=upper("binlog_checksum", "NONE"),
        gtid_mode="ON" if flavour is Flavour.MARIADB else upper("gtid_mode", "OFF"),
        lower_case_table_names=int(variables.get("lower_case_table_names") or 0),
        time_zone=time_zone,
    )


def _expire_s(variables: dict[str, str]) -> int:
    """Return after how long a binlog file may be purged; 0: never, or unknown."""
    if variables.get("binlog_expire_logs_auto_purge", "").upper() in ("OFF", "0"):
        return 0
    seconds = int(variables.get("binlog_expire_logs_seconds") or 0)
    days = float(variables.get("expire_logs_days") or 0)  # MariaDB: with fractions
    return seconds or round(days * _DAY_S)


def _flavour(version: str, comment: str) -> Flavour:
    if "mariadb" in version.lower() or "mariadb" in comment.lower():
        return Flavour.MARIADB
    return Flavour.PERCONA if "percona" in comment.lower() else Flavour.MYSQL
