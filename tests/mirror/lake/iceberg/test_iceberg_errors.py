"""Errors of a catalog show no secrets, and a request that was repeated is none."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from fix_lake import COPY, LakeRows, in_order, lake_rows, lake_table, published

from canal_server.errors import LakeError
from canal_server.mirror.lake.iceberg.iceberg_versions import Versions

if TYPE_CHECKING:
    import random

SECRET = "secret-93"
CATALOGS = [
    {"uri": f"mysql+pymysql://u:{SECRET}@h/db"},
    {"type": "sql", "uri": f"nothing+known://u:{SECRET}@h/db"},
    {"type": "rest", "uri": "http://127.0.0.1:1", "credential": f"id:{SECRET}"},
    {"type": "rest", "uri": f"http://u:{SECRET}@127.0.0.1:1"},
    {"type": "rest", "uri": f"http://127.0.0.1:1/?token={SECRET}"},
]


@pytest.mark.parametrize("options", CATALOGS, ids=range(len(CATALOGS)))
def test_secrets_of_a_catalog(tmp_path: Path, options: dict[str, str]) -> None:
    """The error names the table and shows no password or token of the catalog."""
    versions = Versions(str(tmp_path), "shop/orders", options)
    with pytest.raises(LakeError, match="shop/orders") as found:  # noqa: SIM117
        with versions.as_lake_error("read"):
            versions.newest()
    assert SECRET not in str(found.value)


def test_a_link_whose_answer_is_lost(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit counts if a network file system repeats the link and finds it made."""
    columns = [("id", "int"), ("v", "varchar(20)")]
    rows = LakeRows(lake_table(columns, ("id",), form="iceberg"), rng)
    rows.random_changes(30)
    table = published(tmp_path, rows)
    link, lost = Path.hardlink_to, list[Path]()

    def link_twice(self: Path, target: Path) -> None:
        link(self, target)
        if not lost:
            lost.append(self)
            raise FileExistsError(errno.EEXIST, "exists", str(self))

    monkeypatch.setattr(Path, "hardlink_to", link_twice)
    events = rows.random_changes(20)
    table.apply(COPY, rows.as_changes(events), rows.seq + 1, {})
    assert lost
    assert in_order(lake_rows(table)) == in_order(rows.rows.values())
