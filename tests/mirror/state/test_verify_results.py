"""The last comparison of each table, in the lake."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.verify_results import VerifyResult, VerifyResults

A, B = TableName("shop", "a"), TableName("shop", "b")


@pytest.fixture
def folder(tmp_path):
    """Give the mirror's own folder."""
    return open_folder(LakeSettings(path=str(tmp_path)), "_mirror/copy")


def test_what_was_stored(folder) -> None:
    """The last result of each table."""
    first, second = VerifyResult(A, "different", 5, 3), VerifyResult(A, "equal", 6)
    other = VerifyResult(B, "not compared", 7, 0, "it is löcked")
    for result in (first, second, other):
        VerifyResults(folder).write(result)
    assert VerifyResults(folder).read_all() == {A: second, B: other}


def test_earlier_versions(folder) -> None:
    """They stored no reason; what cannot be understood is left out."""
    text = b'{"table": ["shop", "a"], "outcome": "equal", "at_ms": 5, "differing": 0}'
    folder.write("verified/shop.a.json", text)
    folder.write("verified/shop.b.json", b"{")
    assert VerifyResults(folder).read_all() == {A: VerifyResult(A, "equal", 5)}
