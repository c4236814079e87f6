"""The name of the process's time zone."""

from __future__ import annotations

import pytest

from canal_server.server.process_zone import unknown_zone, zone_name


@pytest.mark.parametrize(
    ("tz", "name"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":America/New_York", "America/New_York"),
        ("", "UTC"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", ""),
        ("/somewhere", ""),
    ],
)
def test_tz_names_it(monkeypatch, tz, name) -> None:
    """TZ takes precedence; a rule that is not a name results in none."""
    monkeypatch.setenv("TZ", tz)
    assert zone_name() == name


def test_the_systems_zone_is_known_by_its_link(monkeypatch, tmp_path) -> None:
    """Without TZ the link's target names the zone, a copy does not, absence is UTC."""
    monkeypatch.delenv("TZ", raising=False)
    file = tmp_path / "zoneinfo" / "Asia" / "Tokyo"
    file.parent.mkdir(parents=True)
    file.touch()
    local = tmp_path / "localtime"
    assert zone_name(local) == "UTC"
    local.symlink_to(file)
    assert zone_name(local) == "Asia/Tokyo"
    local.unlink()
    local.touch()
    assert zone_name(local) == ""


@pytest.mark.parametrize(
    ("tz", "is_unknown"),
    [
        ("Europe/Berlin", False),
        (":Europe/Berlin", False),
        ("UTC", False),
        ("", False),
        ("CET-1CEST,M3.5.0,M10.5.0/3", False),
        ("<+03>-3", False),
        ("Europe/Berlim", True),
        ("Mars/Base", True),
        ("CEST", True),
        ("/somewhere", True),
        ("x" * 5_000, True),
    ],
)
def test_a_tz_that_is_no_zone(monkeypatch, tz, is_unknown) -> None:
    """Neither a file of this machine nor a rule: the C library takes it as UTC."""
    monkeypatch.setenv("TZ", tz)
    assert unknown_zone() == (tz if is_unknown else "")


def test_without_tz_no_zone_is_unknown(monkeypatch) -> None:
    """Then the zone is that of the system."""
    monkeypatch.delenv("TZ", raising=False)
    assert unknown_zone() == ""
