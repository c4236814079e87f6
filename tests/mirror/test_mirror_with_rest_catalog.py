"""A whole mirror of Iceberg tables in S3 that a REST catalog names.

What runs is killed, the catalog and the store, too; tables are altered, renamed and
exchanged. In the end `mirror verify` finds each row of the source once.
"""

from __future__ import annotations

import json
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from fix_interop import SWITCH
from fix_random import longer
from mirror_scene import MirrorScene
from mirror_stores import in_store, start
from mirror_writes import MirrorLoad
from pyiceberg.catalog import load_catalog
from schema_changes import cut_over, gh_ost, run

from canal_server.mirror.lake.stores.object_stores import store_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from fix_mirror_process import MirrorProcess
    from fix_rest_catalog import RestCatalogProcess
    from fix_s3 import S3, S3Process
    from pyiceberg.catalog import Catalog

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(0),
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]

SCHEMA = "shop"
COLUMNS = "id, n, name"
KILLS = ("mirror", "server", "jvm", "catalog", "store")


class Shop:
    """A mirror of a schema, with the store and the catalog of its lake."""

    def __init__(
        self, mirror: MirrorProcess, store: S3Process, catalog: RestCatalogProcess
    ) -> None:
        self.mirror = mirror
        self.store = store
        self.catalog = catalog

    def names(self) -> Catalog:
        """Return the catalog as its other users open it."""
        lake = self.mirror.settings["lake"]
        store = store_of(lake["path"], lake["storage_options"]).iceberg
        return load_catalog("x", **store, **lake["catalog"])

    def uuid(self, table: str) -> str:
        """Return the id by which readers know a table."""
        found = self.names().load_table(f"{SCHEMA}.{table}")
        return str(found.metadata.table_uuid)

    def tables(self) -> list[str]:
        """Return the tables that the catalog has, of any namespace."""
        names = self.names()
        return sorted(
            ".".join(name)
            for space in names.list_namespaces()
            for name in names.list_tables(space)
        )

    def log(self) -> str:
        """Return what the running mirror has logged."""
        assert self.mirror.process is not None
        return "".join(self.mirror.process.log)

    def equals_source(self) -> None:
        """Compare all tables, as an operator does."""
        done = self.mirror.command("verify", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        outcomes = {each["outcome"] for each in json.loads(done.stdout)["tables"]}
        assert outcomes == {"equal"}


@pytest.fixture
def shop(
    own_server: Any,
    make_mirror: Callable[..., MirrorProcess],
    own_s3: Callable[[Path], S3Process],
    own_rest_catalog: Callable[[S3], RestCatalogProcess],
    tmp_path: Path,
) -> Shop:
    """Give a mirror that was not started, of a source of its own."""
    source = own_server("mysql", ())
    source.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
    mirror = make_mirror(source, SCHEMA)
    objects = tmp_path / "objects"
    store = own_s3(objects)
    catalog = own_rest_catalog(store.store)
    in_store(mirror, store, objects, tmp_path, catalog.options)
    return Shop(mirror, store, catalog)


def test_tables_of_a_mirror(shop: Shop) -> None:
    """Kills, DDL, a swap by gh-ost and new names leave the source's rows.

    Each table is the same one for its readers all the time, under the name that it has
    in the source; the catalog has no others.
    """
    mirror = shop.mirror
    run(
        mirror,
        "CREATE TABLE orders (id INT PRIMARY KEY, n INT, name VARCHAR(20))",
        "INSERT INTO orders WITH RECURSIVE s AS (SELECT 1 i UNION ALL SELECT i + 1 "
        "FROM s WHERE i < 900) SELECT i, i % 7, CONCAT('row ', i) FROM s",
        "CREATE TABLE keyless (n INT, s VARCHAR(9))",
        "INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, 'b')",
    )
    start(mirror)
    mirror.agree(orders=("id",), keyless=())
    first = {table: shop.uuid(table) for table in ("orders", "keyless")}

    # Altered while the mirror is away.
    run(mirror, "UPDATE orders SET n = 50 WHERE id % 50 = 1")
    mirror.kill()
    run(
        mirror,
        "ALTER TABLE orders ADD COLUMN more INT DEFAULT 9, MODIFY n BIGINT",
        "UPDATE orders SET more = 11, n = 9000000000 WHERE id = 3",
        "DELETE FROM keyless LIMIT 1",
    )
    start(mirror)
    mirror.agree(orders=("id",), keyless=())

    # Changed, altered and killed while the catalog is away.
    for is_killed in (False, True):
        before = len(shop.log())
        shop.catalog.kill()
        run(
            mirror,
            f"UPDATE orders SET name = 'round {is_killed}' WHERE id % 30 = 2",
            f"ALTER TABLE keyless ADD COLUMN added_{is_killed} INT DEFAULT 4",
            "INSERT INTO keyless (n) VALUES (7), (7)",
        )
        mirror.wait_for(partial(has_failed, shop, before), "the error")
        if is_killed:
            mirror.kill()
        shop.catalog.start()
        if is_killed:
            start(mirror)
        mirror.agree(orders=("id",), keyless=())

    # gh-ost's rows come by a table that no catalog has.
    columns = f"{COLUMNS}, more"
    for statement in gh_ost(mirror, "ADD COLUMN price DECIMAL(9,2)", columns):
        run(mirror, statement)
    run(mirror, "UPDATE orders SET n = 8 WHERE id % 40 = 3")
    cut_over(mirror, columns)
    run(mirror, "DROP TABLE _orders_del", "INSERT INTO orders (id) VALUES (5000)")
    mirror.agree(orders=("id",))
    assert f"{SCHEMA}.orders: got the rows of {SCHEMA}._orders_gho" in shop.log()
    assert shop.tables() == [f"{SCHEMA}.keyless", f"{SCHEMA}.orders"]

    # Another name, while the mirror runs and while it does not.
    run(
        mirror,
        "RENAME TABLE orders TO purchases",
        "INSERT INTO purchases (id) VALUES (5001)",
    )
    mirror.agree(purchases=("id",))
    mirror.kill()
    run(mirror, "RENAME TABLE purchases TO sales", "DELETE FROM sales WHERE id = 5001")
    start(mirror)
    mirror.agree(sales=("id",))
    mirror.wait_for(
        lambda: shop.tables() == [f"{SCHEMA}.keyless", f"{SCHEMA}.sales"],
        "the end of the old names",
    )

    # Exchanged by one's own script.
    run(
        mirror,
        "CREATE TABLE sales_next LIKE sales",
        "INSERT INTO sales_next SELECT * FROM sales WHERE id % 3 = 0",
    )
    mirror.agree(sales_next=("id",))
    run(
        mirror,
        "RENAME TABLE sales TO sales_before, sales_next TO sales",
        "UPDATE sales SET n = 97 WHERE id = 9",
    )
    mirror.agree(sales=("id",), sales_before=("id",), keyless=())
    found = {table: shop.uuid(table) for table in ("sales", "keyless")}
    assert list(found.values()) == list(first.values())
    assert "copied again" not in shop.log()
    shop.equals_source()
    mirror.stop()


def has_failed(shop: Shop, before: int) -> bool:
    """Check whether the log says that the stream fails, and names the catalog."""
    port = shop.catalog.options["uri"].rpartition(":")[2]
    return bool(re.search(f"the stream failed.*port={port}", shop.log()[before:]))


def test_killed(shop: Shop, rng: random.Random) -> None:
    """Mirror, catalog, store, at random moments, while tables of all types change."""
    mirror: Any = shop.mirror
    mirror.settings["copy"] = {"chunk_rows": 100}
    mirror.settings["stream"] |= {"max_rows": 500, "min_partition_rows": 50}
    load = MirrorLoad(mirror.source, SCHEMA, rng, statements=0.005)
    load.write(100)
    scene = MirrorScene(mirror, load, rng)
    others: dict[str, RestCatalogProcess | S3Process] = {
        "catalog": shop.catalog, "store": shop.store,
    }  # fmt: skip
    with load:
        for what in ("catalog", *(rng.choice(KILLS) for _ in range(longer(2)))):
            if mirror.process is None:
                start(mirror)
            if what not in others:
                scene.round(what)
                continue
            scene.round("nothing")
            print(what)
            others[what].kill()
            if rng.random() < 0.5:
                mirror.kill()
            others[what].start()
    if mirror.process is None:
        start(mirror)
    scene.verify(scene.settle())
    mirror.stop()
