"""A private S3 server, from Maven: s3proxy, with its objects in a folder.

Skips where Maven or Java is missing, or where its jars cannot be had.
"""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from fix_interop import need, run
from fix_lake import COPY, copied_rows, statistics
from servers import free_port
from support_paths import TESTS

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.settings.table_values import CopiedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from fix_lake import LakeRows

POMS = TESTS / "interop" / "stores"
BUCKET = "lake"
USER = "user-of-the-lake"
SECRET = "secret-word-of-the-lake"
START_S = 120.0
POLL_S = 0.1
OPTIONS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_QUIET = """<configuration>
<appender name="E" class="ch.qos.logback.core.ConsoleAppender">
<target>System.err</target><encoder><pattern>%d %level %msg%n</pattern></encoder>
</appender>
<root level="WARN"><appender-ref ref="E"/></root>
</configuration>
"""


@dataclass(frozen=True, kw_only=True)
class S3:
    """A running server with one bucket."""

    endpoint: str
    root: str = f"s3://{BUCKET}"

    @property
    def options(self) -> dict[str, str]:
        """Options of delta-rs that open the bucket."""
        return {
            "aws_access_key_id": USER,
            "aws_secret_access_key": SECRET,
            "aws_region": "us-east-1",
            "endpoint_url": self.endpoint,
            "allow_http": "true",
        }

    def lake(self, name: str, **options: str) -> LakeSettings:
        """Return the settings of a lake in the bucket; `options` are others."""
        return LakeSettings(
            path=f"{self.root}/{name}", storage_options=self.options | options
        )


def staged(lake: LakeSettings, rows: LakeRows, copy: str = COPY) -> list[CopiedFile]:
    """Write the files of a copy."""
    folder = open_folder(lake, rows.table.target)
    live = copied_rows(rows)
    files = []
    for number, first in enumerate(range(0, len(live), 15)):
        part: pa.Table = live.slice(first, 15)
        name = f"{copy}-{number}.parquet"
        with folder.open_output(name) as file:
            pq.write_table(part, file, compression="zstd")
        size = folder.sizes()[name]
        files.append(CopiedFile(name, size, len(part), statistics(part)))
    return files


def jars(pom: str, folder: Path) -> str:
    """Return the class path of a server from Maven; skips if it cannot be had."""
    maven = need("mvn")
    need("java")
    found = folder / f"{pom}.path"
    fetched = run(
        *(maven, "--batch-mode", "--quiet", "--file", str(POMS / pom)),
        *("dependency:build-classpath", f"-Dmdep.outputFile={found}"),
    )
    if fetched.returncode:
        pytest.skip(f"{pom}: its jars cannot be had: {fetched.stdout[:200]}")
    return found.read_text()


def wait_for(url: str, popen: subprocess.Popen[Any], log: Path) -> None:
    """Wait until a server answers, with whatever status."""
    give_up_at = time.monotonic() + START_S
    while time.monotonic() < give_up_at and popen.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=START_S).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(POLL_S)
        else:
            return
    raise AssertionError(f"{url} does not answer: {log.read_text()[-2000:]}")


class S3Process:
    """A server as a process, which is started again and again on its objects."""

    def __init__(self, folder: Path, objects: Path, classes: str) -> None:
        """Set where it keeps its files, and where its buckets are."""
        self._folder = folder
        self._objects = objects
        self._classes = classes
        self._popen: subprocess.Popen[bytes] | None = None
        self.store = S3(endpoint=f"http://127.0.0.1:{free_port()}")
        (objects / BUCKET).mkdir(parents=True, exist_ok=True)
        (folder / "logback.xml").write_text(_QUIET)

    def start(self, secret: str = SECRET) -> None:
        """Start it, at the same address as before; returns when it answers."""
        folder = self._folder
        settings = {
            "s3proxy.endpoint": self.store.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": USER,
            "s3proxy.credential": secret,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self._objects),
            "jclouds.identity": "unused",
            "jclouds.credential": "unused",
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (folder / "s3proxy.properties").write_text("".join(lines))
        logging = f"-Dlogback.configurationFile={folder / 'logback.xml'}"
        command = [
            *("java", *OPTIONS, logging),
            *("-cp", self._classes, "org.gaul.s3proxy.Main"),
            *("--properties", str(folder / "s3proxy.properties")),
        ]
        log = folder / "log"
        with log.open("ab") as output:
            self._popen = subprocess.Popen(command, stdout=output, stderr=output)
        wait_for(self.store.endpoint, self._popen, log)

    @property
    def pid(self) -> int:
        """The process, which runs."""
        assert self._popen is not None
        return self._popen.pid

    def kill(self) -> None:
        """Kill it, as a machine that goes away does."""
        popen, self._popen = self._popen, None
        if popen is not None:
            popen.kill()
            popen.wait()

    def pause(self) -> None:
        """Let it answer nothing until `resume`; connections are accepted."""
        assert self._popen is not None
        self._popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer what it was asked meanwhile."""
        assert self._popen is not None
        self._popen.send_signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """Give a server for all tests; each uses a folder of its own."""
    folder = tmp_path_factory.mktemp("s3")
    process = S3Process(folder, folder / "objects", jars("s3proxy.xml", folder))
    try:
        process.start()
        yield process.store
    finally:
        process.kill()


@pytest.fixture
def own_s3(tmp_path: Path) -> Iterator[Callable[[Path], S3Process]]:
    """Give `own_s3(objects)`: a server of the test's own, which runs."""
    made: list[S3Process] = []

    def make(objects: Path) -> S3Process:
        made.append(S3Process(tmp_path, objects, jars("s3proxy.xml", tmp_path)))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.kill()
