"""Which of two servers is read."""

from __future__ import annotations

import pytest

from canal_server.config.schema import HostConfig, SslMode
from canal_server.model.positions import LogIdentity
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.source.begin.source_servers import (
    MASTER,
    STANDBY,
    Source,
    Sources,
    standby_start,
)


def source(role: str, port: int) -> Source:
    """Return a server on the loopback interface."""
    access = Access(
        address=Address("127.0.0.1", port), credentials=Credentials("u", "")
    )
    return Source(role, access, HostConfig())


def test_switch_and_back() -> None:
    """A switch exchanges the current and the other server, and is counted."""
    sources = Sources(source(MASTER, 1), source(STANDBY, 2))
    assert sources.other is not None
    sources.switch_to(sources.other)
    assert str(sources.current) == "standby 127.0.0.1:2"
    assert sources.other is not None
    assert sources.other.identity == LogIdentity("127.0.0.1", 1)
    sources.switch_to(sources.other)
    assert (sources.current.role, sources.switches) == (MASTER, 2)


def test_one_server() -> None:
    """Without a standby there is no other server."""
    assert Sources(source(MASTER, 1)).other is None


@pytest.mark.parametrize(
    ("master", "standby", "start"),
    [
        (HostConfig(journal_name="f.1"), HostConfig(), HostConfig()),
        (HostConfig(timestamp_ms=5), HostConfig(), HostConfig(timestamp_ms=5)),
        (
            HostConfig(gtid="a:1", ssl_mode=SslMode.REQUIRED),
            HostConfig(),
            HostConfig(gtid="a:1"),
        ),
        (
            HostConfig(timestamp_ms=5),
            HostConfig(journal_name="f.2"),
            HostConfig(journal_name="f.2"),
        ),
    ],
)
def test_where_a_standby_begins(
    master: HostConfig, standby: HostConfig, start: HostConfig
) -> None:
    """At its own setting, else at the master's time or GTID set, never its file."""
    assert standby_start(master, standby) == start


@pytest.mark.parametrize(
    ("stored", "role"),
    [
        (None, MASTER),
        (LogIdentity("127.0.0.1", 1), MASTER),
        (LogIdentity("localhost", 2), STANDBY),
        (LogIdentity("127.0.0.1", 3), MASTER),
    ],
)
def test_where_a_restart_begins(stored: LogIdentity | None, role: str) -> None:
    """The server named in the stored position; else the master."""
    sources = Sources(source(MASTER, 1), source(STANDBY, 2))
    sources.begin_with(stored)
    assert (sources.current.role, sources.switches) == (role, 0)
