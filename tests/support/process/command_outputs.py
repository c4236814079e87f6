"""Runs of the command `canal-server` whose output cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from fix_daemon import child_environ

FULL = "cannot write to standard output: No space left on device"
WAITS = "no change so far: "
# One process for all: to import what they need takes longer than all they do.
SCRIPT = """
import json, os, sys
from canal_server import cli
for name in cli.COMMANDS:
    cli.load(name)
commands, outputs = json.loads(sys.argv[1])
statuses = []
for arguments in commands:
    for output in outputs:
        pid = os.fork()
        if not pid:
            os.dup2(output, 1)
            sys.argv = ["canal-server", *arguments]
            sys.exit(cli.main())
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(statuses))
"""


def unwritable(commands):
    """Assert that commands fail on a full disk and in a pipe that nobody reads.

    In the first case each has one line on standard error, in the other one none.
    """
    reader, closed = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("wb") as full, os.fdopen(closed, "wb"):
        outputs = [full.fileno(), closed]
        found = subprocess.run(
            [sys.executable, "-c", SCRIPT, json.dumps([commands, outputs])],
            env=child_environ(),
            capture_output=True,
            text=True,
            check=True,
            pass_fds=outputs,
        )
    assert json.loads(found.stdout) == [1] * (2 * len(commands))
    # On a busy machine a tail says why it has to wait.
    lines = [each for each in found.stderr.splitlines() if WAITS not in each]
    assert len(lines) == len(commands), found.stderr
    for (command, *_), line in zip(commands, lines, strict=True):
        name, _, shown = line.partition(": ")
        expected = f"canal-server {command}".removesuffix(" --help")
        assert name.startswith(expected), found.stderr
        assert shown == FULL, found.stderr
