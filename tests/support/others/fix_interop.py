"""Clients that others wrote, each in a program of its own that does as it is asked.

The programs lie in `tests/interop`. They read one command a line from standard input,
its words apart by tabs, and write an object of JSON for each::

    connect HOST PORT USER PASSWORD DESTINATION    ->  {}
    subscribe FILTER                               ->  {"error": "…"}
    get SIZE TIMEOUT_MS                            ->  {"id": 1, "entries": […]}

The Python client comes with the extra `dev`. The others need a compiler and packages
of their own: they are run with CANAL_INTEROP=1 where those can be had.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from fix_pipeline import DESTINATION, UNIT_S
from support_paths import TESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from fix_pipeline import Pipeline
    from interop_form import Json
    from servers import Server

HERE = TESTS / "interop"
SWITCH = "CANAL_INTEROP"
BUILD_S_MAX = 240  # packages may have to be fetched first


@dataclass(frozen=True)
class Kind:
    """A client of a version, and in what it differs from the others."""

    name: str
    make: Callable[[Path], tuple[list[str], dict[str, str]]]  # the program to run
    # What an empty batch has for an id, and an entry without one for an event.
    empty_id: int = -1
    no_event: str = "EVENTTYPECOMPATIBLEPROTO2"


def need(tool: str) -> str:
    """Return the path of a program; skips the test where there is none."""
    found = shutil.which(tool)
    if not found:
        pytest.skip(f"no {tool} on this machine")
    return found


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command that may fetch something first."""
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=BUILD_S_MAX,
        **options,
    )


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line), "")


def _make_python(folder: Path) -> tuple[list[str], dict[str, str]]:
    del folder
    pytest.importorskip("google.protobuf", reason="no protobuf here")
    program = [sys.executable, str(HERE / "python_client.py")]
    return program, {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}


def _make_go(folder: Path) -> tuple[list[str], dict[str, str]]:
    go = need("go")
    fetched = run(go, "mod", "download", cwd=HERE / "go")
    if fetched.returncode:
        pytest.skip(f"canal-go cannot be had: {_first_line(fetched.stderr)}")
    program = str(folder / "driver")
    built = run(
        go,
        "build",
        "-o",
        program,
        ".",
        cwd=HERE / "go",
        env=os.environ | {"CGO_ENABLED": "0"},
    )
    assert built.returncode == 0, built.stderr
    return [program], {}


