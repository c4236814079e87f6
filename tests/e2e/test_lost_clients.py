"""A client whose position was purged costs the others nothing, even at a restart."""

from __future__ import annotations

import shlex
import socket
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from chromium import open_page, running_browser
from purge import purge

from canal_server import cli
from canal_server.client import ClientError
from canal_server.daemon.control import ask

if TYPE_CHECKING:
    from fix_pipeline import Pipeline
    from ledger import Checker, Writer

DEAD, LIVE = 1001, 1002
KINDS = [
    pytest.param("mysql", "false", id="mysql"),
    pytest.param("mysql", "true", id="mysql-gtid"),
    pytest.param("mariadb", "true", id="mariadb-gtid"),
]


@dataclass
class Left:
    """A stopped pipeline whose one client needs what was purged, the other does not."""

    pipeline: Pipeline
    writer: Writer
    live: Checker
    dead: Checker

    def receive(self, client_id: int) -> None:
        """Receive all that a client lacks."""
        checker = self.live if client_id == LIVE else self.dead
        with self.pipeline.client(client_id) as client:
            self.pipeline.receive(client, checker)


@pytest.fixture
def leave(own_server, make_pipeline, rng):
    """Give `leave(flavour, gtid, auto_reset)`.

    Both clients had 5 transactions, the live one 5 more, and 5 wait for both. What was
    purged are the second 5, of which the dead one lacks all.
    """

    def leave(flavour: str, gtid: str, auto_reset: str) -> Left:
        source = own_server(flavour)
        source.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        settings = {
            "canal.instance.gtidon": gtid,
            "canal.auto.reset.latest.pos.mode": auto_reset,
        }
        pipeline = make_pipeline(source, "shop", settings)
        pipeline.start()
        writer = pipeline.writer(rng)
        found = Left(
            pipeline, writer, pipeline.checker(writer), pipeline.checker(writer)
        )
        with pipeline.client(DEAD), pipeline.client(LIVE):
            writer.write(5)
        found.receive(DEAD)
        found.receive(LIVE)
        writer.write(4)
        source.execute("FLUSH BINARY LOGS")
        file, _ = source.binlog_position()
        writer.write(1)
        found.receive(LIVE)
        pipeline.stop()
        writer.write(5)
        purge(source, file)
        return found

    return leave


@pytest.mark.parametrize(("flavour", "gtid"), KINDS[1:])
def test_refused(leave, flavour, gtid):
    """The dead one is refused with the reason until it leaves; the live one goes on."""
    left = leave(flavour, gtid, "false")
    pipeline = left.pipeline
    pipeline.start()
    pipeline.process.wait_for_log(
        f"ERROR .*client {DEAD} of example needs .* no longer has: .* purged"
    )
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    assert list(pipeline.status()["lost_clients"]) == [str(DEAD)]
    left.live.resume(10, 10)
    left.receive(LIVE)
    with pipeline.unsubscribed_client(DEAD) as client:
        with pytest.raises(
            ClientError, match=f"client {DEAD} .* no longer has: .*seek"
        ):
            client.subscribe()
        client.connect()
        with pytest.raises(ClientError, match="no longer has"):
            client.get()
        client.connect()
        client.unsubscribe()
        client.subscribe()
        client.get()
    assert not pipeline.status()["lost_clients"]
    pipeline.stop()


def test_what_an_operator_sees(leave, monkeypatch, capsys):
    """The page, the probe and the status name it once, with a command that moves it."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    pipeline = leave("mysql", "false", "false").pipeline
    pipeline.start()
    pipeline.wait_for_status(lambda status: status.get("lost_clients"))
    (why,) = pipeline.status()["lost_clients"].values()
    command = f"`canal-server position seek --conf {pipeline.conf} --destination"
    assert f"{command} example --client-id {DEAD} --to oldest`" in why
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    assert cli.main(["status", "--check", "--conf", str(pipeline.conf)]) == 7
    assert capsys.readouterr().out == f"example: {why}\n"
    port = ask(pipeline.conf, "status")["http_port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
        assert answer.status == 200  # the others are served
    with running_browser() as browser, open_page(browser) as page:
        page.goto(f"http://127.0.0.1:{port}/")
        note = page.get_by_text(why)
        note.wait_for()
        assert note.inner_text().startswith(f"client {DEAD} of example needs")
        summary = page.locator("#summary").inner_text()
        assert summary.startswith(f"{socket.gethostname()} · ")
        assert page.title() == f"canal-server on {socket.gethostname()}"
    arguments = shlex.split(command.strip("`"))[1:]
    options = ["example", "--client", str(DEAD), "--to", "oldest", "--yes"]
    assert cli.main([*arguments, *options]) == 0
    pipeline.wait_for_status(lambda status: not status["lost_clients"])


@pytest.mark.parametrize(("flavour", "gtid"), KINDS[::2])
def test_moved(leave, flavour, gtid):
    """If requested the dead one continues with the live one, which loses nothing."""
    left = leave(flavour, gtid, "true")
    pipeline = left.pipeline
    pipeline.start()
    pipeline.process.wait_for_log(
        f"ERROR .*client {DEAD} of example needs .* no longer has: .* resumes at "
    )
    left.live.resume(10, 10)
    left.receive(LIVE)
    # A restart before the dead one comes: it was moved, so this is no second loss.
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    pipeline.stop()
    left.writer.write(2)
    pipeline.start()
    left.dead.resume(10, 10)
    left.receive(DEAD)
    left.live.resume(15, 15)
    left.receive(LIVE)
    assert not any("no longer has" in line for line in pipeline.process.log)
    pipeline.stop()


def test_all_of_them(leave):
    """When all lost their position they go on at the end, as of the first time only."""
    left = leave("mysql", "true", "true")
    pipeline = left.pipeline
    purge(pipeline.source)
    pipeline.start()
    pipeline.process.wait_for_log("the current end; changes in between are lost")
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    pipeline.stop()
    left.writer.write(3)
    pipeline.start()
    for client, checker in ((LIVE, left.live), (DEAD, left.dead)):
        checker.resume(15, 15)
        left.receive(client)
    assert not any("BinlogPurged" in line for line in pipeline.process.log)
    pipeline.stop()
