"""A mirror that cannot start: its message, its exit, and what it leaves."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from fix_mirror_process import NAME, MirrorProcess
from fix_mounts import mounted
from fix_pipeline import Pipeline
from fix_spark import skip_without_spark
from tcp_proxy import Proxy

from canal_server.cli import FAILED, UNUSABLE
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.state.lake_lease import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from servers import Server

SCHEMA = "mirror_failures"
PREFIX = "canal-server mirror: "
SECRET = "s3cret-word"  # of no real account


@pytest.fixture(scope="module")
def pipeline(
    mysql_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    """Give a canal-server with a schema of one table."""
    skip_without_spark()
    mysql_server.execute(
        f"DROP DATABASE IF EXISTS {SCHEMA}",
        f"CREATE DATABASE {SCHEMA}",
        f"CREATE TABLE {SCHEMA}.t (id INT PRIMARY KEY, a INT)",
        f"CREATE USER IF NOT EXISTS 'nobody'@'%' IDENTIFIED BY '{SECRET}'",
    )
    pipeline = Pipeline(mysql_server, SCHEMA, tmp_path_factory.mktemp("conf"), {}, None)
    pipeline.start()
    yield pipeline
    pipeline.close()
    mysql_server.execute(f"DROP DATABASE {SCHEMA}", "DROP USER 'nobody'@'%'")


@pytest.fixture
def failing(pipeline: Pipeline, tmp_path: Path) -> Callable[..., str]:
    """Give `failing(status, section={key: value})`: what a mirror says at its end."""

    def run(status: int, environ: dict[str, str] | None = None, **changes: Any) -> str:
        mirror = MirrorProcess(pipeline, tmp_path)
        mirror.settings["stream"]["retry_timeout"] = "100ms"
        for section, values in changes.items():
            if isinstance(values, dict):
                mirror.settings[section] |= values
            else:
                mirror.settings[section] = values
        process = mirror.failing(environ)
        found = process.wait()
        log = "".join(process.log)
        assert found == status, log
        assert "Traceback" not in log
        assert SECRET not in log
        messages = [line for line in process.log if line.startswith(PREFIX)]
        print(*messages)
        return "".join(messages).removeprefix(PREFIX).rstrip("\n")

    return run


def left(folder: Path) -> list[str]:
    """Return the files of the lake."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


LOCK = [f"_mirror/{NAME}/lock.json"]


def test_wrong_password(failing, tmp_path) -> None:
    """The account and the server are named; nothing but the lock is in the lake."""
    output = failing(FAILED, source={"user": "nobody", "password": f"not-{SECRET}"})
    assert "nobody" in output
    assert "Access denied" in output
    assert "correct the user name or the password in the settings" in output
    assert left(tmp_path / "lake") == LOCK


def test_no_rights(failing, tmp_path) -> None:
    """The error for an account that sees no table names the rule."""
    output = failing(UNUSABLE, source={"user": "nobody", "password": SECRET})
    assert output.startswith(f"{tmp_path}/mirror.yml:")
    assert (
        "no table matches, or the account may not see it; a pattern must match"
        in output
    )
    assert left(tmp_path / "lake") == LOCK


def test_no_database(failing, tmp_path) -> None:
    """The error for a database that does not answer has its address."""
    output = failing(FAILED, source={"port": 1})
    assert "127.0.0.1:1" in output
    assert left(tmp_path / "lake") == LOCK


def test_no_server(failing, tmp_path) -> None:
    """Servers are asked for as long as the settings say; the key is named."""
    output = failing(FAILED, canal={"servers": "127.0.0.1:1"})
    assert output == (
        "no server runs destination example: tried 127.0.0.1:1 for 0.1 s "
        "(stream.retry_timeout), the last answer was: [Errno 111] Connection refused"
    )
    assert left(tmp_path / "lake") == LOCK


def test_no_server_but_another(failing, pipeline) -> None:
    """An address where something else listens is reported as such."""
    output = failing(FAILED, canal={"servers": f"127.0.0.1:{pipeline.source.port}"})
    assert f"destination example at 127.0.0.1:{pipeline.source.port}: " in output
    assert "canal.servers" in output


