"""A client before a server that sends exactly these batches, or parts of them."""

from __future__ import annotations

import threading

import pytest
from change_messages import Maker
from fix_server import PATIENCE_S
from loop_changes import ids
from scripted_server import ScriptedServer

from canal_server.client import CanalClient, Message
from canal_server.protocol.entry_messages import EntryType

LATE_READER = "canal_server.client.connection.blocking_connection._LateReader"


def batch(maker: Maker, *parts: object) -> bytes:
    """Return a batch of begins, ends, and rows with these ids."""
    kinds = {"begin": EntryType.TRANSACTIONBEGIN, "end": EntryType.TRANSACTIONEND}
    entries = [
        maker._entry(kinds[part], b"")
        if isinstance(part, str)
        else maker.insert({"id": part})
        for part in parts
    ]
    return bytes(Message.of_entries(1, entries).body)


@pytest.fixture
def maker() -> Maker:
    """Give what makes entries."""
    return Maker()


def test_a_part_that_completes_no_batch(maker):
    """An ack of an earlier message does not count for one without an id of its own."""
    batches = [
        batch(maker, "begin", 1, "end"),
        batch(maker, "begin", 2, "end", "begin", 3),
        batch(maker, 4, "end"),
    ]
    with (
        ScriptedServer(batches) as server,
        CanalClient(
            "127.0.0.1", server.port, ack=1000.0, whole_transactions=True
        ) as client,
    ):
        for message in client.messages():
            if ids(message.changes()) == [2]:
                assert message.id == -1
                client.ack(1)
                break  # 2 is not handled
        again: list[int] = []
        for message in client.messages():
            again += ids(message.changes())
            if 4 in again:
                break
        assert again == [2, 3, 4]
        assert server.acked == 1


@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize("ends_by", ["stop", "time-out"])
def test_a_link_that_dies_within_a_message(maker, monkeypatch, slow, ends_by):
    """`stop` and the time-out hold, also while a thread receives for a slow handler.

    That thread has no limit of its own here.
    """
    monkeypatch.setattr(f"{LATE_READER}.AFTER_S", 0.01)
    monkeypatch.setattr(f"{LATE_READER}.TIMEOUT_S", None)
    lost: list[Exception] = []

    def end(error: Exception) -> None:
        lost.append(error)
        client.stop()

    batches = [batch(maker, 1), batch(maker, 2)]
    with ScriptedServer(batches, stalls_in=2) as server:
        client = CanalClient(
            "127.0.0.1",
            server.port,
            timeout_s=0.2 if ends_by == "time-out" else PATIENCE_S * 100,
            on_disconnect=end,
        )
        seen: list[int] = []
        for message in client.messages():
            seen += ids(message.changes())
            assert server.stalled.wait(PATIENCE_S)
            if slow:
                wait_for_thread(client)
            if ends_by == "stop":
                threading.Timer(0.05, client.stop).start()
        assert seen == [1]
        assert [type(each) for each in lost] == [TimeoutError] * (ends_by != "stop")
        client.close()


def wait_for_thread(client: CanalClient) -> None:
    """Wait until the client's own thread receives."""
    late = client._connection._late
    assert late is not None
    for _ in range(int(PATIENCE_S / 0.01)):
        if late._lock.locked():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it does not receive")


def test_acks_while_the_thread_receives(maker, monkeypatch):
    """The program may send while its next message is being received."""
    monkeypatch.setattr(f"{LATE_READER}.AFTER_S", 0.01)
    batches = [batch(maker, 1), batch(maker, 2)]
    with ScriptedServer(batches, stalls_in=2) as server:
        client = CanalClient("127.0.0.1", server.port, ack="manual")
        for message in client.messages():
            assert server.stalled.wait(PATIENCE_S)
            wait_for_thread(client)
            client.ack(message.id)
            client.stop()
        client.close()
        assert server.acked == 1
