"""A server that speaks as MySQL does up to a packet of a test's choice.

What comes instead is the other side's: cut short, changed, or of another protocol.
Then the connection ends. `GARBAGE` is what any packet may be replaced by.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

from fake_mysql import greeting, packet

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

COM_QUERY, COM_DUMP = 0x03, 0x12
OK = b"\x00\x00\x00\x02\x00\x00\x00"
EOF = b"\xfe\x00\x00\x02\x00"
# Greeting, log-in, settings, a row, registering, and the stream.
PACKETS = 7

_BODIES = (
    b"",
    b"\x00",
    b"\xff",
    b"\xff\x15",
    b"\xff\x15\x04#28000",
    b"\xff\x15\x04#28000\xff\xfe not UTF-8 \x80",
    b"\xff" + b"\xff" * 300,
    b"\xfe",
    b"\xfe" * 40,
    b"\xfemysql_old_password\0" + b"s" * 8,
    b"\xfemysql_native_password\0",
    b"\xfecaching_sha2_password\0short",
    b"\xfesha256_password\0" + b"s" * 20 + b"\0",
    b"\xfemysql_clear_password\0",
    b"\xfedialog\0\x02Password: ",
    b"\xfeed25519\0" + b"s" * 32,
    b"\xfeauth_gssapi_client\0\xff\xff",
    b"\xfe\xff\xff\0\0",
    b"\x01",
    b"\x01\x04",
    b"\x01-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
    b"\xfb",
    b"\xfb/etc/passwd",
    b"\xfb\xff\xff",
    b"\xfc",
    b"\xfc\xff\xff",
    b"\xfd\xff\xff\xff",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x02\x00",
    b"\x01\x03def",
    b"\x0a" + b"9" * 400 + b"\0",
    b"\x0aabc\0\x01\0\0\0" + b"s" * 40,
    b"\x0a\xff\xfe\x80\0\x01\0\0\0" + b"s" * 40,
    b"\x0a99999999999999999999.0.0\0\x01\0\0\0" + b"s" * 40,
    b"\x0a\0\x01\0\0\0" + b"s" * 40,
    b"\x0a5.7.0",
    b"\x099.9.9\0\x01\0\0\0" + b"s" * 9,
    b"\x0bfuture\0" + b"s" * 60,
    bytes(64),
    b"\xff" * 64,
)
GARBAGE = (
    b"",
    b"\x00",
    b"\xff\xff\xff",
    b"\xff\xff\xff\x00short",
    b"\x05\x00\x00\x07numbr",
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\x16\x03\x01\x00\x05hello",
    *(packet(0, body) for body in _BODIES),
    *(packet(1, body) for body in _BODIES),
    *(packet(2, body) for body in _BODIES),
    *(packet(1, b"\x01") + packet(2, body) for body in _BODIES),
)


def _column() -> bytes:
    parts = (b"def", b"", b"", b"", b"c", b"")
    texts = b"".join(bytes([len(part)]) + part for part in parts)
    return texts + b"\x0c\x2d\x00\x00\x01\x00\x00\xfd\x00\x00\x00\x00\x00"


def row(*values: bytes) -> bytes:
    """Return the packets of an answer with one row."""
    columns = [_column() for _ in values]
    found = b"".join(bytes([len(value)]) + value for value in values)
    bodies = [bytes([len(values)]), *columns, EOF, found, EOF]
    return b"".join(packet(number, body) for number, body in enumerate(bodies, 1))


class HostileSource:
    """Answers each connection rightly up to a packet, and that one as it is set to."""

    def __init__(self, stream: bytes = b"") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.stream = stream  # what a dump is right to send
        self.turn, self.answer = -1, b""
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def cases(self, rng: random.Random) -> Iterator[str]:
        """Set up one case after another; what is given says which."""
        for turn in range(PACKETS):
            right = self._right(turn)
            changed = [self._changed(right, rng) for _ in range(60)]
            cut = [right[:n] for n in range(min(len(right), 120))]
            for self.answer in (*GARBAGE, *changed, *cut):
                self.turn = turn
                yield f"packet {turn} was {self.answer!r:.200}"

    def _right(self, turn: int) -> bytes:
        rights = (greeting(), packet(2, OK), packet(1, OK), packet(1, OK))
        return (*rights, row(b"CRC32"), packet(1, OK), self.stream)[turn]

    def _changed(self, right: bytes, rng: random.Random) -> bytes:
        """Return an answer with some bytes changed, the packets' headers as well."""
        data = bytearray(right)
        for _ in range(rng.randint(1, 4)):
            if data:
                data[rng.randrange(len(data))] = rng.choice([0, 251, 254, 255, 128, 1])
        return bytes(data)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                self._converse(peer)

    def _converse(self, peer: socket.socket) -> None:
        turn = 0
        peer.settimeout(10)
        while True:
            if turn == self.turn:
                peer.sendall(self.answer)
                # The other side sees the end of it, and we read what it still says.
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass
                return
            peer.sendall(self._right(turn))
            received = peer.recv(1 << 16)
            if not received:
                return
            turn = self._next(turn, received)

    def _next(self, turn: int, received: bytes) -> int:
        command = received[4] if turn else 0
        if turn == 0:
            return 1
        if command == COM_DUMP:
            return 6
        if command != COM_QUERY:
            return 5
        if received[5:].upper().startswith(b"SELECT"):
            return 4
        return 2 if turn == 1 else 3
