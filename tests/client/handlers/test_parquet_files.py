"""Parquet files with every row, once, whatever is delivered again."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import change_messages
import pyarrow.parquet as pq
import pytest
from change_messages import Maker
from fix_daemon import child_environ
from fix_random import longer

from canal_server.client import Message
from canal_server.client.consume import Consumer
from canal_server.client.handlers import RetryLater
from canal_server.client.handlers.parquet_files import ParquetFiles
from canal_server.errors import CanalError


@pytest.fixture
def maker():
    """Give what makes messages."""
    return Maker(types={"price": "decimal(10,2)"})


@pytest.fixture
def files(tmp_path):
    """Return a function that makes an open handler of a folder."""

    def make(**options) -> ParquetFiles:
        made = ParquetFiles(tmp_path / "lake", **options)
        made.open()
        return made

    return make


def rows(tmp_path, table="shop.orders"):
    """Return the rows of all files of a table, in the order of their names."""
    found = []
    for path in sorted((tmp_path / "lake" / table).glob("*.parquet")):
        found += pq.read_table(path).to_pylist()
    return found


def ids(tmp_path, table="shop.orders"):
    """Return the ids of the rows of a table."""
    return [row["id"] for row in rows(tmp_path, table)]


def test_rows(tmp_path, files, maker):
    """A flush writes a file for each table; an update has both images."""
    handler = files()
    other = Maker("a/b")
    old, new = {"id": 1, "price": "5.00"}, {"id": 2, "price": None}
    entries = maker.insert(old), maker.update(old, new), other.insert({"id": 7})
    handler.handle_message(maker.message(1, *entries))
    handler.handle_message(maker.message(2, maker.delete(new)))
    assert list((tmp_path / "lake").iterdir()) == []
    handler.flush()
    assert [(row["_change_type"], row["id"]) for row in rows(tmp_path)] == [
        ("insert", 1), ("update_preimage", 1), ("update_postimage", 2), ("delete", 2)
    ]  # fmt: skip
    assert str(rows(tmp_path)[0]["price"]) == "5.00"
    (path,) = (tmp_path / "lake/shop.orders").iterdir()
    assert path.name == "20231114T221320Z-binlog.000001-000000000110-0000.parquet"
    assert ids(tmp_path, "shop.a%2Fb") == [7]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"updates": "postimage"}, {"id", "_change_type"}),
        ({"updates": "envelope"}, {"before", "after", "op"}),
        ({"compression": "none"}, {"id"}),
        ({"compression": "snappy"}, {"id"}),
    ],
)
def test_options(tmp_path, files, maker, options, names):
    """Updates and compression are as the settings say."""
    handler = files(**options)
    handler.handle_message(maker.message(1, maker.update({"id": 1}, {"id": 1})))
    handler.flush()
    (row,) = rows(tmp_path)[-1:]
    assert names <= row.keys()


def test_a_rollback(tmp_path, files, maker):
    """What was not flushed is in no file."""
    handler = files()
    handler.handle_message(maker.inserts(1, 1))
    handler.rollback()
    handler.handle_message(maker.inserts(1, 2))
    handler.flush()
    handler.flush()  # nothing was collected
    assert ids(tmp_path) == [2]


def test_columns_that_change(tmp_path, files, maker):
    """A file has one form of columns."""
    handler = files()
    handler.handle_message(maker.message(1, maker.insert({"id": 1})))
    handler.handle_message(maker.message(2, maker.insert({"id": 2, "price": "1.00"})))
    handler.flush()
    assert [set(row) >= {"price"} for row in rows(tmp_path)] == [False, True]


def test_rows_that_come_again(tmp_path, files, rng):
    """However messages are delivered again and divided into files, a row is there once.

    The files end where the handler is flushed; a crash is a new handler.
    """
    maker = Maker()
    messages: list[Message] = []
    number = 0
    for message_id in range(longer(60)):
        size = rng.randint(1, 4)
        messages.append(maker.inserts(message_id, *range(number, number + size)))
        number += size
    at, acked = 0, 0  # how many messages
    handler = files()
    while acked < len(messages):
        size = rng.randint(1, 6)
        for message in messages[at : at + size]:
            message.rewind()
            handler.handle_message(message)
        at = min(at + size, len(messages))
        if rng.random() < 0.3:  # a crash before the flush
            handler, at = files(), acked
            continue
        handler.flush()
        if rng.random() < 0.4:  # a crash or a lost connection, and acks that were lost
            acked = at = max(0, acked - rng.choice((0, 0, 1, 2, 5, 9)))
            handler = rng.choice((files(), handler))
            continue
        acked = at
    assert ids(tmp_path) == list(range(number))


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("begins_file", [False, True])
def test_a_large_event_that_was_cut(tmp_path, files, maker, crashes, begins_file):
    """A client that reconnects within it numbers its rest from 0; nothing is lost.

    The file with its beginning may begin with another event.
    """
    other = maker.insert({"id": -1})
    parts = [maker.insert({"id": number}) for number in range(4)]
    parts = [dataclasses.replace(each, header=parts[0].header) for each in parts]
    messages = [Message.of_entries(n, parts[n : n + 1]) for n in range(4)]
    if not begins_file:
        messages[0] = Message.of_entries(0, [other, parts[0]])
    expected = [*([] if begins_file else [-1]), 0, 1, 2, 3]
    handler = files()
    handler.handle_message(messages[0])
    handler.flush()
    for message in messages[1:]:
        if crashes:
            handler = files()
        handler.handle_message(message)
        handler.flush()
    assert sorted(ids(tmp_path)) == expected
    again = Message.of_entries(9, parts)
    handler.handle_message(again)
    handler.flush()
    assert ids(tmp_path) == expected


def test_incomplete_files(tmp_path, files):
    """What a crash left incomplete is removed at the start."""
    folder = tmp_path / "lake/shop.orders"
    folder.mkdir(parents=True)
    (folder / ".20231114T221320Z-x.parquet.part").write_text("half")
    files()
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_full(tmp_path, files, maker, monkeypatch):
    """It is no reason for dead letters; no incomplete file has a name of ours."""
    handler = files()
    handler.handle_message(maker.inserts(1, 1))

    def fsync(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RetryLater, match="No space left on device"):
        handler.flush()
    assert ids(tmp_path) == []
    monkeypatch.undo()
    handler.rollback()
    handler.handle_message(maker.inserts(1, 1))
    handler.flush()
    assert len(ids(tmp_path)) == 1


def test_a_consumer_flushes_by_rows(tmp_path, files, maker):
    """Rows of messages are counted, so that a file has about as many as it should."""
    consumer = Consumer(files(rows=4))
    durable = [consumer.process(maker.inserts(n, 3 * n, 3 * n + 1, 3 * n + 2)) for n in
               range(4)]  # fmt: skip
    assert durable == [False, True, False, True]
    assert len(list((tmp_path / "lake/shop.orders").iterdir())) == 2
    assert consumer.counters.changes == 12


def test_a_consumer_flushes_by_bytes(tmp_path, files, maker):
    """Messages are counted whole, so that a file holds about as much as it should."""
    messages = [maker.inserts(number, number) for number in range(6)]
    size = min(len(each.body) for each in messages)
    assert 3 * size > 2 * max(len(each.body) for each in messages)
    consumer = Consumer(files(flush_bytes=3 * size))
    durable = [consumer.process(each) for each in messages]
    assert durable == [False, False, True, False, False, True]
    assert len(list((tmp_path / "lake/shop.orders").iterdir())) == 2
    assert ids(tmp_path) == list(range(6))


def test_a_consumer_flushes_before_the_server_stalls(files):
    """When nothing comes although much waits, the server may wait for an ack."""
    maker = Maker()
    nothing = Message.of_entries(-1, ())
    consumer = Consumer(files())
    assert not consumer.process(maker.inserts(1, 1))
    assert not consumer.process(nothing)
    big = maker.message(2, *(maker.insert({"id": 2, "t": "x" * 2**20}) for _ in "ab"))
    assert not consumer.process(big)
    assert consumer.process(nothing)


@pytest.mark.parametrize(
    "options", [{"flush_s": 0.0}, {"rows": 0}, {"flush_s": -1.0}, {"flush_bytes": 0}]
)
def test_wrong_options(tmp_path, options):
    """A file needs at least a row, and some time."""
    with pytest.raises(
        ValueError, match="flush_s, rows and flush_bytes must be more than 0"
    ):
        ParquetFiles(tmp_path, **options)


def test_without_pyarrow(tmp_path, monkeypatch):
    """The error names the extra to install."""
    for name in [each for each in sys.modules if each.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CanalError, match=r"needs pyarrow, .* 'canal-server\[arrow\]'"):
        ParquetFiles(tmp_path)


PROGRAM = """
import sys
sys.path[:0] = sys.argv[3:]
from change_messages import Maker
from canal_server.client.handlers.parquet_files import ParquetFiles
handler = ParquetFiles(sys.argv[1])
handler.open()
maker = Maker(position=int(sys.argv[2]) * 30)
for number in range(int(sys.argv[2]), 100_000):
    handler.handle_message(maker.inserts(number, number))
    if number % 3 == 0:
        handler.flush()
        print(number, flush=True)
"""


def test_kills(tmp_path, rng):
    """Killed at any moment and started where it was acked, each row is there once."""
    support = str(Path(str(change_messages.__file__)).parent)
    acked = 0  # the first number that is not acked
    for _ in range(longer(4)):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, tmp_path / "lake", str(acked), support],
            env=child_environ(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        expected = acked + rng.randint(1, 60)
        for line in process.stdout:
            if int(line) >= expected:
                process.send_signal(signal.SIGKILL)
                break
        seen = [int(line), *map(int, process.stdout.read().split())]
        process.stdout.close()
        process.wait()
        acked = rng.choice(seen[-2:]) + 1  # the last ack may be lost
    handler = ParquetFiles(tmp_path / "lake")
    handler.open()
    maker = Maker(position=acked * 30)
    handler.handle_message(
        maker.message(1, *(maker.insert({"id": n}) for n in range(acked, acked + 200)))
    )
    handler.flush()
    found = ids(tmp_path)
    assert found[:acked] == list(range(acked))
    assert list((tmp_path / "lake/shop.orders").glob(".*")) == []
