"""Decoding without the wire: our reader on a binlog file, its records thrown away.

It runs in a process of its own, `decode_pass.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loads import Range
    from servers import PrivateServer

PROGRAM = Path(__file__).with_name("decode_pass.py")
RUN_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class DecodeRun:
    """One pass over a load's binlog; bytes are those of the entries made of it."""

    rows: int
    seconds: float
    bytes: int


def run_decode(server: PrivateServer, load: Range, runs: int) -> list[DecodeRun]:
    """Decode a load's file some times. Raises CalledProcessError."""
    task = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "path": str(server.data_folder / load.file),
        "until": load.end,
        "runs": runs,
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        cwd=tempfile.gettempdir(),
        input=json.dumps(task),
        stdout=subprocess.PIPE,
        timeout=RUN_SECONDS_MAX,
        text=True,
        check=True,
    )
    return [DecodeRun(**run) for run in json.loads(done.stdout)]
