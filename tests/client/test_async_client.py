"""The client of asyncio: the same rules as of the one that blocks, and cancellation."""

# mypy: disable-error-code="index,func-returns-value"
# The changes of these tests are rows, which have values.

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import aclosing

import pytest
from client_entries import row, transaction
from fix_server import DESTINATION, PATIENCE_S, FakeInstances
from loop_changes import acked_by

from canal_server.client import AsyncCanalClient, ClientError, TransactionTooLarge
from canal_server.protocol.auth import stored_form
from canal_server.runtime.lifecycle import Deadline


@pytest.fixture
def port(serve):
    """Give the port of a fresh server."""
    return serve().port


async def take(client, count):
    """Return the ids of so many rows, and leave the loop within the last one."""
    found = []
    async with aclosing(client.changes()) as changes:
        async for change in changes:
            found.append(change.after["id"])
            if len(found) == count:
                break
    return found


def run(coroutine):
    """Run a coroutine; fails if it takes long."""
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


def test_requests_one_by_one(port, store):
    """The protocol's requests are awaited, with the meaning of the other client's."""
    store.append(*transaction(1, 2), *transaction(10, 1))

    async def main():
        async with AsyncCanalClient("127.0.0.1", port, DESTINATION) as client:
            await client.subscribe()
            first = await client.get(batch_size=4)
            assert [c.after["id"] for c in first.changes()] == [1, 2]
            await client.rollback()
            again = await client.get(batch_size=4)
            assert again.entries == first.entries
            await client.ack(again.id)
            await client.ack((await client.get()).id)
            assert not await client.get(timeout_s=0.01)
            await client.unsubscribe()
            with pytest.raises(ClientError, match="should subscribe first"):
                await client.get()

    run(main())
    assert store.cursors == {}


def test_loop(port, store):
    """A loop connects by itself and acks what it handled."""
    store.append(*map(row, (1, 2, 3)))

    async def main():
        client = AsyncCanalClient("127.0.0.1", port, DESTINATION, batch_size=1)
        found = []
        async for change in client:
            found.append(change.after["id"])
            if len(found) == 3:
                client.stop()
        await client.close()
        return found

    assert run(main()) == [1, 2, 3]
    assert acked_by(store) == 3


@pytest.mark.parametrize("closes", [True, False])
def test_break(port, store, closes):
    """What a broken loop had at hand comes again, also if nobody closed the loop."""
    store.append(*map(row, (1, 2, 3)))

    async def main():
        client = AsyncCanalClient("127.0.0.1", port, DESTINATION, batch_size=1)
        if closes:
            assert await take(client, 2) == [1, 2]
        else:
            changes = client.changes()
            assert [(await anext(changes)).after["id"] for _ in range(2)] == [1, 2]
        assert await take(client, 2) == [2, 3]
        await client.close()

    run(main())
    assert acked_by(store) == 2


def test_cancellation_of_the_handler(port, store):
    """A task that is cancelled within its handler acks nothing of that message."""
    store.append(*map(row, (1, 2)))

    async def main():
        client = AsyncCanalClient("127.0.0.1", port, DESTINATION, batch_size=1)
        handling = asyncio.Event()

        async def follow():
            async for change in client:
                if change.after["id"] == 2:
                    handling.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(follow())
        await handling.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.close()

    run(main())
    assert acked_by(store) == 1


