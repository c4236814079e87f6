"""Clients of others on the same loads: mysql-replication, canal-python, Java's.

Those in Python read the first rows only, for it would take minutes to read all. Java's
comes from Maven's repository; it drains a load once before it is measured.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from client_programs import HERE, ClientRun, run_program
from loads import END_TABLE
from replication_library import run_library
from server_process import DESTINATION, Memory, ServerProcess

if TYPE_CHECKING:
    from loads import Range
    from servers import Server

CANAL_PYTHON_ROWS = 10_000
BATCH_SIZE = 1000  # the default of ours
JAVA_CLIENT = "1.1.8"
JAVA_OPTIONS = ("-Xmx512m",)
INTEROP = HERE.parent / "tests" / "interop" / "java"  # names its packages
BUILD_SECONDS_MAX = 240


class NotHereError(Exception):
    """A client that cannot be had on this machine, and why."""


def run_mysql_replication(server: Server, load: Range) -> ClientRun:
    """Read the first rows straight from MySQL, typed."""
    run = run_library(server, load)
    assert run is not None
    return ClientRun(run.rows, run.seconds)


def run_canal_python(server: Server, load: Range) -> ClientRun:
    """Read the first rows from our server, as texts. Raises NotHereError."""
    if not importlib.util.find_spec("canal"):
        raise NotHereError("canal-python is not installed")
    with ServerProcess(server, load) as ours:
        task = {
            "port": ours.address[1],
            "destination": DESTINATION,
            "rows": min(load.rows, CANAL_PYTHON_ROWS),
            "batch_size": BATCH_SIZE,
        }
        env = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
        answer = run_program("canal_python_pass.py", task, env)
    return ClientRun(answer["rows"], answer["seconds"], Memory(*answer["memory"]))


class JavaClient:
    """A process of Java that drains one server after the other, as texts.

    A context manager; raises NotHereError where it cannot be built.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="canal-bench-java-")
        self._popen: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        try:
            command = self._command(Path(self._folder.name))
        except BaseException:
            self._folder.cleanup()
            raise
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._popen is not None
        self._popen.kill()
        self._popen.wait()
        self._folder.cleanup()

    def run(self, server: Server, load: Range) -> ClientRun:
        """Drain a load from our server. Raises SubprocessError."""
        assert self._popen is not None
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        with ServerProcess(server, load) as ours:
            port = ours.address[1]
            self._popen.stdin.write(f"{port} {DESTINATION} {END_TABLE} {BATCH_SIZE}\n")
            self._popen.stdin.flush()
            answer = self._popen.stdout.readline()
            if not answer:
                raise subprocess.SubprocessError(
                    f"the Java client ended with status {self._popen.wait()}"
                )
            memory = Memory.of(self._popen.pid)
        return ClientRun(load.rows, int(answer) / 1e9, memory)

    def _command(self, folder: Path) -> list[str]:
        tools = {name: shutil.which(name) for name in ("java", "javac", "mvn")}
        if missing := [name for name, path in tools.items() if path is None]:
            raise NotHereError(f"no {', '.join(missing)} on this machine")
        paths = folder / "classpath"
        _build(
            *("mvn", "--batch-mode", "--quiet", "--file", str(INTEROP / "pom.xml")),
            *("dependency:build-classpath", f"-Dcanal.version={JAVA_CLIENT}"),
            f"-Dmdep.outputFile={paths}",
        )
        # The folder of the other source holds the settings of the log.
        classpath = f"{folder}:{INTEROP}:{paths.read_text()}"
        source = HERE / "java" / "ClientDrain.java"
        _build("javac", "-classpath", classpath, "-d", str(folder), str(source))
        return ["java", *JAVA_OPTIONS, "-classpath", classpath, "ClientDrain"]


def _build(*command: str) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no reason given"]
        raise NotHereError(f"{command[0]} failed: {lines[0]}")
