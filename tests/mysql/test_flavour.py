"""Distinguishing servers, and their settings."""

from __future__ import annotations

import pytest
from server_variables import MYSQL

from canal_server.mysql.flavour import (
    Flavour,
    parse_version,
    read_server_info,
    server_info,
)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("8.0.36-28", (8, 0, 36)),
        ("9.1", (9, 1, 0)),
        ("10.11.18-MariaDB-0+deb12u1-log", (10, 11, 18)),
        ("5.5.5-10.3.39-MariaDB", (10, 3, 39)),
        ("5.7.44-log", (5, 7, 44)),
    ],
)
def test_versions(text: str, version: tuple[int, int, int]):
    """Suffixes are ignored, and MariaDB's prefix is skipped."""
    assert parse_version(text) == version


def test_a_version_without_numbers():
    """A text without a version is an error, not version zero."""
    with pytest.raises(ValueError, match="not a version: 'unknown'"):
        parse_version("unknown")


@pytest.mark.parametrize(
    ("version", "comment", "flavour"),
    [
        ("8.4.3", "MySQL Community Server - GPL", Flavour.MYSQL),
        ("8.0.36-28", "Percona Server (GPL), Release 28", Flavour.PERCONA),
        ("10.11.18-MariaDB", "Debian 12", Flavour.MARIADB),
        ("11.4.2", "MariaDB Server", Flavour.MARIADB),
    ],
)
def test_flavours(version: str, comment: str, flavour: Flavour):
    """Version and comment identify the vendor."""
    info = server_info(MYSQL | {"version": version, "version_comment": comment})

    assert info.flavour is flavour
    assert info.is_mariadb == (flavour is Flavour.MARIADB)


def test_values_are_normalized():
    """Enumerations are upper case, and the effective time zone is returned."""
    info = server_info(MYSQL)

    assert (info.row_image, info.time_zone, info.server_id) == ("FULL", "CET", 7)
    assert server_info(MYSQL | {"time_zone": "+02:00"}).time_zone == "+02:00"


def test_missing_variables_have_a_meaning():
    """A server without a variable knows only one way."""
    info = server_info({"version": "5.7.1", "server_id": "1"})

    assert info.binlog_format == "ROW"
    assert info.row_image == "FULL"
    assert info.checksum == "NONE"
    assert info.gtid_mode == "OFF"
    assert not info.log_bin


def test_a_real_server(source_server, source):
    """The server's properties are those of the started server."""
    info = read_server_info(source)

    assert info.is_mariadb == (source_server.flavour == "mariadb")
    assert info.log_bin
    assert info.binlog_format == "ROW"
    assert info.row_image == "FULL"
    assert info.checksum == "CRC32"
    assert info.gtid_mode == "ON"
    assert info.server_id == int(source_server.execute("SELECT @@server_id")[0][0])
    assert bool(info.server_uuid) != info.is_mariadb
    names = [str(row[0]) for row in source_server.execute("SHOW GLOBAL VARIABLES")]
    assert bool(info.row_metadata) == ("binlog_row_metadata" in names)
    assert info.binlog_expire_s == (0 if info.is_mariadb else 30 * 24 * 3600)


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, 0),
        ({"binlog_expire_logs_seconds": "60"}, 60),
        ({"expire_logs_days": "1.5"}, 129_600),
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "2"}, 172_800),
        (
            {
                "binlog_expire_logs_seconds": "60",
                "binlog_expire_logs_auto_purge": "OFF",
            },
            0,
        ),
    ],
)
def test_when_files_expire(variables, seconds):
    """The variable of seconds counts before that of days; both may be off."""
    assert server_info(MYSQL | variables).binlog_expire_s == seconds
