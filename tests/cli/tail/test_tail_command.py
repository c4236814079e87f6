"""`canal-server tail` against a server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from functools import partial

import pytest
from fix_server import DESTINATION, PATIENCE_S, make_entry
from fix_store import eventually, in_thread

from canal_server.cli import main
from canal_server.cli.tail.tail_ids import IDS, Clients, free_id
from canal_server.client import CanalClient
from canal_server.errors import CanalError
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import (
    EntryPosition,
    LogIdentity,
    LogPosition,
    PositionRange,
)
from canal_server.protocol.auth import stored_form
from canal_server.protocol.entry_messages import (
    Entry,
    EntryType,
    EventType,
    Header,
    RowChange,
    encode,
)

POSITION = LogPosition(LogIdentity("db", 3306), EntryPosition("binlog.000001", 4))
EARLY_S = 0.5  # for what must not come so early
BATCH = PositionRange(POSITION, POSITION, None, 0)


def statement(number: int) -> bytes:
    """Return an entry that tail prints."""
    change = RowChange(event_type=EventType.QUERY, sql=f"statement {number}")
    header = Header(logfile_name="binlog.000001", logfile_offset=number)
    return encode(Entry(header, EntryType.ROWDATA, encode(change)))


def printed(text: str) -> list[int]:
    """Return the numbers of `statement` in lines of JSON."""
    return [json.loads(line)["position"] for line in text.splitlines()]


def tail(port: int, *options: str) -> int:
    """Run the command and return its status."""
    return main(["tail", "--port", str(port), *options])


def test_count(serve, instance, capsys):
    """So many changes are printed as JSON lines; marks do not count."""
    instance.store.append(
        make_entry(1, EntryType.TRANSACTIONEND), *map(statement, (2, 3, 4))
    )
    assert tail(serve().port, "--count", "2") == 0
    assert printed(capsys.readouterr().out) == [2, 3]


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_a_count_of_nothing(number, capsys):
    """A number of changes that can never come is an error of usage."""
    with pytest.raises(SystemExit) as caught:
        main(["tail", f"--count={number}"])
    assert caught.value.code == 2
    assert "--count: expected a positive number" in capsys.readouterr().err


def test_nothing_stays(serve, instance):
    """By default the subscription ends with the command."""
    instance.store.append(statement(1))
    assert tail(serve().port, "--count", "1", "--filter", "a.b") == 0
    assert instance.meta.subscriptions(DESTINATION) == []
    assert instance.store.cursors == {}


def test_client_of_its_own(serve, instance, capsys):
    """With a client id the subscription is kept, and the next run resumes."""
    port = serve().port
    instance.store.append(statement(1))
    assert tail(port, "--client-id", "7", "--count", "1", "--filter", "a.b") == 0
    assert instance.meta.subscriptions(DESTINATION) == [ClientIdentity(DESTINATION, 7)]
    instance.store.append(statement(2))
    assert tail(port, "--client-id", "7", "--count", "1") == 0
    assert printed(capsys.readouterr().out) == [1, 2]


@pytest.mark.parametrize("options", [["--no-ack", "--count", "2"], ["--count", "1"]])
def test_what_is_not_acked_comes_again(serve, instance, capsys, options):
    """With --no-ack, or when a message was printed in part, nothing is acked."""
    port = serve().port
    instance.store.append(statement(1), statement(2))
    assert tail(port, "--client-id", "7", *options) == 0
    capsys.readouterr()
    assert tail(port, "--client-id", "7", "--count", "2") == 0
    assert printed(capsys.readouterr().out) == [1, 2]


def test_transactions(serve, instance, capsys):
    """Marks of transactions are printed when asked for."""
    end = Entry(Header(logfile_offset=1), EntryType.TRANSACTIONEND)
    instance.store.append(encode(end), statement(2))
    assert tail(serve().port, "--count", "1", "--transactions") == 0
    assert printed(capsys.readouterr().out) == [1, 2]


def test_flat_messages(serve, instance, capsys):
    """With --canal-json each line is a flat message; the count is of these."""
    port = serve().port
    instance.store.append(statement(1), statement(2))
    assert tail(port, "--count", "1", "--canal-json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["sql"], found["type"], found["data"]) == (
        "statement 1", "QUERY", None,
    )  # fmt: skip
    assert list(found) == sorted(found)
    assert tail(port, "--canal-json", "--transactions") == 2
    assert "--transactions has no effect with --canal-json" in capsys.readouterr().err


def test_terminal(serve, instance, capsys, monkeypatch):
    """On a terminal lines are for the eye, with colours unless they are unwanted."""
    port = serve().port
    instance.store.append(statement(1))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for options, expected in (
        ([], "\x1b[36mQUERY \x1b[0m"),
        (["--json"], '"sql":"statement 1"'),
    ):
        assert tail(port, "--count", "1", *options) == 0
        assert expected in capsys.readouterr().out
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            assert tail(port, "--count", "1") == 0
        assert "QUERY   statement 1" not in (out := capsys.readouterr().out)
        assert "\x1b" not in out


def test_password(serve, instance, capsys, monkeypatch, tmp_path):
    """The password comes from a file or the environment, and is never shown."""
    port = serve(user="canal", passwd=stored_form("geheim")).port
    instance.store.append(statement(1))
    common = ("--user", "canal", "--count", "1")
    file = tmp_path / "password"
    file.write_text("geheim\n")
    assert tail(port, *common, "--password-file", str(file)) == 0
    monkeypatch.setenv("CANAL_PASSWORD", "geheim")
    assert tail(port, *common) == 0
    monkeypatch.setenv("CANAL_PASSWORD", "geheim2")
    assert tail(port, *common) == 1
    streams = capsys.readouterr()
    assert "auth failed for user 'canal'\n" in streams.err
    assert "geheim" not in streams.err
    assert tail(port, "--count", "1") == 1
    assert "names no user; log in with --user and" in capsys.readouterr().err


def test_password_file_that_is_not_there(capsys, tmp_path):
    """A file that cannot be read is named, status 2."""
    assert tail(1, "--password-file", str(tmp_path / "none")) == 2
    assert "none: No such file" in capsys.readouterr().err


def test_no_server(capsys):
    """Without a server there is one clear line, status 1."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert tail(port) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"canal-server tail: example at 127.0.0.1:{port}: ")
    assert line.endswith(
        "connection refused; check that the server is running on this port"
    )


