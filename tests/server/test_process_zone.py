"""The name of the process's time zone."""

from __future__ import annotations

import pytest

from canal_server.server.process_zone import zone_name


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
