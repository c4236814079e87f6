"""Registries of schemas: one that does as a test says, and Apicurio from Maven."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from fix_interop import SWITCH, need, run
from servers import free_port

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from pathlib import Path

APICURIO = "io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all"
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_S = 240.0
POLL_S = 0.1
ASK_S = 10.0


class PlainRegistry:
    """A registry in this process, without rules: `answer` decides about requests.

    It returns a status and an error's code for a path, or None: the registry answers.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.subjects: dict[str, list[int]] = {}
        self.schemas: list[str] = []
        self.answer: Callable[[str], tuple[int, int] | None] = lambda _: None
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(None)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._reply(json.loads(body)["schema"])

            def _reply(self, schema: str | None) -> None:
                headers = dict(self.headers)
                registry.requests.append((self.command, self.path, headers))
                status, content = registry.reply(self.path, schema)
                text = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def reply(self, path: str, schema: str | None) -> tuple[int, Any]:
        """Return the answer to a request."""
        if (wrong := self.answer(path)) is not None:
            return wrong[0], {"error_code": wrong[1], "message": "said\n no"}
        if schema is None:
            return 200, list(self.subjects)
        subject = path.removesuffix("/versions").rpartition("/")[2]
        if schema not in self.schemas:
            if not path.endswith("/versions"):
                return 404, {"error_code": 40403, "message": "no such schema"}
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        self.subjects.setdefault(subject, []).append(number)
        return 200, {"id": number}

    @property
    def address(self) -> str:
        """Return where it listens, without the scheme."""
        return f"127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        """End it."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def make_registry() -> Iterator[Callable[..., PlainRegistry]]:
    """Give a function that starts a registry."""
    made: list[PlainRegistry] = []

    def make(tls: ssl.SSLContext | None = None) -> PlainRegistry:
        made.append(PlainRegistry(tls))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Apicurio:
    """A registry with Confluent's interface; what it has survives that it is killed."""

    def __init__(self, java: str, folder: Path, data: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        self._log = data / "log"
        self._command = (
            *(java, *JVM),
            *(f"-Dquarkus.http.port={self.port}", "-Dquarkus.http.host=127.0.0.1"),
            f"-Dapicurio.datasource.url=jdbc:h2:file:{data / 'registry'}",
            *("-jar", str(next(folder.glob("*-runner.jar")))),
        )
        self._folder = folder
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> Apicurio:
        """Start it, and wait until it answers."""
        give_up_at = time.monotonic() + START_S
        while True:
            # On a busy machine it ends: its pool waits 5 s for the file of its data.
            if self._popen is None or self._popen.poll() is not None:
                self._launch()
            try:
                self.ask("/subjects")
            except OSError:
                found = f"no answer: {self._log.read_text()[-3000:]}"
                assert time.monotonic() < give_up_at, found
                time.sleep(POLL_S)
            else:
                return self

    def _launch(self) -> None:
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                self._command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """End it at once."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None

    def ask(self, path: str, body: Any = None, method: str = "GET") -> Any:
        """Return the content of an answer."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=ASK_S) as answer:
            return json.load(answer)

    def text_of(self, number: int) -> str:
        """Return the schema of an id."""
        return str(self.ask(f"/schemas/ids/{number}")["schema"])

    def set_compatibility(self, level: str, subject: str = "") -> None:
        """Set which changes of schemas are accepted."""
        path = f"/config/{subject}".rstrip("/")
        self.ask(path, {"compatibility": level}, "PUT")


@pytest.fixture(scope="module")
def apicurio_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Give the command of Java, and the folder of Apicurio."""
    if SWITCH not in os.environ:
        pytest.skip(f"{SWITCH}=1 runs it")
    maven, java = need("mvn"), need("java")
    folder = tmp_path_factory.mktemp("apicurio")
    fetched = run(
        *(maven, "--batch-mode", "--quiet", "dependency:copy"),
        *(f"-Dartifact={APICURIO}", f"-DoutputDirectory={folder}"),
    )
    if fetched.returncode:
        pytest.skip(f"Apicurio cannot be had: {fetched.stdout[:200]}")
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    packed.unlink()
    return java, folder


@pytest.fixture
def apicurio(apicurio_folder: tuple[str, Path], tmp_path: Path) -> Iterator[Apicurio]:
    """Give a registry that runs."""
    data = tmp_path / "registry"
    data.mkdir()
    made = Apicurio(*apicurio_folder, data)
    yield made.start()
    made.kill()
