"""Distinguishing servers, and whether they allow capture."""

from __future__ import annotations

import pytest

from canal_server.errors import SourceRefused
from canal_server.mysql.flavour import (
    Flavour,
    capture_warnings,
    check_capture,
    parse_version,
    read_server_info,
    server_info,
)

MYSQL = {
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


def test_a_good_server_passes():
    """Settings that allow capture raise nothing."""
    check_capture(
        server_info(MYSQL), address="db:3306", formats=["ROW"], images=["FULL"]
    )


def test_all_problems_are_reported_at_once():
    """Each setting that prevents capture is named with its value and its remedy."""
    info = server_info(
        MYSQL
        | {
            "log_bin": "OFF",
            "binlog_format": "STATEMENT",
            "binlog_row_image": "minimal",
        }
    )

    with pytest.raises(SourceRefused) as refused:
        check_capture(info, address="db:3306", formats=["ROW"], images=["FULL"])
    for part in (
        "db:3306",
        "set log_bin",
        "binlog_format is STATEMENT",
        "SET GLOBAL binlog_format=ROW",
        "binlog_row_image is MINIMAL",
    ):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("value", "formats", "remedy"),
    [
        ("STATEMENT", ["ROW"], "run SET GLOBAL binlog_format=ROW or allow STATEMENT"),
        ("STATEMENT", ["MIXED"], "run SET GLOBAL binlog_format=MIXED or allow"),
        ("ROW", ["STATEMENT"], "STATEMENT; allow ROW there"),
    ],
)
def test_the_remedy_fits(value, formats, remedy):
    """The remedy never names the current value or a value that is not allowed."""
    info = server_info(MYSQL | {"binlog_format": value})
    with pytest.raises(SourceRefused) as refused:
        check_capture(info, address="db:3306", formats=formats)
    assert remedy in str(refused.value)
    assert f"binlog_format={value}" not in str(refused.value)


def test_format_and_image_are_checked_only_on_request():
    """Without allowed values every format and image passes."""
    info = server_info(MYSQL | {"binlog_format": "MIXED", "binlog_row_image": "noblob"})

    check_capture(info, address="db:3306")
    with pytest.raises(SourceRefused, match="NOBLOB"):
        check_capture(info, address="db:3306", images=["FULL"])


def test_statements_instead_of_rows_are_worth_a_warning():
    """A source that logs statements is read, and the log says what is missing."""
    assert capture_warnings(server_info(MYSQL)) == []
    (line,) = capture_warnings(server_info(MYSQL | {"binlog_format": "MIXED"}))
    assert "MIXED" in line
    assert "SET GLOBAL binlog_format=ROW" in line


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
    check_capture(info, address=source.access.address, formats=["ROW"])
