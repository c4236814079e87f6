"""The server and its clients end in every way, and delivery goes on after it."""

from __future__ import annotations

import threading

import pytest
from fix_pipeline import UNIT_S
from fix_random import longer
from load import Load, allow_from, receive_until_broken, stored_cursor

from canal_server.errors import ClientError


def test_server_killed(pipeline, rng):
    """Killed under load at any moment, the server goes on at the stored cursor."""
    # From the second run on, so that kills also meet the writing of the cursors.
    pipeline.configure({"canal.file.flush.period": 20})
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with Load(writer):
        for _ in range(longer(3)):
            before = checker.done
            killer = threading.Timer(rng.uniform(0.05, 1.5), pipeline.kill)
            killer.start()
            receive_until_broken(pipeline, checker, rng)
            killer.join()
            print(
                f"killed with {checker.done} done, {checker.done - before} in this run"
            )
            allow_from(stored_cursor(pipeline), checker)
            pipeline.start()
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    assert checker.done == len(writer.transactions)
    print(f"{checker.done} transactions, {checker.repeated} changes arrived again")


def test_server_stopped(pipeline, rng):
    """Stopped under load and started again, the server repeats nothing acked."""
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with Load(writer):
        for _ in range(longer(3)):
            with pipeline.client() as client:
                pipeline.receive_some(client, checker, rng.randint(1, 20))
                acked = checker.done
                # Got, but not acked.
                checker.take(client.get(rng.randint(1, 50), UNIT_S).entries)
                pipeline.stop()
            checker.resume(acked, acked)
            pipeline.start()
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    assert checker.done == len(writer.transactions)


def test_client_killed(pipeline, rng):
    """What a client took and did not ack comes again to its next connection."""
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    writer.write(60)
    for _ in range(5):
        with pipeline.client() as client:
            pipeline.receive_some(client, checker, 2, batch_size=rng.randint(1, 9))
            acked = checker.mark()
            for _ in range(3):
                checker.take(client.get(rng.randint(1, 9), UNIT_S).entries)
        checker.rewind(acked)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    assert checker.repeated > 0


def test_rollback(pipeline, rng):
    """A rollback brings all open batches again, on the same connection."""
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    writer.write(30)
    with pipeline.client() as client:
        first = client.get(20, UNIT_S)
        second = client.get(20, UNIT_S)
        client.rollback()
        again = client.get(len(first.entries) and 40, UNIT_S)
        assert again.id > second.id
        entries = first.entries + second.entries
        assert again.entries[: len(first.entries)] == first.entries
        assert entries[: len(again.entries)] == again.entries[: len(entries)]
        client.rollback(again.id)
        pipeline.receive(client, checker)
    assert checker.repeated == 0


def test_ack_out_of_order(pipeline, rng):
    """An ack of a batch that is not the oldest is refused, and loses nothing."""
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    writer.write(30)
    with pipeline.client() as client:
        client.get(1, UNIT_S)
        second = client.get(1, UNIT_S)
        client.ack(second.id)
        with pytest.raises(ClientError, match=str(second.id)):
            client.get(1, UNIT_S)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    assert checker.repeated == 0
