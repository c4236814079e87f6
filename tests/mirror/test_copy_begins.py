"""A table's way into the stream: the start of its copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_pipeline import DESTINATION

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from fix_lake import opened
from fix_mirror import table_on
from some_settings import settings_for

from canal_server.client.range_client import RangePosition
from canal_server.errors import SourceError
from canal_server.mirror.follow.micro_batches import ChangeStream
from canal_server.mirror.follow.source_columns import columns_at
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.rows.copy_positions import latest
from canal_server.mirror.run.progress import Progress
from canal_server.mirror.run.table_sync import TableSync
from canal_server.mirror.session.spark_session import table_options
from canal_server.mirror.settings.mirror_settings import (
    TableRule,
)
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import lake_schema
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.runtime.lifecycle import Stop
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel

if TYPE_CHECKING:
    from pathlib import Path

    from fix_pipeline import Pipeline

NAME = TableName("shop", "t")
WITHOUT_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")


def work_on(
    pipeline: Pipeline, folder: Path, form: str = "delta"
) -> tuple[TableSync, States]:
    """Return a table sync for a pipeline's source, and its store."""
    rule = TableRule(match=r".*\..*", form=form)
    settings = settings_for(pipeline, folder, tables=(rule,))
    stream = ChangeStream(
        DESTINATION,
        1,
        parts_max=1,
        on_statement=print,
        on_leave=print,
        on_batch=print,
    )
    store = States(open_folder(settings.lake, settings.folder))
    work = TableSync(
        settings, None, store, stream,
        progress=Progress(), stop=Stop(),
        is_mariadb=pipeline.source.flavour == "mariadb",
    )  # fmt: skip
    return work, store


@pytest.mark.mysql
def test_without_gtids_a_table_rests_first(own_server, make_pipeline, tmp_path) -> None:
    """A copy begins a minute ago: one from before a DDL would be in vain, and again."""
    source = own_server("mysql", WITHOUT_GTIDS)
    source.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    pipeline = make_pipeline(source, "shop")
    pipeline.start()
    work, store = work_on(pipeline, tmp_path / "lake")
    state = store.write(TableState(NAME, "shop/t"))
    with pytest.raises(SourceError, match="table was changed by CREATE TABLE"):
        work.sync(state)
    left = store.read(NAME)
    assert left is not None
    assert left.phase is Phase.WAITING


def test_the_order_of_a_log(source_server, database, make_pipeline, tmp_path) -> None:
    """No copy follows changes with higher numbers: it would count as older.

    This happens if a server has lost its data and restarted its epochs.
    """
    source_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    name = TableName(database, "t")
    work, store = work_on(pipeline, tmp_path / "lake", "parquet")
    table = table_on(source_server, database, "t", form="parquet")
    log = opened(tmp_path / "lake" / database / "t", table)
    upto = version_of(RangePosition(7, "binlog.000001", 4))
    log.publish("before", lake_schema(table), [], upto, {})
    work.sync(store.write(TableState(name, table.target)))
    left = store.read(name)
    assert left is not None
    assert left.phase is Phase.STOPPED
    assert f"ends at _seq {upto}, but new changes would start at" in left.message
    assert left.message.endswith("then run `canal-server mirror copy`")
    assert log.applied("before") == upto


def test_a_table_without_a_key_that_changes_before_its_moment(
    source_server, database, make_pipeline, tmp_path
) -> None:
    """It is copied again with the columns after it, though rows are read as before.

    The copy is read after the statement, so the stream does not show it; and MODIFY …
    NOT NULL replaces NULLs later, of which the binlog has no rows.
    """
    name = TableName(database, "t")
    source_server.execute(f"CREATE TABLE {name} (a INT NOT NULL)")
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    folder = tmp_path / "lake"
    work, store = work_on(pipeline, folder)
    channel = Channel(table_options(settings_for(pipeline, folder), name), DESTINATION)
    position = latest(settings_for(pipeline, folder), channel)
    started = TableState(
        name, f"{database}/t", phase=Phase.COPYING, copy_id="c1", copies=1,
        position=position, columns=columns_at(channel, name, position),
    )  # fmt: skip
    channel.close()
    source_server.execute(
        f"ALTER TABLE {name} MODIFY a INT NULL", f"INSERT INTO {name} VALUES (NULL)"
    )
    work.sync(store.write(started))
    left = store.read(name)
    assert left is not None
    assert left.phase is Phase.FOLLOWING
    assert left.copies == 2
    assert [each.nullable for each in left.columns] == [True]
