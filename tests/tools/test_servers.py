"""Tests of the private servers on which other tests stand."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
import pytest
import server_folders
import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Start = Callable[[str, Sequence[str]], servers.PrivateServer]

both = pytest.mark.parametrize("flavour", ["mysql", "mariadb"])


def test_flavour(source_server: servers.Server, database: str) -> None:
    """A server is of the flavour that it says, writes rows, and moves its binlog."""
    before = source_server.binlog_position()
    rows = source_server.execute(
        f"CREATE TABLE {database}.t (a INT PRIMARY KEY)",
        f"INSERT INTO {database}.t VALUES (1), (2)",
        f"SELECT a FROM {database}.t ORDER BY a",
    )
    assert [tuple(row) for row in rows] == [(1,), (2,)]
    assert source_server.binlog_position() > before
    version = str(source_server.execute("SELECT VERSION()")[0][0])
    assert ("mariadb" in version.lower()) == (source_server.flavour == "mariadb")


def test_canal_account(source_server: servers.Server) -> None:
    """The account under test logs in, may dump the binlog, and may not write."""
    if not isinstance(source_server, servers.PrivateServer):
        pytest.skip("a named server's account is its owner's choice")
    with source_server.connect(
        user=source_server.user, password=source_server.password
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("SHOW BINARY LOGS")
        assert cursor.fetchall()
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            cursor.execute("CREATE DATABASE forbidden")


@both
def test_kill_and_restart(own_server: Start, flavour: str) -> None:
    """What was committed survives a kill; restart keeps the port, takes options."""
    server = own_server(flavour, [])
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
    server.execute("INSERT INTO d.t VALUES (7)")
    port = server.port
    server.kill()
    with pytest.raises(pymysql.err.OperationalError):
        server.connect()
    server.restart(["--binlog-row-metadata=FULL"])
    assert server.port == port
    assert tuple(server.execute("SELECT a FROM d.t")[0]) == (7,)
    assert tuple(server.execute("SELECT @@binlog_row_metadata")[0]) == ("FULL",)


@both
def test_bad_option(own_server: Start, flavour: str) -> None:
    """A server that does not come up says so with the end of its log."""
    server = servers.PrivateServer(flavour, ["--no-such-option=1"])
    own_server(flavour, [])  # skips where the flavour cannot be had
    with pytest.raises(servers.Unavailable, match="no-such-option"):
        server.start()
    assert server.folder is None


@both
def test_a_port_that_another_took(
    own_server: Start, flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server that answers there is not mistaken for the one that is started."""
    first = own_server(flavour, [])
    ports, free_port = [first.port], servers.free_port
    monkeypatch.setattr(
        servers,
        "free_port",
        lambda expected=0: ports.pop() if ports else free_port(expected),
    )
    second = own_server(flavour, [])
    assert second.port != first.port
    first.kill()
    second.execute("SELECT 1")


def test_identities(own_server: Start) -> None:
    """Two servers from one template have different ids and uuids."""
    query = "SELECT @@server_id, @@server_uuid"
    first, second = (own_server("mysql", []).execute(query)[0] for _ in range(2))
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_death_of_the_parent(own_server: Start) -> None:
    """A server ends with the process that started it, and its folder is cleared."""
    own_server("mariadb", [])  # skips where the flavour cannot be had
    program = (
        "import servers, sys\n"
        "server = servers.MariaDB().start()\n"
        "print(server.pid, server.folder, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(servers.__file__).parent)},
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        watched = os.pidfd_open(int(pid))
        parent.kill()
    # The descriptor becomes readable when the server has ended.

    try:
        assert select.select([watched], [], [], 30)[0]
    finally:
        os.close(watched)
    # Nobody was left to remove it: the next one that starts a server does, whoever.
    _, owned = server_folders.claim_folder("mariadb")
    os.close(owned)
    assert not Path(folder).exists()


def test_malformed_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL that names no server is refused with the form it should have."""
    monkeypatch.setenv("MYSQL_URL", "localhost:3306")
    with pytest.raises(servers.Unavailable, match="mysql://user:password@host:port"):
        servers.named_or_private("mysql")


def test_named_server(own_server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server named by a URL is used as it is, and never stopped."""
    running = own_server("mariadb", [])
    url = f"mysql://admin:admin@127.0.0.1:{running.port}"
    monkeypatch.setenv("MARIADB_URL", url)
    with servers.named_or_private("mariadb") as named:
        assert named.url == url
        with pytest.raises(servers.Unavailable, match="not ours"):
            named.kill()
    assert tuple(running.execute("SELECT 1")[0]) == (1,)


def test_run_command(own_server: Start) -> None:
    """`servers.py run` prints the URL of a server and ends cleanly on SIGTERM."""
    own_server("mariadb", [])  # skips where the flavour cannot be had
    with subprocess.Popen(
        [sys.executable, servers.__file__, "run", "mariadb"],
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        url = command.stdout.readline().strip()
        named = servers.Server("mariadb", url).start()
        command.send_signal(signal.SIGTERM)
        assert command.wait(30) == 0
    with pytest.raises(servers.Unavailable, match="does not let"):
        named.start()


def test_run_command_without_its_server(own_server: Start) -> None:
    """When its server is killed, `servers.py run` ends too: with status 1, and why."""
    own_server("mariadb", [])  # skips where the flavour cannot be had
    with subprocess.Popen(
        [sys.executable, servers.__file__, "run", "mariadb"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        try:
            url = command.stdout.readline().strip()
            with servers.Server("mariadb", url).start() as named:
                ((written,),) = named.execute("SELECT @@pid_file")
            os.kill(int(Path(written).read_text()), signal.SIGKILL)
            assert command.wait(30) == 1
        finally:
            command.terminate()
        assert command.stderr.read().startswith("mariadb: the server has ended:\n")


def test_requested_port(own_server: Start) -> None:
    """A port that is named is used; one that is in use is reported, not replaced."""
    port = own_server("mariadb", []).port  # skips where the flavour cannot be had
    with pytest.raises(servers.Unavailable, match=f"port {port}: Address already"):
        servers.PrivateServer("mariadb", port=port).start()
    expected = servers.free_port()
    with servers.PrivateServer("mariadb", port=expected) as own:
        assert own.port == expected
        assert own.execute("SELECT @@port")[0][0] == expected


def test_port_among_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    """A port after the flavour would be used and not known: it is refused."""
    with pytest.raises(SystemExit):
        servers.main(["run", "mysql", "--", "--port=1"])
    assert "name the port in front of the flavour" in capsys.readouterr().err
