"""A table's way into the stream: when a copy of it is begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_pipeline import DESTINATION
from fix_source_access import access_of

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from fix_lake import opened
from fix_mirror import table_on

from canal_server.client.ranged import RangePosition
from canal_server.errors import SourceError
from canal_server.lifecycle import Stop
from canal_server.mirror.lake import lake_schema
from canal_server.mirror.model import TableName
from canal_server.mirror.progress import Progress
from canal_server.mirror.settings import (
    CanalSettings,
    LakeSettings,
    MirrorSettings,
    SourceSettings,
    TableRule,
)
from canal_server.mirror.state import Phase, States, TableState
from canal_server.mirror.storage import open_folder
from canal_server.mirror.stream import ChangeStream
from canal_server.mirror.work import TableWork
from canal_server.spark.offsets import version_of

if TYPE_CHECKING:
    from pathlib import Path

    from fix_pipeline import Pipeline

NAME = TableName("shop", "t")
WITHOUT_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")


def work_on(
    pipeline: Pipeline, folder: Path, form: str = "delta"
) -> tuple[TableWork, States]:
    """Return what brings tables of a pipeline's source in, and what notes that."""
    settings = MirrorSettings(
        name="m",
        canal=CanalSettings(
            destination=DESTINATION, servers=f"127.0.0.1:{pipeline.server_port}"
        ),
        source=SourceSettings(access=access_of(pipeline.source)),
        lake=LakeSettings(path=str(folder)),
        tables=(TableRule(match=r".*\..*", form=form),),
    )
    stream = ChangeStream(
        DESTINATION,
        1,
        parts_max=1,
        on_statement=print,
        on_left=print,
        on_batch=print,
    )
    store = States(open_folder(settings.lake, settings.folder))
    work = TableWork(
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
        work.bring_in(state)
    left = store.read(NAME)
    assert left is not None
    assert left.phase is Phase.WAITING


def test_the_order_of_a_log(source_server, database, make_pipeline, tmp_path) -> None:
    """No copy goes behind changes that have higher numbers: it would count as older.

    So it would be with a server that has lost its data, and counts epochs anew.
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
    work.bring_in(store.write(TableState(name, table.target)))
    left = store.read(name)
    assert left is not None
    assert left.phase is Phase.STOPPED
    assert f"goes up to _seq {upto}, and what comes now would have" in left.message
    assert left.message.endswith("then run `canal-server mirror copy`")
    assert log.applied("before") == upto
