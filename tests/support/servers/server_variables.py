"""The global variables of servers that are set up as the manual says."""

from __future__ import annotations

from typing import Final

MYSQL: Final = {
    "version": "8.4.3",
    "version_comment": "MySQL Community Server - GPL",
    "server_id": "7",
    "server_uuid": "6a2e1c1e-0000-4000-8000-000000000001",
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "full",
    "binlog_checksum": "CRC32",
    "gtid_mode": "ON",
    "lower_case_table_names": "0",
    "time_zone": "SYSTEM",
    "system_time_zone": "CET",
}
MARIADB: Final = MYSQL | {
    "version": "10.11.18-MariaDB",
    "version_comment": "Debian 12",
    "server_uuid": "",
    "gtid_mode": "",
}
