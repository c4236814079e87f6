"""Frames on asyncio, from a peer that sends its bytes as it likes."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from fix_server import PATIENCE_S

from canal_server.client.connection.frame_protocol import FrameProtocol
from canal_server.errors import ProtocolError
from canal_server.protocol.framing import frame

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Coroutine

LIMIT = 10_000_000


def run(coroutine: Coroutine[object, None, None]) -> None:
    """Run a test."""
    asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


class Peer:
    """The other end of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def send(self, data: bytes) -> None:
        """Send all of it, while the loop goes on."""
        await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def receive(self, size: int) -> bytes:
        """Return some bytes; none at the end."""
        return await asyncio.get_running_loop().sock_recv(self._sock, size)

    def close(self) -> None:
        """Close."""
        self._sock.close()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[FrameProtocol, Peer]]:
    """Give a protocol and its peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        _, protocol = await asyncio.get_running_loop().create_connection(
            lambda: FrameProtocol("a server"), *listener.getsockname()
        )
        sock, _ = listener.accept()
    sock.setblocking(False)
    peer = Peer(sock)
    try:
        yield protocol, peer
    finally:
        protocol.abort()
        peer.close()


def test_frames_in_pieces(rng: random.Random) -> None:
    """However the bytes are cut, the frames come whole and in order."""
    bodies = [rng.randbytes(size) for size in (0, 1, 5, 70_000, 0, 300_000, 3)]
    data = b"".join(map(frame, bodies))

    async def main() -> None:
        async with connected() as (protocol, peer):

            async def send() -> None:
                at = 0
                while at < len(data):
                    size = rng.choice([1, 2, 3, 4, 5, 1000, 100_000])
                    await peer.send(data[at : at + size])
                    at += size
                    await asyncio.sleep(0)

            sending = asyncio.create_task(send())
            for body in bodies:
                found = await protocol.receive(LIMIT)
                assert found == body
                assert found.readonly
            await sending

    run(main())


def test_frames_before_they_are_asked_for() -> None:
    """What comes early waits; only the length of it is received."""

    async def main() -> None:
        async with connected() as (protocol, peer):
            first = protocol.receive(LIMIT)
            await peer.send(frame(b"one") + frame(b"two"))
            assert bytes(await first) == b"one"
            await peer.send(frame(b"three"))
            peer.close()
            assert bytes(await protocol.receive(LIMIT)) == b"two"
            assert bytes(await protocol.receive(LIMIT)) == b"three"
            with pytest.raises(ConnectionResetError, match="a server closed"):
                await protocol.receive(LIMIT)
            with pytest.raises(ConnectionResetError, match="a server closed"):
                protocol.send(b"x")

    run(main())


def test_length_beyond_the_limit() -> None:
    """The limit is that of the request; nothing is received of what is longer."""

    async def main() -> None:
        async with connected() as (protocol, peer):
            await peer.send(frame(b"12345678"))
            with pytest.raises(ProtocolError, match="8 bytes is out of range 0 to 7"):
                await protocol.receive(7)
        async with connected() as (protocol, peer):
            asked = protocol.receive(LIMIT)
            await peer.send(b"\xff\xff\xff\xff")
            with pytest.raises(ProtocolError, match="-1 bytes"):
                await asked

    run(main())


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\5", b"\0\0\0\5abcd"])
def test_end_within_a_frame(sent: bytes) -> None:
    """A connection that ends early ends the wait."""

    async def main() -> None:
        async with connected() as (protocol, peer):
            asked = protocol.receive(LIMIT)
            await peer.send(sent)
            peer.close()
            with pytest.raises(ConnectionResetError, match="a server closed"):
                await asked

    run(main())


def test_peer_that_does_not_receive() -> None:
    """A sender waits when the buffers are full, and goes on when they are not."""

    async def main() -> None:
        async with connected() as (protocol, peer):
            data = bytes(20_000_000)
            assert not protocol.send(data)
            sending = asyncio.create_task(protocol.sent())
            received = len(await peer.receive(1000))
            assert not sending.done()
            while received < len(data):
                received += len(await peer.receive(1_000_000))
            await sending

    run(main())


def test_drain_to_end() -> None:
    """What still arrives is dropped until the peer closes."""

    async def main() -> None:
        async with connected() as (protocol, peer):
            protocol.receive(LIMIT)
            await peer.send(frame(b"begun")[:6])
            assert protocol.send(b"last")
            draining = asyncio.create_task(protocol.drain_to_end())
            assert await peer.receive(100) == b"last"
            assert await peer.receive(100) == b""
            await peer.send(bytes(1_000_000))
            assert not draining.done()
            peer.close()
            await draining

    run(main())


def test_abandoned_frames() -> None:
    """A frame that nobody waits for any more is the next one's."""

    async def main() -> None:
        async with connected() as (protocol, peer):
            protocol.receive(LIMIT).cancel()
            await peer.send(frame(b"one"))
            assert bytes(await protocol.receive(LIMIT)) == b"one"

            body = bytes(20_000_000)  # more than the buffers hold
            asked = protocol.receive(len(body))
            sending = asyncio.create_task(peer.send(frame(body) + frame(b"three")))
            while len(protocol.get_buffer(-1)) < 1000:  # noqa: ASYNC110  # has no event
                await asyncio.sleep(0)
            asked.cancel()
            assert bytes(await protocol.receive(LIMIT)) == body
            assert bytes(await protocol.receive(LIMIT)) == b"three"
            await sending

    run(main())
