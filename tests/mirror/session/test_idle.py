"""When a stream has caught up: what Spark reports, and how long that is valid."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from canal_server.mirror.session.idle import HOLDS_S, INTERVAL, Idle, listen

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 60.0


def test_caught_up() -> None:
    """It is from a look without changes on, until a batch, or when looks stay away."""
    now = 100.0
    idle = Idle(5.0, lambda: now)
    assert not idle.is_caught_up()
    idle.note()
    now += 5.0 + HOLDS_S
    assert idle.is_caught_up()
    now += 1.0
    assert not idle.is_caught_up()
    idle.note()
    assert idle.is_caught_up()
    idle.batch()
    assert not idle.is_caught_up()


def test_spark_reports(spark: Any, tmp_path: Path) -> None:
    """It calls when a query finds nothing, again and again, also after a batch."""
    spark.conf.set(INTERVAL, "100")
    asked = threading.Event()
    batches: list[int] = []
    listen(spark, asked.set)
    try:
        query = (
            spark.readStream.text(str(tmp_path))
            .writeStream.foreachBatch(lambda _, number: batches.append(number))
            .start()
        )
        try:
            assert asked.wait(PATIENCE_S)
            assert not batches
            (tmp_path / "a.txt").write_text("one\n")
            query.processAllAvailable()
            assert batches == [0]
            asked.clear()
            assert asked.wait(PATIENCE_S)
        finally:
            query.stop()
    finally:
        spark.conf.unset(INTERVAL)
