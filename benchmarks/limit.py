"""The upper bound: compiles `limit.c` and runs it between a dump and a client.

The client takes what comes and looks at nothing, as does the one of `drain`.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql

if TYPE_CHECKING:
    from typing import Self

    from loads import Range
    from servers import Server

SOURCE = Path(__file__).with_name("limit.c")
DUMP = struct.Struct("<IHI")  # offset, flags, server id; the file's name follows
COM_BINLOG_DUMP = 0x12
RUN_SECONDS_MAX = 600
RECEIVE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class LimitRun:
    """One run: from the first byte of the source to the last one at the client."""

    rows: int
    transactions: int
    seconds: float
    bytes: int
    cpu_s: float


class Limit:
    """The compiled program; a context manager that removes it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="canal-limit-")
        self._program = Path(self._folder.name) / "limit"

    def __enter__(self) -> Self:
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, "-O2", "-o", str(self._program), str(SOURCE)], check=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(self, server: Server, load: Range) -> LimitRun:
        """Read a load once. Raises CalledProcessError when the program fails."""
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as client,
            self._begin_dump(server, load) as source,
        ):
            served, _ = listener.accept()
            with served:
                process = subprocess.Popen(
                    [
                        self._program,
                        str(source.fileno()),
                        str(served.fileno()),
                        str(load.rows),
                    ],
                    pass_fds=(source.fileno(), served.fileno()),
                    stdout=subprocess.PIPE,
                )
            # Its end is the end of the connection: nobody else holds the socket now.
            killer = threading.Timer(RUN_SECONDS_MAX, process.kill)
            killer.start()
            drain_to_end(client)
            last = time.monotonic()
            killer.cancel()
        output, _ = process.communicate()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        measured: dict[str, Any] = json.loads(output)
        return LimitRun(
            rows=measured["rows"],
            transactions=measured["transactions"],
            seconds=last - measured["first"],
            bytes=measured["bytes"],
            cpu_s=measured["cpu_s"],
        )

    def _begin_dump(self, server: Server, load: Range) -> socket.socket:
        """Ask for the dump on a connection without TLS; return its socket."""
        connection: Any = pymysql.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            ssl_disabled=True,
        )
        with connection.cursor() as cursor:
            cursor.execute(
                "SET @master_binlog_checksum = 'CRC32', "
                "@source_binlog_checksum = 'CRC32'"
            )
        # PyMySQL has no public way to a dump; the library for MySQL replication does
        # the same.
        request = DUMP.pack(load.position, 0, os.getpid()) + load.file.encode()
        connection._execute_command(COM_BINLOG_DUMP, request)  # noqa: SLF001
        connection._sock.settimeout(None)  # noqa: SLF001
        # A socket of our own: the connection closes its one when it is collected.
        return socket.socket(fileno=os.dup(connection._sock.fileno()))  # noqa: SLF001


def drain_to_end(client: socket.socket) -> None:
    """Receive until the other side closes."""
    buffer = bytearray(RECEIVE_BYTES)
    while client.recv_into(buffer):
        pass
