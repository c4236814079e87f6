"""When tables were compacted and vacuumed last, over restarts."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.upkeep_times import FILE, UpkeepTimes

A, B = TableName("shop", "ä.1"), TableName("shop", "b")


@pytest.fixture
def folder(tmp_path):
    """Give the mirror's own folder."""
    return open_folder(LakeSettings(path=str(tmp_path)), "_mirror/copy")


def test_what_was_stored(folder) -> None:
    """It is longer ago by the time since then."""
    UpkeepTimes(folder, lambda: 1_000.0).write({A: 10.0, B: 0.0}, {B: 500.0})
    found = UpkeepTimes(folder, lambda: 1_060.0).read()
    assert found == ({A: 70.0, B: 60.0}, {B: 560.0})


def test_a_clock_that_was_set_back(folder) -> None:
    """Nothing was done in the future."""
    UpkeepTimes(folder, lambda: 1_000.0).write({A: 10.0}, {})
    assert UpkeepTimes(folder, lambda: 0.0).read() == ({A: 0.0}, {})


@pytest.mark.parametrize("data", [None, b"", b"no", b"[]", b'{"compacted": [[1]]}'])
def test_nothing_to_read(folder, data: bytes | None) -> None:
    """What is missing or damaged counts as nothing."""
    if data is not None:
        folder.write(FILE, data)
    assert UpkeepTimes(folder).read() == ({}, {})
