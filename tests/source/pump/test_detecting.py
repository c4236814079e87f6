"""The watch over the source, beat by beat, on real servers and on dead ones."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

import pytest
from fix_source_access import PATIENCE_S, access_of

from canal_server.config.schema import (
    DetectingConfig,
    HostConfig,
    InstanceConfig,
    SourceConfig,
)
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.runtime.lifecycle import Deadline
from canal_server.source.begin.source_servers import MASTER, STANDBY, Source, Sources
from canal_server.source.pump.detecting import Detector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

SENT_BYTES = 500_000  # of a greeting
UNREACHABLE = Access(address=Address("127.0.0.1", 1), credentials=Credentials("u", ""))


class Switched:
    """What a detector needs of a pump: it switches at once."""

    def __init__(
        self, master: Access, standby: Access | None, begins: HostConfig
    ) -> None:
        self.sources = Sources(
            Source(MASTER, master, begins),
            Source(STANDBY, standby, HostConfig()) if standby else None,
        )
        self.requests = 0
        self.is_held_up = False

    def switch_to(self, source: Source) -> None:
        """Read the other one from now on, unless it is kept from that."""
        self.requests += 1
        if not self.is_held_up:
            self.sources.switch_to(source)


def watch(
    master: Access,
    standby: Access | None = None,
    *,
    formats: tuple[str, ...] = (),
    begins: HostConfig = HostConfig(),  # noqa: B008  # it is frozen
    **settings: object,
) -> tuple[Detector, Switched]:
    """Return a detector that bears one failure, and what it may switch."""
    expected = {"enable": True, "retry_threshold": 1, "switch_to_standby": True}
    config = InstanceConfig(
        destination="watched",
        source=SourceConfig(
            detecting=DetectingConfig(**(expected | settings)),  # type: ignore[arg-type]
            binlog_formats=formats,
        ),
    )
    pump = Switched(master, standby, begins)
    return Detector(config, pump, lambda: None), pump


def state_of(detector: Detector) -> dict[str, object]:
    """Return the status of a detector that is enabled."""
    found = detector.status()
    assert found is not None
    return found


def shown_by(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Give the listener of a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        listener.settimeout(PATIENCE_S)
        yield listener


def test_switches_with_the_failure_after_the_last_that_is_borne(
    source_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The first failure is tolerated, the second switches and resets the count."""
    detector, pump = watch(UNREACHABLE, access_of(source_server))
    detector.check()
    assert state_of(detector)["failures"] == 1
    assert pump.sources.current.role == MASTER
    detector.check()
    assert pump.sources.current.role == STANDBY
    detector.check()
    found = state_of(detector)
    assert (found["failures"], found["error"]) == (0, "")
    # The dead one is looked at, too: it is no server to go back to.
    assert found["other_fit"] is False
    assert any("switching to standby" in line for line in shown_by(caplog))
    detector.close()


def test_a_switch_is_requested_once(source_server: Server) -> None:
    """While the pump still delivers what it has, the request is not repeated."""
    detector, pump = watch(UNREACHABLE, access_of(source_server))
    pump.is_held_up = True
    for _ in range(4):
        detector.check()
    assert (pump.requests, pump.sources.current.role) == (1, MASTER)


@pytest.mark.parametrize("sql", ["", "select 1", "  SHOW DATABASES"])
def test_a_source_that_answers(source_server: Server, sql: str) -> None:
    """A statement or a ping over one connection, again and again, is no failure."""
    detector, _ = watch(access_of(source_server), sql=sql)
    for _ in range(3):
        detector.check()
    found = state_of(detector)
    assert (found["failures"], found["other_fit"]) == (0, None)
    detector.close()


