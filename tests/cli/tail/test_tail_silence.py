"""What `canal-server tail` says while nothing comes."""

from __future__ import annotations

import argparse
import socket
from functools import partial

import pytest
from fix_server import DESTINATION, PATIENCE_S
from fix_store import eventually, in_thread

from canal_server.cli import main
from canal_server.cli.tail import tail_ids
from canal_server.cli.tail.tail_silence import ReadTo, Silence

QUIET = {"state": "running", "position": "b.000001:4", "lag": {"seconds": 0.0}}


def tail(port: int, *options: str) -> int:
    """Run the command and return its status."""
    return main(["tail", "--port", str(port), *options])


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (
            QUIET,
            ("no change so far: the source has been read to its end up to b.000001:4"
            "; to see"),
        ),
        (QUIET | {"lag": {"seconds": 300.0}}, "reading is 5 min behind the source"),
        (QUIET | {"state": "connecting"}, "the server is connecting to its source"),
        (
            QUIET | {"error": "ConnectionLost: gone"},
            "the source cannot be read: ConnectionLost: gone",
        ),
        (
            QUIET | {"blocked": {"reason": "ring full, waits for client 7",
                                 "since_ms": 1}},
            "no change so far: blocked: ring full, waits for client 7 (since ",
        ),
        (
            {"running": False, "runs_on": "10.0.0.2:11111"},
            "destination example runs on 10.0.0.2:11111: connect there",
        ),
        (
            {"running": False, "life": "paused", "error": "CanalError: no"},
            "destination example is paused: CanalError: no",
        ),
    ],
)  # fmt: skip
def test_reasons(serve, instances, capsys, state, expected):
    """While nothing comes, standard error says why: once, until that changes."""
    instances.state |= state
    port = serve().port
    silence = Silence(options_of(port))
    silence.explain()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("canal-server tail: ")
    assert expected in line
    silence.explain()
    assert capsys.readouterr().err == ""


def test_silence_after_changes(serve, instances, capsys):
    """It is reported as such, but not after each change; other reasons are."""
    instances.state |= QUIET
    silence = Silence(options_of(serve().port))
    still = (
        "canal-server tail: no further change: the source has been read to its end up"
        " to b.000001:4\n"
    )
    for shown in (still, ""):
        silence.end()
        silence.explain()
        assert capsys.readouterr().err == shown
    instances.state["error"] = "ConnectionLost: gone"
    for _ in range(2):
        silence.end()
        silence.explain()
        assert "the source cannot be read: ConnectionLost" in capsys.readouterr().err
    instances.state["error"] = ""
    silence.explain()
    assert capsys.readouterr().err == still


def test_silence_of_ranges(serve, instances, capsys):
    """What a reader of ranges has seen counts, and the ring does not hold it up."""
    instances.state |= QUIET | {"blocked": {"reason": "ring full", "since_ms": 1}}
    silence = Silence(options_of(serve().port, start="earliest"))
    silence.explain(ReadTo("b.000007:4"))
    assert capsys.readouterr().err == (
        "canal-server tail: no change so far: the source has been read to its end up to"
        " b.000007:4\n"
    )


def test_an_answer_that_does_not_come(serve, instances, capsys):
    """While waiting for an answer, the possible reasons are printed."""
    instances.state |= QUIET
    silence = Silence(options_of(serve().port, start="earliest"))
    for state, reason in (
        ({}, "no change so far: the server searches\n"),
        ({"error": "ConnectionLost: gone"}, "the source cannot be read: ConnectionLo"),
    ):
        instances.state |= state
        shown: list[str] = []
        with silence.while_waiting(0.0, "the server searches"):
            eventually(partial(has_printed, capsys, shown))
        assert reason in "".join(shown)


def has_printed(capsys: pytest.CaptureFixture[str], shown: list[str]) -> bool:
    """Return whether a line was printed, and add it."""
    shown.append(capsys.readouterr().err)
    return "\n" in "".join(shown)


def test_a_filter_that_matches_nothing(serve, instances, capsys):
    """What was written meanwhile, and did not come, does not match the filter."""
    instances.state |= QUIET
    silence = Silence(options_of(serve().port, r"shop\.orders"))
    silence.explain()
    output = capsys.readouterr().err
    # Perhaps it matches no table at all: nothing else is known so far.
    assert (
        r"no change that --filter 'shop\.orders' matches so far: the source" in output
    )
    # Or the user may read none of them.
    limited = options_of(serve().port, "x", user="me")
    Silence(limited).explain()
    assert (
        "no change that --filter 'x' matches and user 'me' may read so far: the source"
        in capsys.readouterr().err
    )
    instances.state["position"] = "b.000001:900"
    silence.explain()  # it may be on its way
    assert capsys.readouterr().err == ""
    silence.explain()
    assert (
        "the source is read up to b.000001:900, but the changes since then match"
        r" nothing of --filter 'shop\.orders'"
    ) in capsys.readouterr().err


def test_a_server_that_does_not_say(capsys):
    """Where the reason cannot be asked for, that is said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    Silence(options_of(port)).explain()
    assert (
        "no change so far; this server does not report why" in capsys.readouterr().err
    )


@pytest.mark.parametrize("options", [(), ("--from", "oldest")])
def test_a_server_that_does_not_answer(capsys, monkeypatch, options):
    """A server that accepts connections and is silent is named while tail waits."""
    monkeypatch.setattr(tail_ids, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = in_thread(tail, port, *options)
        shown: list[str] = []
        eventually(partial(has_printed, capsys, shown))
        assert not result.done()
    assert result.result(PATIENCE_S) == 1
    assert "".join(shown) == (
        f"canal-server tail: 127.0.0.1:{port} does not answer: it is stuck or paused,"
        " or its machine is very busy or unreachable\n"
    )


def test_it_runs_elsewhere(serve, instances, capsys):
    """A destination of another server ends it, with where that is."""
    instances.started.clear()
    instances.broken.add(DESTINATION)
    instances.state |= {"runs_on": "10.0.0.2:11111"}
    assert tail(serve().port) == 1
    error, where = capsys.readouterr().err.splitlines()
    assert "should start first" in error
    assert "destination example runs on 10.0.0.2:11111" in where


def options_of(
    port: int, expected: str = "", start: str | None = None, user: str = ""
) -> argparse.Namespace:
    """Return the options of a command at this port."""
    return argparse.Namespace(
        host="127.0.0.1", port=port, destination=DESTINATION, user=user,
        password_file=None, filter=expected, start=start, tls=False, tls_ca_file="",
        tls_cert_file="", tls_key_file="", own_conf=None,
    )  # fmt: skip
