"""The results of checks, as texts."""

from __future__ import annotations

from canal_server.model.check_results import Outcome, fail, ok, skip, warn


def test_messages():
    """A message is what was found and, if there is one, the remedy."""
    assert ok("a", "it holds").message == "it holds"
    assert warn("a", "it is low", "raise it").message == "it is low; raise it"
    assert fail("a", "it is wrong").message == "it is wrong"
    found = skip("a", "it", "nobody knows").of("example")
    assert found.message == "cannot check it: nobody knows"
    assert (found.subject, found.outcome) == ("example", Outcome.SKIP)
