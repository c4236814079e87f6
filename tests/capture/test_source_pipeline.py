"""What a pipeline stores of the spans of its pump, and what it says of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fix_blocks import BEGIN, END, ROWS, numbers_in
from fix_pump import Pumped
from fix_store import StoreUnderTest

from canal_server.capture import source_pipeline
from canal_server.capture.source_pipeline import SourcePipeline
from canal_server.config.schema import BufferConfig, InstanceConfig, SourceConfig
from canal_server.core.blocks import BlockPool
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.pipeline.transaction_buffer import TransactionBuffer
from canal_server.position.log_position_managers import MemoryLogPositionManager
from canal_server.source.pump.pump_ports import PumpSource

if TYPE_CHECKING:
    from fix_blocks import Span

NOWHERE = Access(address=Address("127.0.0.1", 1), credentials=Credentials("u", ""))


class Scene:
    """A pipeline into a store, whose pump does not run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.buffers: list[TransactionBuffer] = []
        monkeypatch.setattr(source_pipeline, "TransactionBuffer", self._made)
        self.t = StoreUnderTest()
        self.t.store.subscribe(1001, None, None)
        source = PumpSource(
            config=InstanceConfig(
                destination="piped",
                source=SourceConfig(),
                buffer=BufferConfig(transaction_size=4),
            ),
            access=NOWHERE,
            pool=BlockPool(),
            table_ids=self.t.table_ids,
            positions=MemoryLogPositionManager(),
        )
        self.pipeline = SourcePipeline(
            source, self.t.store, Pumped(NOWHERE, "db"), lambda _: True
        )

    def _made(self, *args: Any) -> TransactionBuffer:
        self.buffers.append(TransactionBuffer(*args))
        return self.buffers[-1]

    @property
    def pending(self) -> int:
        """How many entries are in the buffer."""
        (buffer,) = self.buffers
        return buffer.pending

    def put(self) -> list[list[int]]:
        """Put all entries that were made, and return the parts that are delivered."""
        spans: list[Span] = self.t.entries.take()
        return [numbers_in(part) for part in self.pipeline.put(spans, self.t.stop)]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Give a pipeline with a buffer of four entries."""
    return Scene(monkeypatch)


def test_parts(scene: Scene) -> None:
    """Complete transactions are delivered, an open one only when the buffer is full."""
    scene.t.entries.transaction(rows=1)
    scene.t.entries.add(BEGIN)
    assert scene.put() == [[0, 1, 2]]
    for _ in range(4):
        scene.t.entries.add(ROWS)
    assert scene.put() == [[3, 4, 5, 6]]
    scene.t.entries.add(END)
    assert scene.put() == [[7, 8]]
    assert scene.pipeline.sink.counters.transactions == 2


def test_the_pump_records_a_part_before_it_is_dropped(scene: Scene) -> None:
    """A part stays in the buffer until the pump asks for the next one."""
    scene.t.entries.transaction(rows=1)
    parts = scene.pipeline.put(scene.t.entries.take(), scene.t.stop)
    assert numbers_in(next(parts)) == [0, 1, 2]
    assert scene.pending == 3
    assert list(parts) == []
    assert scene.pending == 0


def test_stopped(scene: Scene) -> None:
    """An empty part says that the store is stopped; the end drops the rest."""
    scene.t.store.close()
    scene.t.entries.transaction(rows=1)
    parts = scene.pipeline.put(scene.t.entries.take(), scene.t.stop)
    assert next(parts) == []
    parts.close()  # type: ignore[attr-defined]
    assert scene.pending == 3
    scene.pipeline.end()
    assert scene.pending == 0