def test_unknown_destination(failing, tmp_path) -> None:
    """The server says which destination it does not know."""
    output = failing(FAILED, canal={"destination": "nowhere"})
    assert output.startswith("destination nowhere at 127.0.0.1:")
    assert output.endswith(
        "; see canal.destination, and canal.destinations of the server"
    )
    assert left(tmp_path / "lake") == LOCK


def test_settings_that_no_table_has(failing, tmp_path) -> None:
    """Hidden columns that no table has are reported with their lines."""
    rules = [{"match": rf"{SCHEMA}\..*", "masks": {"mial": "drop"}}]
    output = failing(UNUSABLE, tables=rules)
    assert output.startswith(f"{tmp_path}/mirror.yml:")
    assert "masks: no table has a column mial: remove it, or" in output
    assert left(tmp_path / "lake") == LOCK


def test_lake_that_cannot_be(failing, tmp_path) -> None:
    """A path through a file, by its name."""
    (tmp_path / "file").write_text("")
    output = failing(FAILED, lake={"path": str(tmp_path / "file" / "lake")})
    assert output.startswith(f"cannot write {tmp_path}/file/lake/_mirror/{NAME}/lock")
    assert "Not a directory" in output


def test_lake_that_cannot_be_written(failing, tmp_path) -> None:
    """A file system that is mounted for readers only."""
    with mounted(tmp_path / "lake", "ro"):
        output = failing(FAILED)
    assert output.startswith(f"cannot write {tmp_path}/lake/_mirror/{NAME}/lock.json: ")
    assert "Read-only file system" in output


def test_two_at_once(failing, tmp_path) -> None:
    """The second one learns who holds the lock, which the first one keeps."""
    folder = open_folder(LakeSettings(path=str(tmp_path / "lake")), f"_mirror/{NAME}")
    with Lease(folder):
        output = failing(FAILED)
        assert output.startswith("this mirror is already running: process ")
        assert "give this mirror another name" in output
        assert left(tmp_path / "lake") == LOCK
    assert "another process" not in failing(FAILED, canal={"destination": "nowhere"})


def test_no_java(failing, tmp_path) -> None:
    """Spark that cannot start says what it needs."""
    output = failing(FAILED, {"JAVA_HOME": str(tmp_path)})
    assert output.startswith("Spark failed: ")
    assert "Java 17 or later, in PATH or in JAVA_HOME" in output


def test_spark_connect(failing) -> None:
    """A session whose driver is elsewhere is refused, with what to use instead."""
    output = failing(UNUSABLE, spark={"spark.remote": "sc://localhost"})
    assert output.startswith("spark.remote: ")


def test_signal_while_no_server_answers(pipeline, tmp_path) -> None:
    """The first SIGTERM ends a mirror that waits for a server, as one that runs."""
    mirror = MirrorProcess(pipeline, tmp_path)
    mirror.settings["canal"]["servers"] = "127.0.0.1:1"
    mirror.settings["stream"]["retry_timeout"] = "10m"
    process = mirror.failing()
    process.wait_for_log("Connection refused")
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    assert "stopped" in process.log[-2]
    assert left(tmp_path / "lake") == LOCK


@pytest.mark.slow
def test_source_unavailable_at_a_restart(pipeline, tmp_path) -> None:
    """A mirror that has copied tables waits for its source when it starts again."""
    proxy = Proxy(pipeline.source.host, pipeline.source.port)
    mirror = MirrorProcess(pipeline, tmp_path, port=proxy.port)
    with contextlib.ExitStack() as ending:
        ending.callback(proxy.close)
        ending.callback(mirror.close)
        mirror.start()
        mirror.stop()
        pipeline.source.execute(f"INSERT INTO {SCHEMA}.t VALUES (1, 1)")
        with proxy.refuse():
            mirror.start(wait=False)
            assert mirror.process is not None
            mirror.process.wait_for_log("cannot start yet: .*; retrying in 1 s")
        mirror.agree(t=("id",))
        mirror.stop()
