"""Iceberg tables in S3, with their versions in a real REST catalog."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from fix_interop import SWITCH
from fix_lake import COPY, filled, in_order, lake_rows, lake_table, random_table
from fix_s3 import staged
from pyiceberg.catalog import load_catalog
from servers import free_port

from canal_server.errors import LakeError
from canal_server.mirror.lake.steps import AddColumn
from canal_server.mirror.settings.mirror_settings import (
    CanalSettings,
    MirrorSettings,
    SourceSettings,
)
from canal_server.mirror.state.lake_tables import (
    Applied,
    LakeTable,
    lake_schema,
    open_table,
)
from canal_server.mysql.source_settings import Access, Address, Credentials

if TYPE_CHECKING:
    import random

    import pyarrow as pa
    from fix_lake import LakeRows
    from fix_s3 import S3

    from canal_server.mirror.settings.mirror_settings import LakeSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]

PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",), form="iceberg")


def opened(lake: LakeSettings, rows: LakeRows) -> LakeTable:
    """Open the table of these rows as a mirror with these settings does."""
    settings = MirrorSettings(
        name="shop",
        canal=CanalSettings(destination="shop"),
        source=SourceSettings(
            access=Access(address=Address("h", 1), credentials=Credentials("u", "p"))
        ),
        lake=lake,
        tables=(),
    )
    return open_table(settings, rows.table)


def publish(lake: LakeSettings, rows: LakeRows, copy: str) -> LakeTable:
    """Publish the rows as a copy."""
    table = opened(lake, rows)
    files = staged(lake, rows, copy)
    table.publish(copy, lake_schema(rows.table), files, rows.seq + 1, {"from": copy})
    return table


def test_a_table(s3: S3, rest_catalog: dict[str, str], rng: random.Random) -> None:
    """Made, followed, copied again, altered and maintained; pyiceberg reads it."""
    lake = replace(s3.lake("rest"), catalog=rest_catalog)
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
    assert {row["more"] for row in lake_rows(opened(lake, rows))} == {7}
    options = {
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": s3.options["aws_access_key_id"],
        "s3.secret-access-key": s3.options["aws_secret_access_key"],
    }
    found = load_catalog("x", **rest_catalog, **options).load_table("rest.orders")
    assert found.location() == f"{lake.path}/rest/orders"
    assert len(found.scan().to_arrow()) == len(rows.rows)


def test_two_writers(s3: S3, rest_catalog: dict[str, str], rng: random.Random) -> None:
    """Of two that apply the same changes at once one finds them applied."""
    lake = replace(s3.lake("rest-writers"), catalog=rest_catalog)
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


def test_a_catalog_that_is_away(
    s3: S3, rest_catalog: dict[str, str], rng: random.Random
) -> None:
    """The error names the table and the address that does not answer."""
    uri = f"http://127.0.0.1:{free_port()}"
    lake = replace(s3.lake("rest-away"), catalog=rest_catalog | {"uri": uri})
    rows = filled(replace(PLAIN, target="away/orders"), rng)
    with pytest.raises(LakeError, match=r"cannot read the lake's table .*orders") as at:
        opened(lake, rows).exists()
    print(at.value)
    assert uri.rpartition(":")[2] in str(at.value)
