"""Iceberg tables with their versions in catalogs: REST, of tables in S3, and Hive's."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from fix_interop import SWITCH
from fix_lake import COPY, filled, in_order, lake_rows, lake_table, random_table
from fix_s3 import staged
from pyiceberg.catalog import load_catalog
from servers import free_port
from some_settings import settings_of

from canal_server.errors import LakeError
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.lake_table import RowTable
from canal_server.mirror.lake.steps import AddColumn
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.state.lake_tables import (
    Applied,
    LakeTable,
    lake_schema,
    move_table,
    open_table,
)

if TYPE_CHECKING:
    import random
    from pathlib import Path

    import pyarrow as pa
    from fix_lake import LakeRows
    from fix_s3 import S3
    from pyiceberg.catalog import Catalog


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]

PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",), form="iceberg")


def opened(lake: LakeSettings, rows: LakeRows) -> LakeTable:
    """Open the table of these rows as a mirror with these settings does."""
    return open_table(settings_of(lake), rows.table)


@dataclass(frozen=True)
class Place:
    """Where lakes are, with the options of a catalog, and of readers beside them."""

    root: LakeSettings
    catalog: dict[str, str]
    readers_options: dict[str, str]

    def lake(self, name: str, **options: str) -> LakeSettings:
        """Return the settings of a lake; `options` are others of the catalog."""
        path = f"{self.root.path}/{name}"
        return replace(self.root, path=path, catalog=self.catalog | options)

    def readers(self) -> Catalog:
        """Return the catalog as other readers open it."""
        return load_catalog("x", **self.catalog, **self.readers_options)


@pytest.fixture(params=["rest", "hive"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a REST catalog of tables in S3, and Hive's of tables in a folder."""
    if request.param == "hive":
        uri = request.getfixturevalue("hive_metastore")
        lakes = LakeSettings(path=str(tmp_path))
        return Place(lakes, {"type": "hive", "uri": uri}, {})
    s3: S3 = request.getfixturevalue("s3")
    options = {
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": s3.options["aws_access_key_id"],
        "s3.secret-access-key": s3.options["aws_secret_access_key"],
    }
    return Place(s3.lake("rest"), request.getfixturevalue("rest_catalog"), options)


def publish(lake: LakeSettings, rows: LakeRows, copy: str) -> LakeTable:
    """Publish the rows as a copy."""
    table = opened(lake, rows)
    files = staged(lake, rows, copy)
    table.publish(copy, lake_schema(rows.table), files, rows.seq + 1, {"from": copy})
    return table


def test_a_table(place: Place, rng: random.Random) -> None:
    """Made, followed, copied again, altered and maintained; pyiceberg reads it."""
    lake = place.lake("table")
    made = replace(random_table(rng, form="iceberg"), target="rest/orders")
    rows = filled(made, rng)
    table = publish(lake, rows, COPY)
    for _ in range(3):
        changes = rows.as_changes(rows.random_changes(30))
        table.apply(COPY, changes, rows.seq + 1, {})
        assert table.apply(COPY, changes, rows.seq + 1, {}) == Applied()
    assert in_order(lake_rows(opened(lake, rows))) == in_order(rows.rows.values())
    rows.random_changes(20)
    table = publish(lake, rows, "copy-2")
    table.compact()
    assert table.vacuum(0) > 0
    assert in_order(lake_rows(opened(lake, rows))) == in_order(rows.rows.values())
    table.evolve("copy-2", [AddColumn("more", "int", "", "7")], rows.seq + 9, {})
    added = [row["more"] for row in lake_rows(opened(lake, rows))]
    assert added == [7] * len(rows.rows)
    found = place.readers().load_table("rest.orders")
    assert found.location() == f"{lake.path}/rest/orders"
    assert len(found.scan().to_arrow()) == len(rows.rows)


