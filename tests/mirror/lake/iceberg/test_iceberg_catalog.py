"""Iceberg tables whose newest versions a catalog of pyiceberg records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")

from fix_lake import (
    COPY,
    copied_rows,
    filled,
    in_order,
    lake_rows,
    lake_table,
    write_copy,
)
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.noop import NoopCatalog

from canal_server.errors import LakeError
from canal_server.mirror.lake.iceberg.iceberg import IcebergLakeTable
from canal_server.mirror.lake.iceberg.iceberg_catalog import identifier_of
from canal_server.mirror.lake.steps import AddColumn
from canal_server.mirror.state.lake_tables import Applied, lake_schema

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from fix_lake import LakeRows
    from pyiceberg.table import Table
    from pyiceberg.typedef import Identifier

PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",), form="iceberg")


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    """Give a catalog in a database."""
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    return {"type": "sql", "uri": uri, "warehouse": str(tmp_path)}


def copy(folder: Path, lake: IcebergLakeTable, rows: LakeRows, name: str) -> None:
    """Publish what is expected as a copy."""
    live = copied_rows(rows)
    files = write_copy(folder, live, name)
    lake.publish(name, lake_schema(PLAIN), files, rows.seq + 1, {"from": name})


def test_a_table_in_a_catalog(
    tmp_path: Path, rng: random.Random, options: dict[str, str]
) -> None:
    """It is found by its name, in the mirror's folder; all else is as without."""
    folder = tmp_path / "lake" / PLAIN.target
    rows = filled(PLAIN, rng)
    lake = IcebergLakeTable(str(folder), PLAIN, options)
    assert not lake.exists()
    copy(folder, lake, rows, COPY)
    for _ in range(3):
        changes = rows.as_changes(rows.random_changes(30))
        lake.apply(COPY, changes, rows.seq + 1, {})
        assert lake.apply(COPY, changes, rows.seq + 1, {}) == Applied()
    again = IcebergLakeTable(str(folder), PLAIN, options)
    assert in_order(lake_rows(again)) == in_order(rows.rows.values())
    table = load_catalog("default", **options).load_table("shop.orders")
    assert table.location() == str(folder)
    assert len(table.scan().to_arrow()) == len(rows.rows)
    assert not (folder / "metadata" / "version-hint.text").exists()


def test_copies_columns_and_upkeep(
    tmp_path: Path, rng: random.Random, options: dict[str, str]
) -> None:
    """A copy keeps the table; columns change; old files go."""
    folder = tmp_path / "lake" / PLAIN.target
    rows = filled(PLAIN, rng)
    lake = IcebergLakeTable(str(folder), PLAIN, options)
    copy(folder, lake, rows, COPY)
    catalog = load_catalog("default", **options)
    first = catalog.load_table("shop.orders").metadata.table_uuid
    rows.random_changes(20)
    copy(folder, lake, rows, "copy-2")
    lake.evolve("copy-2", [AddColumn("x", "int", "", "7")], 90_000, {})
    assert lake.vacuum(0) > 0
    found = [{n: v for n, v in r.items() if n in "idv"} for r in lake_rows(lake)]
    wanted = [{n: v for n, v in r.items() if n in "idv"} for r in rows.rows.values()]
    assert in_order(found) == in_order(wanted)
    added = [row["x"] for row in lake_rows(lake)]
    assert added == [7] * len(rows.rows)
    assert catalog.load_table("shop.orders").metadata.table_uuid == first
    assert lake.position() == (90_000, {})


def test_a_catalog_that_does_not_answer(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Whatever its library raises is an error of the lake."""
    options["uri"] = f"sqlite:///{tmp_path / 'none' / 'catalog.db'}"
    lake = IcebergLakeTable(str(tmp_path / "t"), PLAIN, options)
    with pytest.raises(LakeError, match="cannot read the lake's table shop/orders"):
        lake.exists()


class Refusing(NoopCatalog):
    """A catalog whose library has errors that no context manager can pass on."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """Raise as pyiceberg's client of Hive's metastore does."""
        error = TypeError("can't modify immutable instance")
        error.__context__ = PermissionError(f"no one may read {identifier}")
        raise error


def test_an_error_behind_another(tmp_path: Path) -> None:
    """The reason is told, not that it could not be passed on."""
    options = {"py-catalog-impl": f"{__name__}.{Refusing.__name__}"}
    lake = IcebergLakeTable(str(tmp_path / "t"), PLAIN, options)
    with pytest.raises(LakeError, match="PermissionError: no one may read"):
        lake.exists()


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("shop/orders", ("shop", "orders")),
        ("people", ("default", "people")),
        ("raw/shop/orders", ("raw", "shop", "orders")),
    ],
)
def test_names(target: str, name: tuple[str, ...]) -> None:
    """The folder is the name; a catalog has no table outside of a namespace."""
    assert identifier_of(target) == name
