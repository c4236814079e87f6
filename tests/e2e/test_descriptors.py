"""A server that runs out of file descriptors says so once, and is well again after."""

from __future__ import annotations

import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from purge import kill_dumps

from canal_server.daemon.control import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

# Below the numbers of those that are in use: no other one can be had.
LIMIT = 3


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """Let a process open nothing more; what is open stays."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (LIMIT, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.mysql
def test_running_out_of_descriptors(make_pipeline, mysql_server, database, rng) -> None:
    """Clients, commands and the source wait; each is logged once; nothing is lost."""
    pipeline = make_pipeline(mysql_server, database)
    pipeline.start()
    process = pipeline.process
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client, ExitStack() as waiting:
        writer.write(5)
        pipeline.receive(client, checker)
        pool = waiting.enter_context(ThreadPoolExecutor(1))
        with starved(process.pid):
            for _ in range(3):
                address = ("127.0.0.1", pipeline.server_port)
                waiting.enter_context(socket.create_connection(address))
            command = pool.submit(ask, pipeline.conf, "status")
            kill_dumps(mysql_server)
            writer.write(5)
            why = rf"too many open files, the limit of this process is {LIMIT}: raise"
            for what in (
                "cannot accept client connections, retrying",
                "cannot accept commands on the control socket, retrying",
                f"cannot connect to 127.0.0.1:{mysql_server.port}",
            ):
                process.wait_for_log(f"{what}: {why}")
        process.wait_for_log("accepting clients again")
        assert command.result()["ok"]
        pipeline.receive(client, checker)
    messages = [line for line in process.log if "too many open files" in line]
    assert len(messages) <= 4, "".join(process.log)
    assert "Traceback" not in "".join(process.log)
    pipeline.stop()
