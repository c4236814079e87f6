"""A table's changes since its copy began, read outside the stream."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from fix_mirror_process import MirrorProcess
from fix_pipeline import DESTINATION, Pipeline
from purge import purge

from canal_server.mirror.copy.copy_changes import CatchUp
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
)
from canal_server.mirror.session.spark_session import table_options
from canal_server.mirror.settings.settings_file import load
from canal_server.mirror.settings.table_values import TableName
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA = "shop"
NAME = TableName(SCHEMA, "t")


@pytest.fixture
def pipeline(own_server: Callable[..., Any], tmp_path: Path) -> Iterator[Pipeline]:
    """Give a canal-server with a separate database, which has one table."""
    server = own_server("mysql")
    server.execute(
        f"CREATE DATABASE {SCHEMA}", f"CREATE TABLE {NAME} (id INT PRIMARY KEY)"
    )
    pipeline = Pipeline(server, SCHEMA, tmp_path / "conf", {}, None)
    pipeline.start()
    yield pipeline
    pipeline.close()


def test_changes_that_are_purged(pipeline: Pipeline, tmp_path: Path) -> None:
    """Where the binlog was purged since the copy began, another copy is needed."""
    mirror = MirrorProcess(pipeline, tmp_path)
    mirror.write_conf()
    settings = load(str(mirror.conf), {})
    catching = CatchUp(
        table_options(settings, NAME), DESTINATION, "m", lambda _: {}, Stop(), name=NAME
    )
    started = catching.latest()
    pipeline.source.execute(
        f"INSERT INTO {NAME} VALUES (1)", "FLUSH BINARY LOGS",
        f"INSERT INTO {NAME} VALUES (2)",
    )  # fmt: skip
    file, _ = pipeline.source.binlog_position()
    pipeline.wait_for_status(lambda status: file in str(status))
    purge(pipeline.source, file)
    follower: Any = SimpleNamespace(
        table=SimpleNamespace(source=NAME),
        begin=lambda _: None,
        reached=lambda _: None,
    )
    with pytest.raises(CopyNeededError, match="are no longer available") as caught:
        catching.read(follower, started, catching.latest())
    catching.close()
    assert "failOnDataLoss" not in str(caught.value)
    assert started.journal in str(caught.value)
    print(caught.value)
