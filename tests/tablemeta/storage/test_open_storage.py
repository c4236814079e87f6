"""Which storage the settings ask for."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fix_tablemeta_storage import at, mysql_database, schemas, segment

from canal_server.config.schema import (
    HostPort,
    InstanceConfig,
    MysqlDatabase,
    TableMetaConfig,
)
from canal_server.errors import TableMetaStoreError
from canal_server.tablemeta.storage.open_storage import (
    open_storage,
    warn_of_java_history,
)

if TYPE_CHECKING:
    from pathlib import Path

    from servers import Server


def config_in(folder: Path) -> InstanceConfig:
    """Return settings that keep the history in a folder."""
    return InstanceConfig(
        destination="example", table_meta=TableMetaConfig(dir=folder / "example")
    )


def test_a_file_by_default(tmp_path: Path) -> None:
    """Without a database the history is in one file of the folder, for its owner."""
    storage = open_storage(config_in(tmp_path))
    assert list(tmp_path.iterdir()) == []
    storage.open()
    started = storage.begin(segment(at(1, 4)), schemas("t"))
    path = tmp_path / "example" / "tablemeta.sqlite"
    assert path.stat().st_mode & 0o777 == 0o600
    reader = open_storage(config_in(tmp_path), read_only=True)
    reader.open()
    assert reader.segments() == [started]
    reader.close()
    storage.close()


def test_reading_makes_no_file(tmp_path: Path) -> None:
    """Read-only access to a missing history is an error, and creates none."""
    with pytest.raises(TableMetaStoreError, match="there is no table history"):
        open_storage(config_in(tmp_path), read_only=True).open()
    assert list(tmp_path.iterdir()) == []


def test_mysql(mysql_server: Server) -> None:
    """The URL of a database keeps the history there, under the destination."""
    with mysql_database(mysql_server) as (access, name):
        database = MysqlDatabase(HostPort(mysql_server.host, mysql_server.port), name)
        config = InstanceConfig(
            destination="example",
            table_meta=TableMetaConfig(
                database=database, user=name, password=access.credentials.password
            ),
        )
        with pytest.raises(
            TableMetaStoreError, match="is missing: there is no table meta_hist"
        ):
            open_storage(config, read_only=True).open()
        storage = open_storage(config)
        storage.open()
        started = storage.begin(segment(at(1, 4)), schemas("t"))
        storage.close()
        for destination, found in (("example", [started]), ("other", [])):
            reader = open_storage(
                replace(config, destination=destination), read_only=True
            )
            reader.open()
            assert reader.segments() == found
            reader.close()


def test_java_history(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An H2 history of the Java server is reported, but only if it exists."""
    config = config_in(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert not warn_of_java_history(config)
        assert not caplog.records
        config.table_meta.dir.mkdir()
        (config.table_meta.dir / "h2.mv.db").touch()
        assert warn_of_java_history(config)
    assert "h2.mv.db" in caplog.text
    assert "a new history starts now" in caplog.text
