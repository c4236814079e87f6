"""The reply to a SELECT as raw bytes: from the first packet on, and how it ends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fix_source_access import access_of

from canal_server.errors import ConnectionLost, SourceError
from canal_server.mysql.result_stream import ResultStream
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from servers import Server

SLOW = "SELECT SLEEP(60)"


def test_answer(source_server: Server) -> None:
    """Queries are first; the reply then starts with the number of its columns."""
    space = memoryview(bytearray(1 << 16))
    with ResultStream(access_of(source_server)) as stream:
        stream.open(["SET @a = 7"])
        assert stream.is_mariadb == (source_server.flavour == "mariadb")
        assert stream.query("SELECT @a") == [(7,)]
        stream.ask("SELECT 'abc', 5")
        data = b""
        while not data.endswith(b"\x03abc\x015\x05\x00\x00\x06\xfe\x00\x00\x02\x00"):
            data += space[: stream.receive_into(space)]
        assert data[:5] == b"\x01\x00\x00\x01\x02"


def test_refused_setting(source_server: Server) -> None:
    """An unknown setting is reported, and leaves nothing open."""
    stream = ResultStream(access_of(source_server))
    with pytest.raises(SourceError, match="no_such_variable"), stream:
        stream.open(["SET SESSION no_such_variable = 1"])


def test_silence(source_server: Server) -> None:
    """A server that sends nothing for too long is disconnected."""
    with ResultStream(access_of(source_server), silence_max_s=0.05) as stream:
        stream.open()
        stream.ask(SLOW)
        with pytest.raises(
            ConnectionLost, match=r"nothing for 0\.05 s during .*: it h"
        ):
            stream.receive_into(memoryview(bytearray(9)))


@pytest.mark.parametrize("way", ["stop", "close"])
def test_ended_while_waiting(source_server: Server, way: str) -> None:
    """A stop, or closing from another thread, ends the wait for a reply."""
    stop = Stop()
    with ResultStream(access_of(source_server), stop) as stream:
        stream.open()
        stream.ask(SLOW)
        ended = []

        def receive() -> None:
            try:
                stream.receive_into(memoryview(bytearray(9)))
            except ConnectionLost as error:
                ended.append(error)

        thread = threading.Thread(target=receive)
        thread.start()
        stop.request() if way == "stop" else stream.close()
        thread.join(60)
        assert ended
