"""Destinations that an operator stops, until he lets them run again."""

from __future__ import annotations

import pytest
from fix_daemon import Makes
from fix_destinations import (
    LONG,
    MOVED_TO,
    SharedLease,
    configs,
    released,
    stored_client,
)
from fix_store import eventually

from canal_server.errors import ClientError
from canal_server.position.file_meta import MetaFiles
from canal_server.runtime.lifecycle import Deadline


class TestStoppedByAnOperator:
    """`stop` and `resume`."""

    def test_stops_until_resumed(self, destinations_of):
        """Clients do not start it; `resume` does, with a new instance."""
        makes = Makes()
        destinations = destinations_of(configs("a"), makes)
        destinations.start()
        destinations.stop("a")
        eventually(lambda: destinations.status()[0]["life"] == "stopped")
        assert makes.made[0].calls == ["start", "request_stop", "join"]
        assert destinations.running("a") is None
        assert destinations.start_lazy("a") is None
        destinations.resume("a")
        eventually(lambda: destinations.running("a") is not None)
        assert destinations.running("a") is makes.made[1]

    def test_one_that_runs(self, destinations_of):
        """It keeps its instance, which tries again to read its source."""
        makes = Makes()
        destinations = destinations_of(configs("a"), makes)
        destinations.start()
        destinations.resume("a")
        assert destinations.running("a") is makes.made[0]
        assert makes.made[0].calls == ["start", "retry"]

    def test_calls_on_resume(self, destinations_of):
        """Each start by an operator is reported, also of one that runs; no others."""
        destinations = destinations_of(configs("a", "b"), Makes())
        resumed: list[str] = []
        destinations.on_resume(resumed.append)
        destinations.start()
        destinations.resume("b")
        with pytest.raises(ClientError):
            destinations.resume("c")
        assert resumed == ["b"]

    def test_a_lazy_one(self, destinations_of):
        """A first client does not start it while it is stopped; `resume` starts it."""
        destinations = destinations_of(configs("a", lazy="a"), Makes())
        destinations.start()
        destinations.stop("a")
        eventually(lambda: destinations.status()[0]["life"] == "stopped")
        assert destinations.start_lazy("a") is None
        destinations.resume("a")
        eventually(lambda: destinations.running("a") is not None)

    def test_during_a_start(self, destinations_of):
        """A start that ends after the stop leads to no running instance."""
        makes = Makes()
        lease = SharedLease()
        lease.give()
        destinations = destinations_of(configs("a"), makes, lease)
        makes.made[0].may_start.clear()
        destinations.start()
        assert makes.made[0].entered.wait(LONG)
        destinations.stop("a")
        makes.made[0].may_start.set()
        eventually(lambda: destinations.status()[0]["life"] == "stopped")
        assert makes.made[0].calls[-1] == "join"
        assert released(lease, 1)

    def test_while_it_waits_for_the_lease(self, destinations_of):
        """It stops competing, so that others have the lease."""
        lease = SharedLease()
        makes = Makes()
        destinations = destinations_of(configs("a"), makes, lease)
        destinations.start()
        destinations.stop("a")
        eventually(lambda: destinations.status()[0]["life"] == "stopped")
        lease.give()
        assert destinations.start_lazy("a") is None
        assert makes.made[0].calls == []

    def test_after_a_failure(self, destinations_of):
        """It does not retry, and its error is no longer reported."""
        destinations = destinations_of(configs("broken"), Makes())
        destinations.start()
        assert "error" in destinations.status()[0]
        destinations.stop("broken")
        eventually(lambda: destinations.status()[0]["life"] == "stopped")
        assert "error" not in destinations.status()[0]

    def test_clients_are_moved_where_stored(self, destinations_of, tmp_path):
        """While it is stopped, cursors can be moved; it starts from there."""
        destinations = destinations_of(stored_client(tmp_path), Makes())
        destinations.start()
        destinations.stop("a")
        eventually(lambda: destinations.status()[0]["life"] == "stopped")
        destinations.seek("a", [1001], MOVED_TO)
        (client,) = MetaFiles(tmp_path).read("a")
        assert client.cursor == MOVED_TO

    def test_changed_settings_do_not_start_it(self, destinations_of):
        """A destination whose settings are replaced stays stopped."""
        makes = Makes()
        destinations = destinations_of(configs("a"), makes)
        destinations.start()
        destinations.stop("a")
        (config,) = configs("a")
        destinations.put(config)
        eventually(lambda: destinations.status()[0]["life"] == "stopped")
        assert makes.made[1].calls == []

    def test_it_ends_with_the_process(self, destinations_of):
        """A stopped one delays no shutdown."""
        destinations = destinations_of(configs("a"), Makes())
        destinations.start()
        destinations.stop("a")
        destinations.request_stop()
        assert destinations.join(Deadline(LONG))

    def test_unknown(self, destinations_of):
        """A destination that is not configured is named."""
        destinations = destinations_of(configs("a"), Makes())
        for action in (destinations.stop, destinations.resume):
            with pytest.raises(ClientError, match="can't find destination:b"):
                action("b")