def test_cancellation_of_the_wait(port, store):
    """A task that is cancelled while it waits loses its connection, and no change."""
    store.append(row(1))

    async def main():
        client = AsyncCanalClient("127.0.0.1", port, DESTINATION)
        seen = []

        async def follow():
            async for change in client:
                seen.append(change.after["id"])  # noqa: PERF401  # it is cancelled

        task = asyncio.create_task(follow())
        await asyncio.to_thread(store.wait_for_getters, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.append(row(2))
        assert seen + await take(client, 1) == [1, 2]
        await client.close()

    run(main())


def test_stop_from_a_thread(port, store):
    """`stop` ends a loop that waits."""

    async def main():
        client = AsyncCanalClient("127.0.0.1", port, DESTINATION)
        thread = threading.Thread(
            target=lambda: (store.wait_for_getters(1), client.stop())
        )
        thread.start()
        found = [change.after["id"] async for change in client]
        await client.close()
        thread.join()
        return found

    store.append(row(1))
    assert run(main()) == [1]


def test_next_address(serve, store):
    """When a server ends, the next one continues after the last ack."""
    first, second = serve(), serve()
    store.append(*map(row, (1, 2, 3)))
    events: list[str] = []

    async def main():
        client = AsyncCanalClient(
            f"127.0.0.1:{first.port},127.0.0.1:{second.port}",
            destination=DESTINATION,
            batch_size=1,
            on_connect=events.append,
            on_redelivery=lambda: events.append("again"),
        )
        changes = client.changes()
        assert [(await anext(changes)).after["id"] for _ in range(2)] == [1, 2]
        first.request_stop()
        await asyncio.to_thread(first.join, Deadline(PATIENCE_S))
        assert [(await anext(changes)).after["id"] for _ in range(2)] == [2, 3]
        await client.close()

    run(main())
    assert events == [f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}", "again"]


def test_nobody_listens():
    """Without a server, `connect` raises, and so does a loop that may not retry."""

    async def main():
        client = AsyncCanalClient("127.0.0.1", 1, DESTINATION, reconnect_for_s=0)
        with pytest.raises(ConnectionError):
            await client.connect()
        with pytest.raises(ConnectionError):
            await anext(client.changes())

    run(main())


def test_wrong_password(serve):
    """A refused login is raised at once."""
    port = serve(user="canal", passwd=stored_form("secret")).port

    async def main():
        client = AsyncCanalClient("127.0.0.1", port, user="canal", password="wrong")
        with pytest.raises(ClientError, match="auth failed"):
            await client.connect()

    run(main())


@pytest.mark.parametrize("tls", [False, True], ids=["login", "handshake"])
def test_stop_while_connecting(tls):
    """A server that does not answer is not waited for after `stop`."""

    async def main(server):
        port = server.getsockname()[1]
        client = AsyncCanalClient("127.0.0.1", port, DESTINATION, tls=tls)

        async def collect():
            return [change async for change in client]

        loop = asyncio.get_running_loop()
        found = asyncio.create_task(collect())
        peer, _ = await loop.sock_accept(server)
        client.stop()
        assert await asyncio.wait_for(found, PATIENCE_S / 2) == []
        peer.close()
        await client.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        run(main(server))


def test_first_address_stands_by(serve, store):
    """A server that lets a client log in only does not hide the next one."""
    idle, running = serve(among=FakeInstances(broken={DESTINATION})), serve()
    store.append(row(1))

    async def main():
        client = AsyncCanalClient(
            f"127.0.0.1:{idle.port},127.0.0.1:{running.port}",
            destination=DESTINATION,
            reconnect_for_s=0,
        )
        found = await take(client, 1)
        await client.close()
        return found

    assert run(main()) == [1]


def test_silent_server():
    """A server that never answers is a TimeoutError."""

    async def main(port):
        client = AsyncCanalClient("127.0.0.1", port, timeout_s=0.05)
        with pytest.raises(TimeoutError, match=f"no answer from 127.0.0.1:{port}"):
            await client.connect()

    with socket.create_server(("127.0.0.1", 0)) as server:
        run(main(server.getsockname()[1]))


def test_whole_transactions(port, store):
    """Messages end with transactions, and too large a one is an error."""
    store.append(*transaction(1, 5), *transaction(10, 40))

    async def main():
        client = AsyncCanalClient(
            "127.0.0.1",
            port,
            DESTINATION,
            whole_transactions=True,
            transaction_bytes_max=1000,
            batch_size=3,
        )
        messages = client.messages()
        first = await anext(messages)
        assert [change.after["id"] for change in first.changes()] == [1, 2, 3, 4, 5]
        with pytest.raises(TransactionTooLarge):
            await anext(messages)
        await client.close()

    run(main())


def test_large_message(port, store):
    """A message beyond the stream's buffer arrives whole, also ahead of time."""
    numbers = range(1, 60_001)
    store.append(*map(row, numbers))

    async def main():
        client = AsyncCanalClient("127.0.0.1", port, DESTINATION, batch_size=40_000)
        found = []
        async for change in client:
            found.append(change.after["id"])
            if len(found) == len(numbers):
                client.stop()
        await client.close()
        return found

    assert run(main()) == list(numbers)


def test_two_tasks(port, store):
    """A client is for one task: another one is refused, and the first continues."""
    store.append(row(1))

    async def main() -> list[int]:
        async with AsyncCanalClient("127.0.0.1", port, DESTINATION) as client:
            changes = client.changes()
            seen = [(await anext(changes)).after["id"]]
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task is iterating"):
                await anext(client.changes())
            store.append(row(2))
            return [*seen, (await waiting).after["id"]]

    assert asyncio.run(main()) == [1, 2]
