"""Addresses in `canal-server check`: what does not answer, groups, standbys."""

from __future__ import annotations

import socket
import threading
from contextlib import closing

import pytest
from fix_conf import ACCOUNT


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "cannot connect to 127.0.0.1:1"),
        ("no-such-host.invalid:3306", "host no-such-host.invalid is unknown"),
    ],
)
def test_nothing_answers(conf_for, check, address, words):
    """The address and its key are named, and the rest is skipped."""

    class Nowhere:
        port = 1

    conf = conf_for(Nowhere, f"canal.instance.master.address = {address}")
    found = check(conf)
    ((outcome, message),) = found.of("reachable")
    assert outcome == "fail"
    assert words in message
    assert message.count("canal.instance.master.address") == 1
    assert found.failing() == ["reachable"]


def test_something_else_answers(conf_for, check):
    """What does not speak as MySQL does is no source."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with closing(listener.accept()[0]) as peer:
                peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=serve)
        thread.start()

        class Other:
            port = listener.getsockname()[1]

        found = check(conf_for(Other))
        thread.join()
    assert found.status == 1
    assert len(found.failing()) == 1


def test_a_server_that_says_nothing(conf_for, check, monkeypatch):
    """The wait for a greeting ends, and that is a failure."""
    monkeypatch.setattr("canal_server.source.check.source_check.CONNECT_S", 0.1)
    monkeypatch.setattr("canal_server.source.check.source_check.ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        class Silent:
            port = listener.getsockname()[1]

        found = check(conf_for(Silent))
    assert found.failing() == ["reachable"]


def test_a_group(make_conf, check):
    """Each source of a group has lines of its own, with its own keys."""
    conf = make_conf(
        "canal.destinations = all\ncanal.port = 0\n"
        "canal.instance.global.spring.xml = group-instance.xml\n",
        all="canal.instance.master1.address = 127.0.0.1:1\n"
        f"canal.instance.master2.address = 127.0.0.1:2\n{ACCOUNT}",
    )
    found = check(conf)
    for number in (1, 2):
        ((outcome, message),) = found.of("reachable", f"all/master{number}")
        assert outcome == "fail"
        assert f"cannot connect to 127.0.0.1:{number}" in message
        assert f"check canal.instance.master{number}.address" in message


def test_each_server_is_checked(checked_server, server_without_binlog, conf_for, check):
    """A standby has lines of its own, with the keys of the standby."""
    conf = conf_for(
        checked_server,
        f"canal.instance.standby.address = 127.0.0.1:{server_without_binlog.port}",
        "canal.instance.detecting.enable = true",
        "canal.instance.detecting.heartbeatHaEnable = true",
    )
    found = check(conf)
    assert found.of("log_bin")[0][0] == "ok"
    assert found.of("log_bin", "example standby")[0][0] == "fail"
    ((outcome, message),) = found.of("standby", "example standby")
    assert outcome == "skip"
    assert ": log_bin must be corrected first" in message
    conf = conf_for(
        checked_server,
        "canal.instance.standby.address = 127.0.0.1:1",
        "canal.instance.detecting.enable = true",
        "canal.instance.detecting.heartbeatHaEnable = true",
    )
    ((_, message),) = check(conf).of("reachable", "example standby")
    assert "check canal.instance.standby.address" in message