def test_a_server_that_delivers_to_a_queue(capsys, tmp_path):
    """Its port is closed: which key opens it is said, of its own server only."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    main_file = tmp_path / "canal.properties"
    lines = [
        f"canal.port = {port}",
        "canal.destinations = example",
        "canal.serverMode = kafka",
        "kafka.bootstrap.servers = k:9092",
    ]
    (tmp_path / "example").mkdir()
    (tmp_path / "example/instance.properties").write_text(
        "canal.instance.master.address = 127.0.0.1:3306\n"
        "canal.instance.dbUsername = canal\n"
        "canal.instance.dbPassword = canal\n"
    )
    closed = (
        "connection refused; this server delivers to kafka, and opens no port for"
        " clients: set canal.mq.serveClients = true in canal.properties and restart"
        " it, or read its topics"
    )
    for more, expected in (
        ("", closed),
        (
            "canal.mq.serveClients = true",
            "connection refused; check that the server is running on this port",
        ),
    ):
        main_file.write_text("\n".join([*lines, more]))
        assert main(["tail", "--conf", str(tmp_path)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(expected)
    main_file.write_text("\n".join(lines))
    assert main(["tail", "--conf", str(tmp_path), "--port", str(port)]) == 1
    assert closed not in capsys.readouterr().err


def test_no_server_of_ours(capsys):
    """Another kind of server, such as MySQL, is recognized; status 1."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with listener.accept()[0] as connection:
                connection.sendall(b"J\0\0\0\n9.7.4\0")

        thread = threading.Thread(target=greet)
        thread.start()
        assert tail(listener.getsockname()[1]) == 1
        thread.join()
    (line,) = capsys.readouterr().err.splitlines()
    assert "not a canal server: a frame of" in line


def test_another_reader_is_noticed(serve, instance, capsys):
    """If batches went to another program with the same id, it is reported once."""
    port = serve().port
    who = ClientIdentity(DESTINATION, 7)
    instance.store.append(statement(1))

    def take_batches_away() -> None:
        for count in (1, 2):
            # It has acked so many, and waits for the next.
            eventually(partial(has_acked, count))
            instance.store.wait_for_getters(1)
            instance.meta.remove_batch(who, instance.meta.add_batch(who, BATCH))
            instance.store.append(statement(count + 1))

    def has_acked(count: int) -> bool:
        cursor = instance.store.cursors.get(7)
        return cursor is not None and cursor.acked == count

    taking = in_thread(take_batches_away)
    assert tail(port, "--count", "3", "--client-id", "7") == 0
    taking.result(PATIENCE_S)
    streams = capsys.readouterr()
    assert printed(streams.out) == [1, 2, 3]
    assert streams.err.count("another program also reads as client 7") == 1


