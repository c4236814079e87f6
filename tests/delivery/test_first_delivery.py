"""Where a destination begins that has delivered nothing, when brokers answer late."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fix_store import eventually
from purge import purge
from transactions_in_memory import WHO, Broker

from canal_server.config.schema import (
    HostConfig,
    HostPort,
    InstanceConfig,
    SourceConfig,
)
from canal_server.delivery import stored_position
from canal_server.delivery.first_delivery import NO_SOURCE, PURGED, FirstDelivery
from canal_server.delivery.stored_position import continue_at_stored, encoded
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.memory_meta import MemoryMetaManager
from canal_server.queues.producers.queue_producer import BrokerUnavailableError
from canal_server.runtime.lifecycle import Stop

if TYPE_CHECKING:
    from collections.abc import Callable


def at(offset: int) -> LogPosition:
    """Return a position."""
    return LogPosition(LogIdentity("db", 3306), EntryPosition("b.000001", offset))


class Noted(FirstDelivery):
    """One without a source, which has answered at some request, or never."""

    def __init__(self, *, answers_at: int = 1, is_purged: bool = False) -> None:
        super().__init__(InstanceConfig(destination="example"))
        self.asked = 0
        self._answers_at, self._is_purged = answers_at, is_purged
        if is_purged:
            self.why_not = PURGED

    def note(self) -> None:
        """Count the requests."""
        self.asked += 1

    def position(self, stop: Stop) -> LogPosition | None:
        """Return a position if there is one."""
        assert not stop.requested()
        return None if self._is_purged or self.asked < self._answers_at else at(4)


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., LogPosition | None]:
    """Give a function that returns the cursor after brokers were away so often."""
    monkeypatch.setattr(stored_position, "RETRY_S", 0.0)

    def run(
        away: int,
        first: FirstDelivery,
        stored: LogPosition | None = None,
        cursor: LogPosition | None = None,
        other: LogPosition | None = None,
    ) -> LogPosition | None:
        broker, left = Broker(), [BrokerUnavailableError("away")] * away
        opened, meta = broker.open, MemoryMetaManager()
        if cursor is not None:
            meta.subscribe(WHO)
            meta.update_cursor(WHO, cursor)
        if other is not None:
            client = replace(WHO, client_id=7)
            meta.subscribe(client)
            meta.update_cursor(client, other)

        def open_() -> None:
            if left:
                raise left.pop()
            opened()

        monkeypatch.setattr(broker, "open", open_)
        value = None if stored is None else encoded(stored)
        monkeypatch.setattr(broker, "position", lambda *_: value)
        continue_at_stored(WHO, lambda: broker, meta, Stop(), first=first)
        assert meta.has_subscribed(WHO) == (meta.cursor(WHO) is not None)
        return meta.cursor(WHO)

    return run


def test_it_begins_where_the_wait_began(
    begin: Callable[..., LogPosition | None], caplog: pytest.LogCaptureFixture
) -> None:
    """It is the end that was noted first, whether the brokers were away or slow."""
    assert begin(0, Noted()) == at(4)
    assert begin(0, Noted(answers_at=2)) is None
    assert begin(2, Noted()) == at(4)
    late = Noted(answers_at=3)
    assert begin(2, late) == at(4)
    assert late.asked == 3
    assert "position seek" not in caplog.text


def test_who_has_delivered_something(
    begin: Callable[..., LogPosition | None], caplog: pytest.LogCaptureFixture
) -> None:
    """The position of the brokers and a cursor count; the source is not asked."""
    assert begin(2, Noted(), stored=at(2)) == at(2)
    unasked = Noted()
    assert begin(2, unasked, cursor=at(3)) == at(3)
    assert unasked.asked == 0
    assert "position seek" not in caplog.text


def test_another_client_with_a_cursor(
    begin: Callable[..., LogPosition | None], caplog: pytest.LogCaptureFixture
) -> None:
    """Reading begins at its cursor, and so does delivery: nothing is left out."""
    first = Noted()
    assert begin(2, first, other=at(2)) is None
    assert first.asked == 0
    assert "position seek" not in caplog.text


@pytest.mark.parametrize(
    ("first", "to"),
    [(Noted(answers_at=9), "20"), (Noted(is_purged=True), "oldest`")],
    ids=["silent", "purged"],
)
def test_a_position_that_is_not_known(
    begin: Callable[..., LogPosition | None],
    caplog: pytest.LogCaptureFixture,
    first: Noted,
    to: str,
) -> None:
    """What was committed meanwhile is left out: the log says so, and what to do."""
    assert begin(2, first) is None
    assert "it begins at the end of the binlog now; to deliver what" in caplog.text
    command = "position seek --destination example --client-id 1001 --to"
    assert f"{command} {to}" in caplog.text


def of_source(server: Any, port: int = 0, **start: Any) -> FirstDelivery:
    """Return that of a destination with this source, perhaps at another port."""
    address = HostPort(server.host, port or server.port)
    master = HostConfig(address=address, **start)
    source = SourceConfig(master=master, user=server.user, password=server.password)
    return FirstDelivery(InstanceConfig(destination="example", source=source))


def noted_by(first: FirstDelivery) -> LogPosition:
    """Return the position once the source has answered."""
    first.note()
    eventually(lambda: first.position(Stop()))
    found = first.position(Stop())
    assert found is not None
    return found


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_the_end_of_a_source(own_server: Any, flavour: str) -> None:
    """It is noted once; what is written later follows it, until that is purged."""
    server = own_server(flavour)
    first = of_source(server)
    noted = noted_by(first)
    file, offset = server.binlog_position()
    assert noted.position.order() == EntryPosition(file, offset).order()
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT)")
    assert noted_by(first) == noted
    purge(server)
    assert first.position(Stop()) is None
    assert first.why_not == PURGED


def test_a_start_that_is_configured(source_server: Any) -> None:
    """Nothing is noted then. A GTID set counts in GTID mode only."""
    first = of_source(source_server, timestamp_ms=1)
    assert first.is_configured
    first.note()
    assert first.position(Stop()) is None
    assert not of_source(source_server, gtid="0-1-5").is_configured


@pytest.mark.parametrize("is_silent", [False, True], ids=["closed", "silent"])
def test_a_source_that_does_not_answer(source_server: Any, is_silent: bool) -> None:
    """It delays nothing but the position, and that is the reason."""
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, says nothing
        port = listener.getsockname()[1] if is_silent else 9
        first = of_source(source_server, port=port)
        first.note()
        stop = Stop()
        if is_silent:
            stop.request()  # or it is waited for, up to its limits
        assert first.position(stop) is None
    assert first.why_not == NO_SOURCE


def test_an_internal_error(source_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the position meets it; changes are not left out for it."""

    def fails(*_: object) -> None:
        raise RuntimeError("a defect")

    first = of_source(source_server)
    for method in ("_view", "_has_all_from"):
        monkeypatch.setattr(first, method, fails)
        first.note()
        with pytest.raises(RuntimeError, match="a defect"):
            first.position(Stop())
        monkeypatch.undo()
        noted_by(first)


def test_a_stop_while_the_source_is_asked(
    own_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop does not wait for an answer about what is purged."""
    first = of_source(own_server("mysql"))
    noted, answers, stop = noted_by(first), threading.Event(), Stop()
    monkeypatch.setattr(first, "_has_all_from", lambda _: answers.wait())
    stop.request()
    assert first.position(stop) == noted
    answers.set()
