"""Where `canal-server tail --from` begins."""

from __future__ import annotations

import pytest

from canal_server.cli import main
from canal_server.cli.tail.tail_ranged import start_of


def tail(port: int, *options: str) -> int:
    """Run the command and return its status."""
    return main(["tail", "--port", str(port), *options])


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("oldest", "earliest"), ("latest", "latest"),
        ("binlog.000003:4711", "file:binlog.000003:4711"),
        ("1763719200000", "time:1763719200000"),
        ("2025-11-21T10:00:00Z", "time:1763719200000"),
        ("gtid:0-1-5", "gtid:0-1-5"), ("0-1-5", "gtid:0-1-5"),
    ],
)  # fmt: skip
def test_starts(text, start):
    """What a person writes becomes what the protocol has."""
    assert start_of(text) == start


def test_a_time_in_the_future(capsys):
    """It is an error, with how to begin with what comes."""
    with pytest.raises(SystemExit) as caught:
        tail(1, "--from", "2999-01-01T00:00:00Z")
    assert caught.value.code == 2
    output = " ".join(capsys.readouterr().err.split())
    assert (
        "2999-01-01T00:00:00Z is in the future by the clock of this machine" in output
    )
    assert "use `--from latest`" in output


def test_a_start_that_is_none(capsys):
    """What is neither position nor time is an error of usage that says what is."""
    with pytest.raises(SystemExit) as caught:
        tail(1, "--from", "soon")
    assert caught.value.code == 2
    assert "relative to now like -1h" in " ".join(capsys.readouterr().err.split())
    assert tail(1, "--from", "-1h", "--client-id", "7") == 2
    assert "--from reads the binlog without a client" in capsys.readouterr().err
