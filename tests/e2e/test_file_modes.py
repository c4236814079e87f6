"""Owner and mode of all that a server and the commands write, over a whole run."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fix_pipeline import DESTINATION, Process
from fix_store import eventually

from canal_server.client import CanalClient
from canal_server.client.range_client import RangedClient
from canal_server.daemon.control import ask
from canal_server.protocol.range_messages import RangePosition

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_pipeline import Pipeline


@pytest.fixture
def pipeline(make_pipeline, source_server, database):
    """Give a pipeline that was not started, with a table."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    pipeline = make_pipeline(source_server, database, {})
    with (pipeline.conf / "canal.properties").open("a") as main:
        main.write("canal.users.file = users.yml\ncanal.audit.file = audit/a.jsonl\n")
    return pipeline


def canal_server(*arguments: object, **options: object) -> subprocess.Popen[str]:
    """Start a command with the most open umask there is."""
    program = Path(sys.executable).with_name("canal-server")
    command = [program, *map(str, arguments)]
    return subprocess.Popen(command, text=True, umask=0, **options)  # type: ignore[call-overload,no-any-return]


def written(folder: Path) -> set[Path]:
    """Return what is in a folder, at any depth."""
    return set(folder.rglob("*"))


def consume(
    pipeline: Pipeline,
    port: int,
    folder: Path,
    client_id: int,
    handler: str,
    *settings: str,
    until: Callable[[], bool],
) -> None:
    """Consume changes with a handler, while there are new ones, until something is."""
    process = Process(
        canal_server(
            "consume", "--port", port, "--destination", DESTINATION, "--client-id",
            client_id, "--user", "all", "--handler", handler,
            *itertools.chain.from_iterable(("--set", each) for each in settings),
            "--dead-letter", folder / f"dead-{client_id}",
            stderr=subprocess.PIPE, env={**os.environ, "CANAL_PASSWORD": "secret"},
        )
    )  # fmt: skip
    numbers = itertools.count(client_id * 1_000_000)

    def is_done() -> bool:
        row = f"INSERT INTO {pipeline.schema}.t VALUES ({next(numbers)}, 1)"
        pipeline.source.execute(row)
        return until()

    eventually(is_done)
    process.send(signal.SIGTERM)
    assert process.wait() == 0


def test_a_whole_run(pipeline, tmp_path):
    """With umask 000, nothing is for others: files, folders and sockets."""
    before = written(tmp_path)
    for name in ("all", "other"):
        adding = canal_server(
            "user", "add", name, "--conf", pipeline.conf, "--read", "*", "--ranges",
            "*", "--password-stdin", stdin=subprocess.PIPE,
        )  # fmt: skip
        adding.communicate("secret\n")
        assert adding.returncode == 0
    logs, pid_file = tmp_path / "logs", tmp_path / "canal.pid"
    popen = canal_server(
        "start", "--conf", pipeline.conf, "--log-dir", logs, "--pid-file", pid_file,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    pipeline._running = Process(popen)
    eventually(pid_file.exists)
    pipeline.wait_for_status(lambda status: status.get("state") == "running")
    where = ("127.0.0.1", int(ask(pipeline.conf, "status")["port"]))
    with CanalClient(*where, DESTINATION, 1, "all", "secret") as client:
        client.subscribe()
        pipeline.source.execute(
            f"INSERT INTO {pipeline.schema}.t VALUES (1)",
            f"ALTER TABLE {pipeline.schema}.t ADD COLUMN b INT",
            f"INSERT INTO {pipeline.schema}.t VALUES (2, 3)",
        )
        found = [change.kind for change in itertools.islice(client, 3)]
        assert found == ["insert", "ddl", "insert"]
    with RangedClient(*where, "all", "secret") as ranged:
        start = ranged.subscribe(DESTINATION, "lake", start="earliest").cursor
        assert isinstance(start, RangePosition)
        ranged.head(DESTINATION, "lake", start, wait_ms=1000)
    out = tmp_path / "out"
    consume(pipeline, where[1], tmp_path, 2, "json-lines",
            f"path={tmp_path / 'out.jsonl'}", "rotate_bytes=1",
            until=lambda: len(list(tmp_path.glob("out.*.jsonl"))) > 1)  # fmt: skip
    consume(pipeline, where[1], tmp_path, 3, "parquet", f"folder={out}", "flush_s=0.1",
            until=lambda: any(out.glob("*/*.parquet")))  # fmt: skip
    while_running = {each: each.lstat() for each in written(tmp_path) - before}
    pipeline.process.send(signal.SIGTERM)
    assert pipeline.process.wait() == 0
    at_end = {each: each.lstat() for each in written(tmp_path) - before}
    names = {each.name for each in (*while_running, *at_end)}
    assert {
        "meta.dat", "tablemeta.sqlite", "subscriptions.sqlite", "a.jsonl", "users.yml",
        "canal-server.lock", "canal-server.sock", "canal.log", "canal.pid",
        "out.jsonl", "dead-2", "dead-3",
    } <= names  # fmt: skip
    for each, status in (*while_running.items(), *at_end.items()):
        mode = stat.S_IMODE(status.st_mode)
        # A pid file is for all who look for the process; it has nothing else.
        hidden = 0o022 if each == pid_file else 0o077
        assert not mode & hidden, f"{each}: {mode:04o}"
        assert status.st_uid == os.geteuid()
