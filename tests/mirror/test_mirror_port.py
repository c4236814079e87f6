"""The metrics of a mirror end to end: a source, Spark, a lake, a real Prometheus."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest
from dashboards import FOLDER, check_dashboard
from prometheus_client.parser import text_string_to_metric_families
from prometheus_server import prometheus, promtool
from server_folders import Unavailable
from server_packages import package_tree

if TYPE_CHECKING:
    import ssl

    from fix_mirror_process import MirrorProcess
    from fix_tls import Authority
    from prometheus_server import Prometheus

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def port_of(mirror: MirrorProcess) -> int:
    """Return the port, which the mirror has stored in its status."""
    status = mirror.path / "_mirror" / "copy" / "status.json"

    def port() -> int:
        if not status.exists():
            return 0
        found = json.loads(status.read_text())
        assert mirror.process is not None
        if found["pid"] != mirror.process.pid:
            return 0  # an earlier one's
        return int(found["metrics_port"])

    mirror.wait_for(lambda: bool(port()), "a port in the status")
    return port()


def scrape(port: int, context: ssl.SSLContext | None = None) -> str:
    """Return the text of the metrics."""
    scheme = "http" if context is None else "https"
    url = f"{scheme}://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=60, context=context) as answer:
        return str(answer.read().decode())


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the values by name and labels, without the mirror's name."""
    return {
        (each.name, frozenset(each.labels.items() - {("mirror", "copy")})): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


class Scrapes:
    """What a mirror shows, again and again."""

    def __init__(self, mirror: MirrorProcess, port: int) -> None:
        self.mirror = mirror
        self.port = port

    def value(self, name: str, **labels: str) -> float | None:
        """Return a value as it is now; None if there is none."""
        found = samples(scrape(self.port))
        return found.get((f"canal_mirror_{name}", frozenset(labels.items())))

    def wait(self, expected: float, name: str, **labels: str) -> None:
        """Wait until a metric has a value."""
        self.mirror.wait_for(
            lambda: self.value(name, **labels) == expected,
            f"{name} {labels} == {expected}",
        )


@pytest.fixture
def mirror(make_mirror, mysql_server, database) -> MirrorProcess:
    """Give a mirror of a MySQL, with a port for metrics, that was not started."""
    found: MirrorProcess = make_mirror(mysql_server, database)
    found.settings["metrics"] = {"port": 0}
    return found


def test_a_mirror_and_prometheus(mirror, tmp_path) -> None:
    """A real Prometheus reads states, rows, lags, sizes, errors and verify results."""
    try:
        package_tree("prometheus", "prometheus")
    except Unavailable as error:
        pytest.skip(str(error))
    schema = mirror.pipeline.schema
    t = f"{schema}.t"
    mirror.source.execute(
        f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {t} VALUES (1, 1), (2, 2), (3, 3)",
        f"CREATE TABLE {schema}.bad (id INT PRIMARY KEY)",
    )
    mirror.start()
    port = port_of(mirror)
    shown = Scrapes(mirror, port)
    shown.wait(1, "table_state", table=t, state="following")
    before_s = time.time()
    mirror.source.execute(
        f"INSERT INTO {t} VALUES (4, 4), (5, 5)", f"DELETE FROM {t} WHERE id = 1"
    )
    mirror.agree(t=("id",))
    shown.wait(3, "table_stream_rows_total", table=t)
    assert shown.value("table_copies_total", table=t) == 1
    newest_s = shown.value("table_newest_change_timestamp_seconds", table=t)
    # The times of the binlog are whole seconds.
    assert newest_s is not None
    assert before_s - 1 <= newest_s <= time.time()
    shown.wait(0, "lag_seconds")
    shown.wait(0, "lag_transactions")
    # Opened again after a while: the sizes are those of the lake.
    mirror.wait_for(
        lambda: (shown.value("table_version", table=t) or 0) >= 1, "a version"
    )
    assert (shown.value("table_files", table=t) or 0) >= 1
    assert (shown.value("table_bytes", table=t) or 0) > 100
    for process in ("driver", "jvm", "tasks"):
        assert (shown.value("memory_bytes", process=process) or 0) > 1 << 20

    assert mirror.command("verify", t).returncode == 0
    with prometheus(tmp_path / "prometheus", port) as server:
        check_with(server, mirror, t)
        assert "error" not in promtool("check", "metrics", text=scrape(port).encode())
    text = mirror.command("status", "--json").stdout
    assert json.loads(text)["status"]["metrics_port"] == port
    mirror.stop()


def check_with(server: Prometheus, mirror: MirrorProcess, t: str) -> None:
    """Check what needs several scrapes, and that types and names are usual ones."""
    assert server.wait_for('up{job="canal"} == 1')
    assert server.wait_for("canal_mirror_batch_seconds_count > 0")
    assert server.wait_for(
        "histogram_quantile(0.5, rate(canal_mirror_batch_seconds_bucket[1m])) or"
        " vector(0)"
    )
    assert server.metadata()["canal_mirror_table_stream_rows_total"] == "counter"
    (found,) = server.wait_for('canal_mirror_table_verified{outcome="equal"} == 1')
    assert found["metric"]["table"] == t
    # A table that needs a person, with the message of the log.
    mirror.source.execute(
        f"ALTER TABLE {mirror.pipeline.schema}.bad DROP PRIMARY KEY, ADD x INT",
        f"INSERT INTO {mirror.pipeline.schema}.bad VALUES (1, 1)",
    )
    (found,) = server.wait_for(
        "canal_mirror_messages_total{"
        f'message="mirror-table-copied-again",table="{mirror.pipeline.schema}.bad"'
        "}"
    )
    assert found["metric"]["level"] == "warning"
    check_dashboard(
        server,
        FOLDER / "canal-mirror.json",
        chosen={"table": t},
        optional={"Progress of copies"},  # while one runs
    )


def test_a_stream_that_fails(mirror) -> None:
    """While the server is away, lag and failures grow; then the stream restarts."""
    t = f"{mirror.pipeline.schema}.t"
    mirror.source.execute(
        f"CREATE TABLE {t} (id INT PRIMARY KEY)", f"INSERT INTO {t} VALUES (1)"
    )
    mirror.settings["stream"] = {"retry_timeout": "2s"}
    mirror.start()
    shown = Scrapes(mirror, port_of(mirror))
    shown.wait(0, "lag_seconds")
    mirror.pipeline.kill()
    mirror.source.execute(f"INSERT INTO {t} VALUES (2)")
    mirror.wait_for(lambda: (shown.value("failing_seconds") or 0) > 0, "a failure")
    mirror.wait_for(lambda: (shown.value("lag_seconds") or 0) > 0, "a lag")
    assert (shown.value("stream_failures_total") or 0) >= 1
    assert (
        shown.value(
            "messages_total", level="warning", message="mirror-stream-failed", table=""
        )
        or 0
    ) >= 1
    mirror.pipeline.start()
    mirror.agree(t=("id",))
    shown.wait(0, "failing_seconds")
    shown.wait(0, "lag_seconds")
    assert (shown.value("stream_restarts_total") or 0) >= 1
    mirror.stop()


def test_tls(mirror, tmp_path, authority: Authority) -> None:
    """With a certificate the port has TLS."""
    cert, key = authority.issue("metrics")
    mirror.settings["metrics"] |= {"tls_cert_file": str(cert), "tls_key_file": str(key)}
    mirror.source.execute(
        f"CREATE TABLE {mirror.pipeline.schema}.t (id INT PRIMARY KEY)"
    )
    mirror.start()
    text = scrape(port_of(mirror), authority.client_context())
    assert "canal_mirror_info" in text
    mirror.stop()


def test_files_that_are_no_certificates(mirror, tmp_path) -> None:
    """A file that cannot be used ends the mirror, with the names of its settings."""
    file = tmp_path / "cert.pem"
    file.write_text("nothing")
    mirror.settings["metrics"]["tls_cert_file"] = str(file)
    process = mirror.failing()
    line = process.wait_for_log("metrics.tls_cert_file")
    assert f"metrics.tls_cert_file = {file}: no certificate in PEM form" in line
    assert process.wait() == 2