def test_a_renamed_table(place: Place, rng: random.Random) -> None:
    """It keeps its id and its snapshots under the new name; the old one goes.

    In an object store, where files would have to be copied, the current one remains.
    """
    lake = place.lake("renamed")
    rows = filled(replace(PLAIN, target="renamed/orders"), rng)
    table = publish(lake, rows, COPY)
    table.apply(COPY, rows.as_changes(rows.random_changes(20)), rows.seq + 1, {})
    catalog = place.readers()
    before = catalog.load_table("renamed.orders").metadata
    named = replace(rows.table, target="renamed/purchases")
    for _ in range(2):
        assert move_table(settings_of(lake), rows.table, named, COPY)
    assert catalog.list_tables("renamed") == [("renamed", "purchases")]
    after = catalog.load_table("renamed.purchases")
    assert after.metadata.table_uuid == before.table_uuid
    snapshots = [each.snapshot_id for each in before.snapshots]
    if not lake.is_local:
        snapshots = [each for each in snapshots if each == before.current_snapshot_id]
    assert [each.snapshot_id for each in after.snapshots()] == snapshots
    assert len(after.scan().to_arrow()) == len(rows.rows)
    assert open_folder(lake, "renamed/orders").below_names() == []
    rows.table = named
    again = opened(lake, rows)
    again.apply(COPY, rows.as_changes(rows.random_changes(20)), rows.seq + 1, {})
    assert in_order(lake_rows(again)) == in_order(rows.rows.values())
    found = catalog.load_table("renamed.purchases").metadata
    assert found.table_uuid == before.table_uuid


def test_rows_of_a_schema_change(place: Place, rng: random.Random) -> None:
    """The second table is in no catalog; the first one gets its rows, and stays."""
    lake = place.lake("change")
    folder = f"{settings_of(lake).migrations_folder}/shop/_orders_gho"
    new = filled(replace(PLAIN, target=folder), rng)
    shadow = publish(lake, new, COPY)
    for _ in range(3):
        changes = new.as_changes(new.random_changes(20))
        opened(lake, new).apply(COPY, changes, new.seq + 1, {})
        assert opened(lake, new).apply(COPY, changes, new.seq + 1, {}) == Applied()
    rows = filled(replace(PLAIN, target="change/orders"), rng)
    table = publish(lake, rows, COPY)
    catalog = place.readers()
    before = catalog.load_table("change.orders").metadata.table_uuid
    files, schema = [], shadow.arrow_schema()
    assert isinstance(shadow, RowTable)
    assert schema is not None
    for number, file in enumerate(shadow.files()):
        path = f"copy-{number}.zstd.parquet"
        open_folder(lake, rows.table.target).link(
            open_folder(lake, folder), file.path, path
        )
        files.append(replace(file, path=path))
    table.publish("copy-2", schema, files, new.seq + 1, {})
    found = catalog.load_table("change.orders")
    assert found.metadata.table_uuid == before
    assert len(found.scan().to_arrow()) == len(new.rows)
    ids = [{"id": row["id"], "v": row["v"]} for row in lake_rows(table)]
    wanted = [{"id": row["id"], "v": row["v"]} for row in new.rows.values()]
    assert in_order(ids) == in_order(wanted)
    assert [space[0] for space in catalog.list_namespaces()].count("_mirror") == 0


def test_two_writers(place: Place, rng: random.Random) -> None:
    """Of two that apply the same changes at once one finds them applied."""
    lake = place.lake("writers")
    rows = filled(replace(PLAIN, target="writers/orders"), rng)
    publish(lake, rows, COPY)
    tables = [opened(lake, rows) for _ in range(2)]
    for _ in range(3):
        changes = rows.as_changes(rows.random_changes(20))
        ended = at_once(tables, changes, rows.seq + 1)
        assert len(ended) == 2
        assert Applied() in ended
        assert in_order(lake_rows(opened(lake, rows))) == in_order(rows.rows.values())


def at_once(tables: list[LakeTable], changes: pa.Table, upto: int) -> list[Applied]:
    """Apply changes by all of these tables at the same time; return the results."""
    start = threading.Barrier(len(tables))
    ended: list[Applied] = []

    def apply(table: LakeTable) -> None:
        start.wait()
        ended.append(table.apply(COPY, changes, upto, {}))

    threads = [threading.Thread(target=apply, args=(each,)) for each in tables]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return ended


def test_a_catalog_that_is_away(place: Place, rng: random.Random) -> None:
    """The error names the table and the address that does not answer."""
    scheme = place.catalog["uri"].partition(":")[0]
    uri = f"{scheme}://127.0.0.1:{free_port()}"
    lake = place.lake("away", uri=uri)
    rows = filled(replace(PLAIN, target="away/orders"), rng)
    with pytest.raises(LakeError, match=r"cannot read the lake's table .*orders") as at:
        opened(lake, rows).exists()
    print(at.value)
    assert uri.rpartition(":")[2] in str(at.value)
