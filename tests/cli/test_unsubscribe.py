"""`canal-server unsubscribe` against a server."""

from __future__ import annotations

import json
import socket

import pytest
from fix_server import DESTINATION, PATIENCE_S, make_entry
from fix_store import eventually, in_thread

from canal_server.cli import main, no_answer
from canal_server.client import CanalClient
from canal_server.errors import ClientError
from canal_server.model.identity import ClientIdentity


def unsubscribe(port: int, *options: str) -> int:
    """Run the command and return its status."""
    return main(["unsubscribe", "--port", str(port), *options])


def test_the_client_holds_nothing_any_more(serve, instance, capsys):
    """Cursor and subscription of that client go, those of others stay."""
    port = serve().port
    instance.store.append(make_entry(1))
    for client_id in (7, 8):
        with CanalClient("127.0.0.1", port, DESTINATION, client_id) as client:
            client.subscribe()
    assert unsubscribe(port, "--client-id", "7") == 0
    shown = capsys.readouterr()
    assert shown.out == f"client 7 is no longer subscribed to {DESTINATION}\n"
    assert set(instance.store.cursors) == {8}
    assert not instance.meta.has_subscribed(ClientIdentity(DESTINATION, 7))
    assert instance.meta.has_subscribed(ClientIdentity(DESTINATION, 8))


def test_a_client_that_is_connected(serve, instance):
    """It gets an error at its next get, and may subscribe again."""
    port = serve().port
    instance.store.append(make_entry(1))
    with CanalClient("127.0.0.1", port, DESTINATION, 7) as client:
        client.subscribe()
        assert unsubscribe(port, "--client-id", "7") == 0
        with pytest.raises(ClientError, match="subscri"):
            client.get()
    with CanalClient("127.0.0.1", port, DESTINATION, 7) as client:
        client.subscribe()
        assert client.get().entries


def test_one_that_never_was(serve, instance, capsys):
    """A client that is not subscribed is an error, and so is a second time."""
    port = serve().port
    for _ in range(2):
        assert unsubscribe(port, "--client-id", "7") == 1
        output = capsys.readouterr()
        assert output.out == ""
        assert "client 7 is not subscribed; `canal-server status` lists" in output.err
    with CanalClient("127.0.0.1", port, DESTINATION, 7) as client:
        client.subscribe()
    assert unsubscribe(port, "--client-id", "7") == 0
    capsys.readouterr()
    assert unsubscribe(port, "--client-id", "7") == 1


def test_one_that_can_be_given_nothing(serve, instance, capsys):
    """A client whose position was purged can leave, although it may not ack."""
    port = serve().port
    with CanalClient("127.0.0.1", port, DESTINATION, 7) as client:
        client.subscribe()
    instance.lost[7] = "client 7 needs binlog.000001:4, which is purged"
    assert unsubscribe(port, "--client-id", "7", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "destination": DESTINATION,
        "unsubscribed": 7,
    }
    assert not instance.meta.has_subscribed(ClientIdentity(DESTINATION, 7))


def test_whose(serve, capsys):
    """No client is unsubscribed by a default."""
    with pytest.raises(SystemExit) as caught:
        unsubscribe(1)
    assert caught.value.code == 2
    assert "--client-id" in capsys.readouterr().err


def test_one_of_several_destinations(make_conf, capsys):
    """Where several are configured, one has to be named."""
    master = (
        "canal.instance.master.address = 127.0.0.1:1\n"
        "canal.instance.dbUsername = u\ncanal.instance.dbPassword = p\n"
    )
    conf = make_conf("canal.destinations = example,shop", example=master, shop=master)
    assert main(["unsubscribe", "--conf", str(conf), "--client-id", "7"]) == 2
    shown = capsys.readouterr().err
    assert "select a destination with --destination: example, shop" in shown


def test_a_destination_that_is_not_there(serve, capsys):
    """The server's refusal is shown, with server and destination."""
    port = serve().port
    assert unsubscribe(port, "--destination", "other", "--client-id", "7") == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"canal-server unsubscribe: other at 127.0.0.1:{port}: ")


@pytest.mark.parametrize("option", ["--client-id", "--client"])
def test_no_server(capsys, option):
    """Without a server, that is reported in one line, whatever the option is called."""
    assert unsubscribe(1, option, "7") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "connection refused; check that the server is running on this port"
    )


def test_a_server_that_does_not_answer(capsys, monkeypatch):
    """A server that accepts connections and is silent is named while waiting."""
    monkeypatch.setattr(no_answer, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = in_thread(unsubscribe, port, "--client-id", "7")
        shown: list[str] = []

        def has_printed() -> bool:
            shown.append(capsys.readouterr().err)
            return "\n" in "".join(shown)

        eventually(has_printed)
        assert not result.done()
    assert result.result(PATIENCE_S) == 1
    assert "".join(shown) == (
        f"canal-server unsubscribe: 127.0.0.1:{port} does not answer: it is stuck or"
        " paused, or its machine is very busy or unreachable\n"
    )


def test_password_file_that_is_not_there(capsys, tmp_path):
    """It is an error of usage, before any server is asked."""
    file = tmp_path / "none"
    assert unsubscribe(1, "--client-id", "7", "--password-file", str(file)) == 2
    assert str(file) in capsys.readouterr().err


def test_a_server_that_opens_no_port(capsys, tmp_path):
    """With a delivery, the error says where else a client can be unsubscribed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    (tmp_path / "canal.properties").write_text(
        f"canal.port = {port}\ncanal.destinations = example\n"
        "canal.serverMode = kafka\nkafka.bootstrap.servers = k:9092\n"
    )
    (tmp_path / "example").mkdir()
    (tmp_path / "example/instance.properties").write_text(
        "canal.instance.master.address = 127.0.0.1:3306\n"
        "canal.instance.dbUsername = canal\ncanal.instance.dbPassword = canal\n"
    )
    assert main(["unsubscribe", "--conf", str(tmp_path), "--client-id", "7"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "and restart it, or unsubscribe the client on its page or over HTTP"
        " (canal.http.port)"
    )


def test_a_client_id_that_the_server_uses(instances, serve, caplog):
    """The log calls what is refused an ack, with which the command begins."""
    assert unsubscribe(serve().port, "--client-id", "7") == 1
    caplog.set_level("INFO")
    assert unsubscribe(serve().port, "--client-id", "7") == 1
    assert "refused the ack of client 7 of example at" in caplog.text
