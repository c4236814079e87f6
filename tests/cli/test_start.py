"""What `canal-server start` asks of the system."""

from __future__ import annotations

import io
import logging
import resource

import pytest

from canal_server import cli
from canal_server.cli.start import allow_descriptors, log_to, warn_of_zone


def test_descriptors():
    """A process that begins with few may have as many as its hard limit allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = min(before[0], 1024), before[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        allow_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        allow_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def logged(message, *arguments, exc_info=None):
    """Return what is in the log of a message."""
    root, output = logging.getLogger(), io.StringIO()
    handler, level = logging.StreamHandler(output), root.level
    log_to("info", handler)
    root.removeHandler(handler)
    root.setLevel(level)
    handler.handle(
        logging.LogRecord("a", logging.INFO, "", 0, message, arguments, exc_info)
    )
    return output.getvalue()


def test_a_message_is_one_line():
    """Texts of clients and sources cannot start a line, and are bounded."""
    text = logged("no destination %s", "x\n2026-11-23 ERROR forged\x1b[31m\u202e")
    assert text.endswith(r"x\n2026-11-23 ERROR forged\x1b[31m\u202e" + "\n")
    assert text.count("\n") == 1
    assert len(logged("%s", "y" * 1_000_000)) < 10_000


def test_a_traceback_keeps_its_lines():
    """But what a terminal would obey is escaped in it, too."""
    with pytest.raises(ValueError, match="a") as found:
        raise ValueError("a\x1b[2Jb")
    exc_info = (found.type, found.value, found.tb)
    lines = logged("failed", exc_info=exc_info).splitlines()
    assert lines[0].endswith("failed")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == r"ValueError: a\x1b[2Jb"


def test_all_problems_at_once(make_conf, capsys):
    """A wrong setting of the server hides none of a destination."""
    conf = make_conf(
        "canal.destinations = a\ncanal.alarm.after.seconds = 60s\n",
        a="canal.instance.master.address = here\ncanal.instance.gtidon = perhaps\n",
    )
    assert cli.main(["start", "--conf", str(conf)]) == 2
    shown = capsys.readouterr().err
    for key in (
        "canal.alarm.after.seconds",
        "canal.instance.gtidon",
        "canal.instance.dbUsername",
    ):
        assert key in shown


def test_a_zone_that_does_not_exist(monkeypatch, caplog):
    """A misspelt TZ is logged at the start: nothing else shows that UTC is used."""
    monkeypatch.setenv("TZ", "Europe/Berlim")
    warn_of_zone()
    assert caplog.messages == [
        "TZ=Europe/Berlim is no time zone of this machine: UTC is used"
    ]
    monkeypatch.setenv("TZ", "Europe/Berlin")
    warn_of_zone()
    assert len(caplog.messages) == 1
