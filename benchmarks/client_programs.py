"""Client programs on a server that has a load to deliver: ours, each in its ways.

Each run has a server process and a client process of its own, so that all begin with
the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loads import END_TABLE
from server_process import DESTINATION, Memory, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loads import Range
    from servers import Server

HERE = Path(__file__).parent
RUN_SECONDS_MAX = 300


@dataclass(frozen=True, slots=True)
class ClientRun:
    """One drained load, from the first message to the last row.

    `cpu_seconds` are those of the client's process; `message_bytes` is the size of the
    largest message. None where it was not measured. `profile` says where the time went,
    if that was asked for.
    """

    rows: int
    seconds: float
    memory: Memory | None = None
    cpu_seconds: float | None = None
    message_bytes: int | None = None
    profile: str = ""


def run_way(
    server: Server, load: Range, way: str, *, profile: bool = False
) -> ClientRun:
    """Drain a load in one of `client_pass.WAYS`. Raises CalledProcessError."""
    with ServerProcess(server, load) as ours:
        task = {
            "port": ours.address[1],
            "destination": DESTINATION,
            "way": way,
            "end": END_TABLE,
            "profile": profile,
        }
        answer = run_program("client_pass.py", task)
    return ClientRun(
        rows=load.rows,
        seconds=answer["seconds"],
        memory=Memory(*answer["memory"]),
        cpu_seconds=answer["cpu_seconds"],
        message_bytes=answer["message_bytes"] or None,
        profile=answer["profile"],
    )


def run_program(
    name: str, task: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> Any:
    """Run a program of this folder on a task; return its answer, both in JSON.

    Raises CalledProcessError, with what it wrote on standard error as a note.
    """
    done = subprocess.run(
        [sys.executable, str(HERE / name)],
        cwd=tempfile.gettempdir(),  # not the checkout
        input=json.dumps(task),
        capture_output=True,
        timeout=RUN_SECONDS_MAX,
        text=True,
        env=os.environ | dict(env or {}),
        check=False,
    )
    if done.returncode:
        error = subprocess.CalledProcessError(done.returncode, name)
        error.add_note(done.stderr[-3000:])
        raise error
    return json.loads(done.stdout)