def _make_java(version: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    maven, javac, java = need("mvn"), need("javac"), need("java")
    where = folder / "classpath"
    fetched = run(
        *(maven, "--batch-mode", "--quiet", "--file", str(HERE / "java" / "pom.xml")),
        *("dependency:build-classpath", f"-Dcanal.version={version}"),
        f"-Dmdep.outputFile={where}",
    )
    if fetched.returncode:
        pytest.skip(
            f"canal.client {version} cannot be had: {_first_line(fetched.stdout)}"
        )
    jars = where.read_text()
    source = str(HERE / "java" / "ClientDriver.java")
    built = run(javac, "-classpath", jars, "-d", str(folder), source)
    assert built.returncode == 0, built.stderr
    # The folder of the source holds the settings of the log.
    classpath = os.pathsep.join((str(folder), str(HERE / "java"), jars))
    return [java, "-Xshare:auto", "-classpath", classpath, "ClientDriver"], {}


PYTHON = Kind("canal-python", _make_python, empty_id=0)
GO = Kind("canal-go", _make_go)
# In all of Java the entries are of protobuf 2, where what is missing has a default.
JAVA = Kind("java-1.1.8", functools.partial(_make_java, "1.1.8"), no_event="UPDATE")
# Here the packets are of protobuf 2 as well, and the password travels in clear.
OLD_JAVA = Kind(
    "java-1.0.25", functools.partial(_make_java, "1.0.25"), no_event="UPDATE"
)

KINDS = (PYTHON, GO, JAVA, OLD_JAVA)


class Driver:
    """One run of such a program."""

    def __init__(self, kind: Kind, program: Sequence[str], env: dict[str, str]) -> None:
        self.kind = kind
        self._popen = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=os.environ | env,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout
        for line in self._popen.stdout:
            self._lines.put(line)
        self._lines.put("")  # the end

    def order(self, *words: object) -> None:
        """Give a command; `answer` has its result."""
        assert self._popen.stdin
        self._popen.stdin.write("\t".join(map(str, words)) + "\n")
        self._popen.stdin.flush()

    def answer(self, timeout_s: float = 6 * UNIT_S) -> Json:
        """Wait for the answer to the oldest command that has none yet."""
        line = self._lines.get(timeout=timeout_s)
        assert line, f"{self.kind.name} ended with status {self._popen.wait()}"
        shown: Json = json.loads(line)
        return shown

    def try_(self, *words: object) -> str:
        """Carry out a command; returns its error, empty when there is none."""
        self.order(*words)
        return str(self.answer().get("error", ""))

    def do(self, *words: object) -> Json:
        """Carry out a command that must go well."""
        self.order(*words)
        received = self.answer()
        assert "error" not in received, f"{words}: {received['error']}"
        return received

    def connect(self, port: int, user: str = "", password: str = "") -> None:
        """Connect to a server here."""
        self.do("connect", "127.0.0.1", port, user, password, DESTINATION)

    def get_all(self, expected: Callable[[list[Json]], bool]) -> list[Json]:
        """Get and ack until the entries are as expected."""
        found: list[Json] = []
        while not expected(found):
            message = self.do("get", 100, round(3 * UNIT_S * 1000))
            assert message["id"] != self.kind.empty_id, f"nothing more after {found}"
            found += message["entries"]
            self.do("ack", message["id"])
        return found

    def close(self) -> None:
        """End it, and its connection with it."""
        self._popen.kill()
        self._popen.wait()
        self._reader.join()
        for stream in (self._popen.stdin, self._popen.stdout):
            assert stream
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def of_kinds(*kinds: Kind) -> pytest.MarkDecorator:
    """Run a test once for each of these clients, which its `start_client` starts."""
    return pytest.mark.parametrize(
        "client_kind",
        [pytest.param(kind, marks=_marks(kind), id=kind.name) for kind in kinds],
        indirect=True,
    )


def _marks(kind: Kind) -> list[pytest.MarkDecorator]:
    if kind is PYTHON:
        return [pytest.mark.interop]
    expected = os.environ.get(SWITCH) == "1"
    return [
        pytest.mark.interop,
        pytest.mark.slow,
        pytest.mark.skipif(
            not expected, reason=f"{SWITCH}=1 runs clients in Java and Go"
        ),
    ]


@pytest.fixture
def client_kind(request: pytest.FixtureRequest) -> Kind:
    """Give the client that the test is about; see `of_kinds`."""
    kind: Kind = request.param
    return kind


@pytest.fixture(scope="session")
def client_programs(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Kind], tuple[list[str], dict[str, str]]]:
    """Give a function that builds the program of a client, once."""
    made: dict[Kind, tuple[list[str], dict[str, str]] | str] = {}

    def make(kind: Kind) -> tuple[list[str], dict[str, str]]:
        if kind not in made:
            try:
                made[kind] = kind.make(tmp_path_factory.mktemp(kind.name))
            except pytest.skip.Exception as skipped:
                made[kind] = str(skipped)
        program = made[kind]
        if isinstance(program, str):
            pytest.skip(program)
        return program

    return make


@pytest.fixture
def start_client(
    client_kind: Kind,
    client_programs: Callable[[Kind], tuple[list[str], dict[str, str]]],
) -> Iterator[Callable[..., Driver]]:
    """Give `start(daemon, filter)`: a client in a program of its own, subscribed.

    Without a daemon it is not even connected.
    """
    program, env = client_programs(client_kind)
    with contextlib.ExitStack() as running:

        def start(daemon: Pipeline | None = None, filter_: str = "") -> Driver:
            client = Driver(client_kind, program, env)
            running.enter_context(contextlib.closing(client))
            if daemon:
                client.connect(daemon.server_port)
                client.do("subscribe", filter_)
            return client

        yield start


@pytest.fixture
def java_client(
    client_programs: Callable[[Kind], tuple[list[str], dict[str, str]]],
) -> Iterator[Driver]:
    """Give a client in Java, not connected."""
    program, env = client_programs(JAVA)
    with contextlib.closing(Driver(JAVA, program, env)) as driver:
        yield driver


@pytest.fixture
def daemon(
    make_pipeline: Callable[..., Pipeline], mysql_server: Server, database: str
) -> Pipeline:
    """Give a server in front of the shared MySQL, not started."""
    return make_pipeline(mysql_server, database)
