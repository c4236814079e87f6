"""What a Spark query has in its driver and in its tasks, without Spark."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

import pytest
from fix_pipeline import DESTINATION, UNIT_S

from canal_server.protocol.entry_messages import Entry, decode_entry
from canal_server.protocol.packets import Messages
from canal_server.protocol.protobuf import decode
from canal_server.spark.driver import StreamDriver
from canal_server.spark.options.offsets import offset_from_json, offset_to_json
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options
from canal_server.spark.reading.range_tasks import Range, parts_of_now, pieces

if TYPE_CHECKING:
    from fix_failover import Follower
    from fix_pipeline import Pipeline
    from ledger import Writer

    from canal_server.client.range_client import RangePosition


class Followed(Protocol):
    """A pipeline, what is written to its source, and what checks its entries."""

    @property
    def pipeline(self) -> Pipeline:
        """The server and its source."""

    @property
    def writer(self) -> Writer:
        """What writes transactions."""

    @property
    def follower(self) -> Follower:
        """What checks them."""


class Query:
    """A query on a scene, whose log of offsets survives."""

    def __init__(self, scene: Followed) -> None:
        file, offset = scene.pipeline.source.binlog_position()
        self.options = read_options(
            {
                "servers": f"127.0.0.1:{scene.pipeline.server_port}",
                "destination": DESTINATION,
                "subscription": "lake",
                "startingPosition": f"file:{file}:{offset}",
                "pollTimeoutMs": "200",
                "retryTimeoutMs": str(round(9000 * UNIT_S)),
            },
            streaming=True,
        )
        self.scene = scene
        self.driver = StreamDriver(self.options)
        # As Spark keeps it: the last offset, and that of a batch that is not done.
        self.log = offset_to_json(self.driver.initial())

    def batch(self, rows_max: int = 40) -> bool:
        """Take one batch; false when there was none."""
        end = self.planned(rows_max)
        if end is None:
            return False
        self.finish(end)
        return True

    def planned(self, rows_max: int = 40) -> dict[str, object] | None:
        """Return the end of the next batch, None when there is none."""
        start = offset_from_json(self.log)
        end: dict[str, RangePosition] = self.driver.latest(start, rows_max)
        return None if end == start else offset_to_json(end)

    def planned_at_last(self) -> dict[str, object]:
        """Return the end of the next batch, which must come."""
        give_up_at = time.monotonic() + 3 * UNIT_S
        while (end := self.planned()) is None:
            assert time.monotonic() < give_up_at, "there is no batch"
        return end

    def finish(self, end: dict[str, object]) -> None:
        """Take a batch up to its end."""
        positions = offset_from_json(self.log), offset_from_json(end)
        self.scene.follower.take(self.entries(self.driver.plan(*positions)))
        self.driver.committed(positions[1])
        self.log = end

    def entries(self, parts: list[Range]) -> list[Entry]:
        """Return what tasks read."""
        found: list[bytes] = []
        with closing(Channel(self.options, DESTINATION)) as channel:
            for part in parts:
                for each in self.of_now(channel, part):
                    for piece in pieces(channel, self.options, each):
                        found += decode(Messages, bytes(piece)).messages
        return [decode_entry(each) for each in found]

    def rows(self, parts: list[Range]) -> list[object]:
        """Return the images of the rows that tasks make."""
        pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
        from canal_server.spark.row_batches import read_rows  # noqa: PLC0415

        return [
            (row["op"], row["before"], row["after"])
            for part in parts
            for batch in read_rows(self.options, None, part)
            for row in batch.to_pylist()
        ]

    def of_now(self, channel: Channel, part: Range) -> list[Range]:
        """Return a part, or what it is now that the source was replaced."""
        now: RangePosition = channel.call(lambda c: c.locate(DESTINATION, "latest"))
        if part.end.epoch == now.epoch:
            return [part]
        return parts_of_now(channel, self.options, part)

    def restart(self) -> None:
        """Go on as another process does."""
        self.close()
        self.driver = StreamDriver(self.options)

    def close(self) -> None:
        """Let go of the servers."""
        self.driver.close()

    def catch_up(self) -> None:
        """Take batches until all that was written has come."""
        expected = len(self.scene.writer.transactions)
        while not self.scene.follower.checker.has(expected):
            self.batch()
