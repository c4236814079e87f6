"""Runs the compiled modules over recorded binlogs, as a server and its clients do.

    python tools/training/train.py [PASSES]

A build with CANAL_PROFILE=1 counts meanwhile which way the code goes (`setup.py`). The
binlogs are those of `record.py`. Fails if something is not as expected: a profile of
something else would make the modules slower.
"""

from __future__ import annotations

import struct
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.client.change_reader import ChangeReader
from canal_server.client.value_reader import ValueOptions
from canal_server.config.schema import (
    FilterConfig,
    MessageLayout,
    RoutingConfig,
    StoreConfig,
)
from canal_server.core.blocks import BlockPool
from canal_server.core.table_ids import TableIds
from canal_server.filters.column_filters import ColumnFilter
from canal_server.pipeline.sink import EntrySink
from canal_server.pipeline.transaction_buffer import TransactionBuffer
from canal_server.queues.message_form import MessageForm
from canal_server.queues.routing import Router
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_files import MAGIC, FileSource
from canal_server.source.read.map_columns import MapReader, NoColumns
from canal_server.store.event_store import MemoryEventStore

if TYPE_CHECKING:
    from canal_server.ports import ByteSource, Span

ARCHIVE = Path(__file__).with_name("binlogs.tar.xz")
PASSES = 20
CLIENT, BATCH_SIZE = 1001, 1000
PIECE_BYTES = 64 * 1024  # that a network delivers at a time
EVENT_SIZE = struct.Struct("<9xI")
ROWS_MIN = 1_500
FORMS = (  # of messages, with keys or without
    (MessageLayout.CANAL_JSON, False),
    (MessageLayout.CANAL_JSON, True),
    (MessageLayout.DEBEZIUM, True),
    (MessageLayout.MAXWELL, True),
)


class Packets:
    """The events of a file as a server sends them; a `ByteSource`."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        packets, at, number = bytearray(), len(MAGIC), 0
        while at < len(content):
            (size,) = EVENT_SIZE.unpack_from(content, at)
            packets += (size + 1).to_bytes(3, "little") + bytes((number, 0))
            packets += content[at : at + size]
            at, number = at + size, (number + 1) % 256
        self._left = memoryview(packets)

    def receive_into(self, buffer: memoryview, timeout_s: float | None) -> int:
        """Copy the next piece; return 0 at the end."""
        del timeout_s
        return self.try_receive_into(buffer)

    def try_receive_into(self, buffer: memoryview) -> int:
        """Copy the next piece; return 0 at the end."""
        count = min(len(buffer), len(self._left), PIECE_BYTES)
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


class Server:
    """A reader, a transaction buffer, a ring, and a client that reads all changes."""

    def __init__(self, *, packets: bool, raw: bool) -> None:
        store = StoreConfig(raw_entry=raw)
        pool, table_ids = BlockPool(), TableIds()
        self.rows = 0
        self._buffer = TransactionBuffer(store.buffer_size, 64 << 20)
        self._store = MemoryEventStore(store, table_ids, pool)
        self._store.subscribe(CLIENT, None, None)
        self._sink, self._stop = EntrySink(self._store), Stop()
        self._changes = ChangeReader(ValueOptions())
        router = Router(RoutingConfig(topic="training", partitions=4))
        self._encoders = [
            MessageForm(
                flat=True, raw=raw, drops_markers=False, layout=layout, has_keys=keys
            ).encoder(router, None)
            for layout, keys in FORMS
        ]
        self._reader = MapReader(
            pool,
            table_ids,
            NoColumns(),
            table_filter=lambda _names: True,
            columns=ColumnFilter("", ""),
            filters=FilterConfig(),
            packets=packets,
        )

    def read(self, name: str, source: ByteSource) -> None:
        """Read a binlog to its end."""
        self._reader.start(name, len(MAGIC))
        self._reader.run(source, self._take, lambda: None, self._stop)

    def _take(self, spans: list[Span]) -> bool:
        while spans:
            ready, spans = self._buffer.put(spans)
            if ready:
                self._sink.accept(ready, self._stop)
            self._buffer.commit()
        self._store.wake_getters()
        while (batch := self._store.get(CLIENT, BATCH_SIZE, 0)) is not None:
            body = b"".join(batch.slices)
            self.rows += sum(1 for _ in self._changes.read(body))
            for encode in self._encoders:
                encode(1, body, 0)
            self._store.ack(CLIENT, batch.last_sequence)
        return True


def rows_of(path: Path, *, packets: bool, raw: bool) -> int:
    """Read a binlog once, and return how many rows the client got."""
    server = Server(packets=packets, raw=raw)
    if packets:
        server.read(path.name, Packets(path))
    else:
        with FileSource(path) as source:
            server.read(path.name, source)
    return server.rows


def main() -> int:
    """Read each binlog some times; returns the exit status."""
    passes = int(sys.argv[1]) if len(sys.argv) > 1 else PASSES
    with tempfile.TemporaryDirectory() as folder, tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
        for path in sorted(Path(folder).iterdir()):
            found = {
                rows_of(path, packets=packets, raw=number % 4 != 0)
                for number in range(passes)
                for packets in (True, False)
            }
            if min(found) < ROWS_MIN or len(found) > 1:
                print(f"{path.name}: {sorted(found)} rows", file=sys.stderr)
                return 1
            print(f"{path.name}: {found.pop()} rows, {passes} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
