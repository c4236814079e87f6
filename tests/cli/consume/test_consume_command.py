"""`canal-server consume` against a server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from change_messages import Maker
from fix_daemon import child_environ
from fix_server import DESTINATION, PATIENCE_S

from canal_server.cli import main
from canal_server.cli.consume import consume_command
from canal_server.protocol.auth import stored_form
from canal_server.protocol.entry_messages import encode

MODULE = """
import os, signal, sys, time

def stop_at_three(change):
    print(change.after["id"], flush=True)
    if change.after["id"] == 3:
        os.kill(os.getpid(), signal.SIGTERM)

def stop_and_fail(change):
    os.kill(os.getpid(), signal.SIGTERM)
    raise OSError("not now")

def fail(change):
    raise ValueError("a fault of mine")

def hang(change):
    print("hanging", flush=True)
    while True:
        time.sleep(0.1)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """Have a module of a user in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(MODULE)
    sys.modules.pop("mine", None)
    yield
    sys.modules.pop("mine", None)


@pytest.fixture
def port(serve, instance):
    """Give the port of a server with two messages of two rows."""
    append(instance, Maker(), (1, 2), (3, 4), (5, 6))
    return serve().port


def append(instance, maker, *transactions) -> None:
    """Put transactions that insert rows."""
    for ids in transactions:
        message = maker.inserts(1, *ids)
        instance.store.append(*map(encode, message.entries))


def consume(port, *options) -> int:
    """Run the command and return its status."""
    return main(["consume", "--port", str(port), "--batch-size", "4", *options])


def acked(instance) -> int:
    """Return how many entries the client acked."""
    return int(instance.store.cursors[1001].acked)


def test_a_function(port, instance, capsys):
    """It is called for each row until a signal; the message at hand is acked."""
    assert consume(port, "--handler", "mine:stop_at_three") == 0
    shown = capsys.readouterr()
    assert shown.out.split() == ["1", "2", "3", "4"]
    assert "4 changes, " in shown.err
    assert acked(instance) == 8


def test_the_next_run_resumes(port, instance, capsys):
    """It begins after what was acked."""
    assert consume(port, "--handler", "mine:stop_at_three") == 0
    append(instance, Maker(), (3,))
    capsys.readouterr()
    assert consume(port, "--handler", "mine:stop_at_three") == 0
    assert capsys.readouterr().out.split() == ["5", "6", "3"]


def test_a_failure_and_a_signal(port, instance):
    """A signal while a change fails ends the command; nothing is acked."""
    assert consume(port, "--handler", "mine:stop_and_fail") == 0
    assert acked(instance) == 0


def test_a_change_that_fails(port, instance, capsys):
    """The change and the reason are named; the status is 1, and nothing is acked."""
    options = ("--handler", "mine:fail", "--retries", "0")
    assert consume(port, *options) == 1
    (line,) = [
        each for each in capsys.readouterr().err.splitlines()
        if each.startswith("canal-server consume: <")
    ]  # fmt: skip
    assert line.startswith(
        "canal-server consume: <insert shop.orders {'id': 1} at binlog.000001:"
    )
    assert "ValueError: a fault of mine; with a file for dead letters (--dead" in line
    assert acked(instance) == 0


def test_dead_letters(port, instance, tmp_path, capsys):
    """With a file for them, everything else is handled."""
    (tmp_path / "mine.py").write_text(
        MODULE + "\ndef odd(change):\n    if change.after['id'] % 2:\n"
        "        raise ValueError('odd')\n    if change.after['id'] == 6:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    options = ("--handler", "mine:odd", "--retries", "0", "--dead-letter", "d.jsonl")
    assert consume(port, *options, "--metrics-file", "x.prom") == 0
    lines = (tmp_path / "d.jsonl").read_text().splitlines()
    letters = list(map(json.loads, lines))
    assert [each["after"]["id"] for each in letters] == [1, 3, 5]
    assert {each["error"]["message"] for each in letters} == {"odd"}
    assert acked(instance) == 12
    metrics = (tmp_path / "x.prom").read_text()
    labels = f'destination="{DESTINATION}",client_id="1001"'
    assert f"canal_consumer_dead_letters_total{{{labels}}} 3" in metrics
    assert "3 dead letters" in capsys.readouterr().err


def test_tables(serve, instance):
    """--table selects tables, and subscribes to them alone."""
    append(instance, Maker("items"), (7,))
    append(instance, Maker(), (1, 3))
    asked: list[str] = []
    instance.check_filter = asked.append
    port = serve().port
    tables = ("--table", "shop.orders", "--table", "shop.pay-ments")
    assert consume(port, "--handler", "mine:stop_at_three", *tables) == 0
    assert asked == [r"shop\.orders,shop\.pay\-ments"]


def test_a_ready_handler(port, tmp_path):
    """Its settings come from --set; it works until a signal."""
    process = run_process(port, "--handler", "json-lines", "--set", "path=out.jsonl")
    path = tmp_path / "out.jsonl"
    wait_for(process, lambda: path.exists() and path.read_text().count("\n") == 6)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "received SIGTERM, shutting down (repeat to force)" in err
    assert out == ""
    ids = [json.loads(line)["after"]["id"] for line in path.read_text().splitlines()]
    assert ids == [1, 2, 3, 4, 5, 6]


def test_a_second_signal(port):
    """It ends the command at once, also within a handler that hangs."""
    with run_process(port, "--handler", "mine:hang", same_s=0) as process:
        try:
            assert process.stdout.readline() == "hanging\n"
            process.send_signal(signal.SIGINT)
            assert any("shutting down" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 130


def run_process(port, *options, same_s=1.0):
    """Start the command as a process in the current folder."""
    code = (
        "import sys; from canal_server.cli import main\n"
        "from canal_server.cli.consume import consume_command\n"
        f"consume_command.SAME_S = {same_s}\n"
        "raise SystemExit(main(sys.argv[1:]))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, "consume", "--port", str(port), *options],
        env=child_environ() | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process, condition):
    """Wait until something is the case, while the process runs."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--table", "orders"], "--table: table = 'orders': expected schema.table"),
        (["--table", "a.b", "--filter", "x"], "--table and --filter exclude each"),
        (["--filter", "*"], "--filter '*': "),
        (["--client-id", "99999"], "client_id = 99999: expected -32768 to 32767"),
        (["--dead-letter", "none/x"], "--dead-letter none/x: No such file"),
        (["--set", "a=b"], "--set: mine:fail is not a class"),
        (["--set-env", "a=NOT_SET_HERE"], "--set-env a: the environment variable NOT"),
    ],
)
def test_wrong_options(options, problem, capsys):
    """They are errors before anything starts."""
    assert consume(1, "--handler", "mine:fail", *options) == 2
    assert capsys.readouterr().err.startswith(f"canal-server consume: {problem}")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--time-zone", "Mars/City"], "Mars/City: expected the name of a time zone"),
        (["--retries", "-1"], "--retries: expected 0 or a positive number"),
        (["--retry-for", "0s"], "expected more than 0"),
        ([], "the following arguments are required: --handler"),
    ],
)
def test_wrong_usage(options, problem, capsys):
    """Values that cannot be are errors of usage."""
    handler = ["--handler", "mine:fail"] if options else []
    with pytest.raises(SystemExit) as caught:
        consume(1, *handler, *options)
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err


def test_a_wrong_password(serve, capsys, monkeypatch):
    """It is refused at once, and never shown."""
    port = serve(user="canal", passwd=stored_form("geheim")).port
    monkeypatch.setenv("CANAL_PASSWORD", "geheim2")
    assert consume(port, "--handler", "mine:fail", "--user", "canal") == 1
    shown = capsys.readouterr().err
    assert "canal-server consume: example at 127.0.0.1" in shown
    assert "geheim" not in shown


def test_signals_are_as_before(port):
    """The command leaves the handlers of signals as it found them."""
    before = [signal.getsignal(each) for each in consume_command._SIGNALS]
    assert consume(port, "--handler", "mine:stop_at_three") == 0
    assert [signal.getsignal(each) for each in consume_command._SIGNALS] == before