def test_unknown_destination(serve, capsys):
    """An unknown destination is reported in one line, status 1."""
    assert tail(serve().port, "--destination", "nowhere") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("can't find destination:nowhere")


def test_server_that_stops(serve, instance, capsys):
    """When the server goes, the command ends with one line, status 1."""
    server = serve()

    def stop() -> None:
        instance.store.wait_for_getters(1)
        server.request_stop()

    thread = threading.Thread(target=stop)
    thread.start()
    assert tail(server.port) == 1
    thread.join()
    output = capsys.readouterr().err.splitlines()
    assert len([line for line in output if "no change" not in line]) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals(serve, instance, number):
    """Ctrl-C, SIGTERM, a closed terminal end it at once, quietly; nothing stays."""
    program = "import sys; from canal_server.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program, "tail", "--port", str(serve().port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        instance.store.wait_for_getters(1)
        instance.store.append(statement(1))
        assert process.stdout is not None
        assert printed(process.stdout.readline().decode()) == [1]
        instance.store.wait_for_getters(1)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    # On a slow machine it may have said meanwhile why nothing comes.
    shown = [line for line in err.splitlines() if b"no change" not in line]
    assert (process.returncode, out, shown) == (0, b"", [])
    assert instance.meta.subscriptions(DESTINATION) == []


def test_a_signal_amid_the_subscription(serve, instance, monkeypatch):
    """It waits for the answer, so that it can unsubscribe."""
    unsubscribed = threading.Event()
    check, end = instance.check_filter, instance.unsubscribed

    def interrupt(expression):
        os.kill(os.getpid(), signal.SIGTERM)
        # Without waiting, it would unsubscribe before it is subscribed.
        unsubscribed.wait(EARLY_S)
        check(expression)

    def note(identity):
        unsubscribed.set()
        end(identity)

    monkeypatch.setattr(instance, "check_filter", interrupt)
    monkeypatch.setattr(instance, "unsubscribed", note)
    assert tail(serve().port) == 0
    # The thread of a connection may still be at it.
    eventually(lambda: not serving_threads())
    assert instance.meta.subscriptions(DESTINATION) == []


def serving_threads() -> list[threading.Thread]:
    """Return the threads of this process that serve a client."""
    return [each for each in threading.enumerate() if each.name.startswith("client-")]


# --- the id that it picks -------------------------------------------------------------


def test_free_id():
    """A free id of its own range; if there is none, it is an error."""
    assert free_id(Clients()) in IDS
    received = frozenset(IDS) - {IDS[5]}
    assert free_id(Clients(received | {1001})) == IDS[5]
    with pytest.raises(CanalError, match="all client ids from 32000 to 32767"):
        free_id(Clients(frozenset(IDS)))


def test_two_at_once(serve, instance, capsys):
    """Each gets all changes, and neither disturbs an existing client."""
    port = serve().port
    with CanalClient("127.0.0.1", port, DESTINATION, 1001) as client:
        client.subscribe()
        instance.store.append(statement(1), statement(2))
        first = in_thread(lambda: tail(port, "--count", "2"))
        assert tail(port, "--count", "2") == 0
        assert first.result(PATIENCE_S) == 0
        assert sorted(printed(capsys.readouterr().out)) == [1, 1, 2, 2]
        assert len(client.get(10).entries) == 2
    known = [each.client_id for each in instance.meta.subscriptions(DESTINATION)]
    assert known == [1001]


def test_one_that_was_killed(serve, instance, instances):
    """Its subscription ends with the next one; that of a connected one stays."""
    port = serve().port
    for client_id in (IDS[0], IDS[1], 1001):
        with CanalClient("127.0.0.1", port, DESTINATION, client_id) as client:
            client.subscribe()
    instances.state["connected"] = [IDS[1]]
    instance.store.append(statement(1))
    assert tail(port, "--count", "1") == 0
    known = {each.client_id for each in instance.meta.subscriptions(DESTINATION)}
    assert known == {IDS[1], 1001}
