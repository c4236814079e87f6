"""Which tables are uncertain, of those that are read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from canal_server.config.schema import InstanceConfig, TableMetaConfig
from canal_server.source.pump.session_schemas import SessionSchemas
from canal_server.tablemeta.history.tsdb import KnownTables
from canal_server.tablemeta.storage.sqlite_storage import FILE_NAME


class Filter:
    """Accepts the tables of a schema, and counts how often it is asked."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.asked = 0

    def __call__(self, names) -> bool:
        """Return whether a table is accepted."""
        self.asked += 1
        return all(schema == self.schema for schema, _ in names)


@pytest.fixture
def history():
    """Give a history, of which only the tables are asked."""
    return SimpleNamespace(tables=None, steady=None)


def schemas_of(history, **changes):
    """Return the schemas of a pump."""
    return SessionSchemas(InstanceConfig(destination="shop", **changes), history, None)


def test_of_tables_that_are_read(history):
    """Others affect nobody; the filter is asked once for each state."""
    schemas, shop = schemas_of(history), Filter("shop")
    assert schemas.uncertain(shop) == ()
    history.tables = KnownTables(9, (("shop", "u"), ("shop", "t"), ("crm", "t")))
    for _ in range(3):
        assert schemas.uncertain(shop) == ("shop.t", "shop.u")
    assert shop.asked == 3
    assert schemas.uncertain(Filter("crm")) == ("crm.t",)
    history.tables = KnownTables(9, (("shop", "u"),))
    assert schemas.uncertain(shop) == ("shop.u",)
    history.tables = KnownTables(9, ())
    assert schemas.uncertain(shop) == ()


def test_without_a_history():
    """Nothing is known of tables."""
    schemas = schemas_of(None)
    assert (schemas.tables, schemas.history_bytes()) == (None, None)
    assert schemas.uncertain(Filter("shop")) == ()


def test_the_size_of_the_file(history, tmp_path):
    """What has not been moved into the file yet is counted, too."""
    schemas = schemas_of(history, table_meta=TableMetaConfig(dir=tmp_path))
    assert schemas.history_bytes() is None
    (tmp_path / FILE_NAME).write_bytes(b"x" * 100)
    assert schemas.history_bytes() == 100
    (tmp_path / f"{FILE_NAME}-wal").write_bytes(b"x" * 20)
    assert schemas.history_bytes() == 120
