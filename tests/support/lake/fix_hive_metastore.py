"""A private metastore of Hive, from Maven, with its tables in Derby in memory."""

from __future__ import annotations

import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from fix_s3 import OPTIONS, POLL_S, POMS, START_S, jars
from servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    # Those of a whole Hive are not in these jars.
    "metastore.expression.proxy": (
        "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
    ),
    "metastore.task.threads.always": (
        "org.apache.hadoop.hive.metastore.events.EventCleanerTask"
    ),
    # As Iceberg needs: columns can be added in the middle, and moved.
    "metastore.disallow.incompatible.col.type.changes": "false",
}


@pytest.fixture(scope="session")
def hive_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a metastore for all tests."""
    pytest.importorskip("thrift", reason="pyiceberg[hive] is not installed")
    folder = tmp_path_factory.mktemp("hive")
    classes, port = jars("hive-metastore.xml", folder), free_port()
    entries = {**SETTINGS, "metastore.warehouse.dir": str(folder / "warehouse")}
    (folder / "metastore-site.xml").write_text(_as_xml(entries))
    log = folder / "log"
    program = str(POMS / "HiveServer.java")
    with (
        log.open("wb") as output,
        subprocess.Popen(
            ["java", *OPTIONS, "-cp", f"{folder}:{classes}", program, "-p", str(port)],
            cwd=folder,
            stdout=output,
            stderr=output,
        ) as popen,
    ):
        try:
            _wait_for(port, popen, log)
            yield f"thrift://127.0.0.1:{port}"
        finally:
            popen.kill()


def _as_xml(entries: dict[str, str]) -> str:
    lines = [
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in entries.items()
    ]
    return "\n".join(["<configuration>", *lines, "</configuration>"])


def _wait_for(port: int, popen: subprocess.Popen[Any], log: Path) -> None:
    """Wait until the port is open, which is once its tables are there."""
    give_up_at = time.monotonic() + START_S
    while time.monotonic() < give_up_at and popen.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), START_S).close()
        except OSError:
            time.sleep(POLL_S)
        else:
            return
    raise AssertionError(f"the metastore does not start: {log.read_text()[-2000:]}")
