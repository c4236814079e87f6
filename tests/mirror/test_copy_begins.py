"""A table's way into the stream: when a copy of it is begun."""

from __future__ import annotations

import pytest
from fix_pipeline import DESTINATION
from fix_source_access import access_of

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from canal_server.errors import SourceError
from canal_server.lifecycle import Stop
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

NAME = TableName("shop", "t")
WITHOUT_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")


@pytest.mark.mysql
def test_without_gtids_a_table_rests_first(own_server, make_pipeline, tmp_path) -> None:
    """A copy begins a minute ago: one from before a DDL would be in vain, and again."""
    source = own_server("mysql", WITHOUT_GTIDS)
    source.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    pipeline = make_pipeline(source, "shop")
    pipeline.start()
    settings = MirrorSettings(
        name="m",
        canal=CanalSettings(
            destination=DESTINATION, servers=f"127.0.0.1:{pipeline.server_port}"
        ),
        source=SourceSettings(access=access_of(source)),
        lake=LakeSettings(path=str(tmp_path / "lake")),
        tables=(TableRule(match=r"shop\..*"),),
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
        progress=Progress(), stop=Stop(), is_mariadb=False,
    )  # fmt: skip
    state = store.write(TableState(NAME, "shop/t"))
    with pytest.raises(SourceError, match="table was changed by CREATE TABLE"):
        work.bring_in(state)
    left = store.read(NAME)
    assert left is not None
    assert left.phase is Phase.WAITING
