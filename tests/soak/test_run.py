"""A short run with real servers: it ends by itself, and finds what is put in."""

from __future__ import annotations

import pytest
from server_folders import Unavailable
from soak.checker import Follower
from soak.run import Run, RunOptions

SECONDS = 12.0
PER_SECOND = 20.0


def carried_out(folder, rng, seconds=SECONDS):
    """Carry out a run of clients of a MySQL, and return the result of it."""
    expected = RunOptions(
        rng.getrandbits(31),
        seconds,
        PER_SECOND,
        folder / "run",
        flavours=("mysql",),
        only=("kill a server", "rotate"),
    )
    try:
        with Run(expected) as run, run.sampler:
            for client in run.clients:
                client.start()
            with run.loads[0]:
                run.disturb()
            run.settle()
            run.compare()
            return run.result
    except Unavailable as error:
        pytest.skip(f"no servers: {error}")


@pytest.mark.slow
@pytest.mark.mysql
def test_nothing_is_lost(tmp_path, rng):
    """All that was written comes to all clients, though faults happen."""
    result = carried_out(tmp_path, rng)
    assert result.problems == [], "\n".join(result.problems)
    assert result.faults
    assert any("cluster client of mysql" in fact for fact in result.facts)


@pytest.mark.slow
@pytest.mark.mysql
def test_what_is_lost_is_found(tmp_path, rng, monkeypatch):
    """A transaction that the wire loses for one client is reported with its rows."""
    received = Follower.transaction
    lost: list[object] = []

    def transaction(self, rows):
        if not lost and len(self.order) > 20 and self.name.startswith("cluster"):
            lost.append(rows)
            return
        received(self, rows)

    monkeypatch.setattr(Follower, "transaction", transaction)
    result = carried_out(tmp_path, rng)
    assert lost
    text = "\n".join(result.problems)
    assert "did not" in text or "are missing" in text
    assert "cluster client of mysql" in text