def test_a_statement_that_writes(source_server: Server, database: str) -> None:
    """A statement without rows is run as well, and is committed."""
    source_server.execute(
        f"CREATE TABLE {database}.beat (a INT)",
        f"GRANT INSERT ON {database}.* TO '{source_server.user}'@'%'",
    )
    sql = f"INSERT INTO {database}.beat VALUES (1)"
    detector, _ = watch(access_of(source_server), sql=sql)
    for _ in range(2):
        detector.check()
    detector.close()
    assert source_server.execute(f"SELECT COUNT(*) FROM {database}.beat") == ((2,),)


def test_a_statement_that_fails(source_server: Server, database: str) -> None:
    """An error of the statement is a failure; an answer after it ends the count."""
    sql = f"SELECT a FROM {database}.beat"
    detector, _ = watch(access_of(source_server), sql=sql)
    detector.check()
    assert state_of(detector)["failures"] == 1
    assert f"{database}.beat" in str(state_of(detector)["error"])
    source_server.execute(f"CREATE TABLE {database}.beat (a INT)")
    detector.check()
    assert state_of(detector)["failures"] == 0
    detector.close()


@pytest.mark.parametrize(
    ("may_switch", "why"),
    [
        (True, "canal.instance.standby.address is not set"),
        (False, "canal.instance.detecting.heartbeatHaEnable is not true"),
    ],
)
def test_an_alarm_is_all(
    may_switch: bool,
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a standby, or with switching off, a failure is logged once."""
    standby = None if may_switch else UNREACHABLE
    detector, pump = watch(UNREACHABLE, standby, switch_to_standby=may_switch)
    for _ in range(4):
        detector.check()
    assert pump.sources.current.role == MASTER
    assert state_of(detector)["failures"] == 4
    assert sum(why in line for line in shown_by(caplog)) == 1


def test_a_standby_that_is_not_fit(
    source_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no switch to an unfit server, and the reason is logged once."""
    detector, pump = watch(
        UNREACHABLE, access_of(source_server), formats=("STATEMENT",)
    )
    for _ in range(3):
        detector.check()
    assert pump.sources.current.role == MASTER
    found = state_of(detector)
    assert found["other_fit"] is False
    assert "binlog_format is ROW" in str(found["other_refusal"])
    assert sum("cannot take over" in line for line in shown_by(caplog)) == 1


def test_a_statement_that_only_the_master_understands(source_server: Server) -> None:
    """Before anything is stored, a file of the master says nothing of the standby's."""
    detector, pump = watch(
        UNREACHABLE,
        access_of(source_server),
        begins=HostConfig(journal_name="binlog.000001"),
    )
    for _ in range(2):
        detector.check()
    assert pump.sources.current.role == MASTER
    assert "nothing is stored yet" in str(state_of(detector)["other_refusal"])


def test_the_standby_is_looked_at_before_it_is_needed(source_server: Server) -> None:
    """The first answer of the source is followed by a look at the other server."""
    detector, _ = watch(access_of(source_server), UNREACHABLE)
    detector.check()
    found = state_of(detector)
    assert found["failures"] == 0
    assert "cannot connect" in str(found["other_refusal"])
    detector.close()


def test_a_stop_ends_the_wait_for_an_answer(silent: socket.socket) -> None:
    """A stop does not wait for a server that never answers."""
    address = Address("127.0.0.1", silent.getsockname()[1])
    detector, _ = watch(
        Access(address=address, credentials=Credentials("u", "")), interval_s=0.01
    )
    detector.start()
    client, _ = silent.accept()
    with client:
        # A packet that does not end. More is sent than buffers hold: it is being read.
        client.sendall((2 * SENT_BYTES).to_bytes(3, "little") + b"\0")
        client.sendall(bytes(SENT_BYTES))
        detector.request_stop()
        assert detector.join(Deadline(PATIENCE_S))
    assert state_of(detector)["failures"] == 0


def test_nothing_is_watched_unasked() -> None:
    """Without canal.instance.detecting.enable no thread runs, nothing is reported."""
    detector, _ = watch(UNREACHABLE, enable=False)
    detector.start()
    detector.request_stop()
    assert detector.join(Deadline(0))
    assert detector.status() is None
