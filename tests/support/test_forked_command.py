"""A command that is forked goes, and ends, as one in a process of its own."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from fix_conf import ACCOUNT
from fix_pipeline import UNIT_S
from forked_command import ForkedCommand

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

QUIET = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = example\n"
NOWHERE = f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"
PATIENCE_S = 6 * UNIT_S


def test_stderr_and_status(
    make_conf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is wrong with the current environment, also by its exit status."""
    monkeypatch.setenv("CANAL_PORT", "many")
    command = ForkedCommand(["start", "--conf", str(make_conf())])
    with command.stderr:
        shown = command.stderr.read()
    assert "environment: canal.port = many" in shown
    assert [command.wait(PATIENCE_S) for _ in range(2)] == [2, 2]


def test_signals(make_conf: Callable[..., Path], tmp_path: Path) -> None:
    """Of two that run, one is asked to end and the other is killed."""
    ends = {signal.SIGTERM: 0, signal.SIGKILL: -signal.SIGKILL}
    conf = make_conf(QUIET, example=NOWHERE)
    commands = {}
    for number in ends:
        folder = tmp_path / number.name
        conf.rename(folder)
        conf = make_conf(QUIET, example=NOWHERE)
        command = ForkedCommand(["start", "--conf", str(folder)])
        assert any(" started with " in line for line in command.stderr)
        commands[number] = command
    for number, command in commands.items():
        command.send_signal(number)
        with command.stderr:
            command.stderr.read()
        assert command.wait(PATIENCE_S) == ends[number]
        command.send_signal(number)  # it has ended: nothing happens
