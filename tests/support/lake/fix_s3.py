"""A private S3 server, from Maven: s3proxy, with its objects in a folder.

Skips where Maven or Java is missing, or where its jars cannot be had.
"""

from __future__ import annotations

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
    from collections.abc import Iterator
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
            path=f"s3://{BUCKET}/{name}", storage_options=self.options | options
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


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """Give a server for all tests; each uses a folder of its own."""
    folder = tmp_path_factory.mktemp("s3")
    classes = jars("s3proxy.xml", folder)
    (folder / "objects" / BUCKET).mkdir(parents=True)
    endpoint = f"http://127.0.0.1:{free_port()}"
    settings = {
        "s3proxy.endpoint": endpoint,
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": USER,
        "s3proxy.credential": SECRET,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(folder / "objects"),
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
    }
    lines = [f"{name}={value}\n" for name, value in settings.items()]
    (folder / "s3proxy.properties").write_text("".join(lines))
    (folder / "logback.xml").write_text(_QUIET)
    command = [
        *("java", *OPTIONS, f"-Dlogback.configurationFile={folder / 'logback.xml'}"),
        *("-cp", classes, "org.gaul.s3proxy.Main"),
        *("--properties", str(folder / "s3proxy.properties")),
    ]
    log = folder / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as popen,
    ):
        try:
            wait_for(endpoint, popen, log)
            yield S3(endpoint=endpoint)
        finally:
            popen.kill()
