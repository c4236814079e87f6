"""Reads the first rows of a destination with canal-python; the task comes as JSON.

    port, destination, rows, batch_size

The answer on standard output: rows, seconds, resident memory. It is to run with
PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python: the package brings generated code that is
older than the compiled protobuf takes. Started by `client_rivals`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

from canal.client import Client
from canal.protocol import EntryProtocol_pb2 as packets
from drain import CLIENT_ID
from server_process import Memory

TRY_S = 30.0  # until the server listens
PAUSE_S = 0.1


def connected(port: int, destination: str) -> Any:
    """Return a client that has subscribed."""
    give_up_at = time.monotonic() + TRY_S
    while True:
        client = Client()
        try:
            client.connect("127.0.0.1", port)
        except OSError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(PAUSE_S)
            continue
        client.check_valid(b"", b"")
        client.subscribe(CLIENT_ID.encode(), destination.encode(), b"")
        return client


def rows_of(entry: Any) -> list[dict[str, str | None]]:
    """Return the new values of an entry's rows, as the package's example does."""
    change = packets.RowChange()
    change.MergeFromString(entry.storeValue)
    return [
        {
            column.name: None if column.isNull else column.value
            for column in row.afterColumns
        }
        for row in change.rowDatas
    ]


def main() -> None:
    """Do the task of standard input."""
    task = json.load(sys.stdin)
    rows, started = 0, 0.0
    with contextlib.redirect_stdout(sys.stderr):  # the package prints what it does
        client = connected(task["port"], task["destination"])
        while rows < task["rows"]:
            message = client.get_without_ack(task["batch_size"])
            started = started or (time.monotonic() if message["entries"] else 0.0)
            for entry in message["entries"]:
                if entry.entryType == packets.EntryType.ROWDATA:
                    rows += len(rows_of(entry))
            client.ack(message["id"])
        seconds = time.monotonic() - started
        client.disconnect()
    memory = Memory.of(os.getpid())
    answer = {
        "rows": rows,
        "seconds": seconds,
        "memory": [memory.now, memory.highest],
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
