"""What the audit has of a tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from canal_server.web import tail_sums
from canal_server.web.tail_sums import TailSums

if TYPE_CHECKING:
    from canal_server.client.change_reader import Change


class Sent(NamedTuple):
    """A change as far as sums ask for it."""

    position: tuple[str, int]
    end_position: tuple[str, int]
    before: dict[str, str] | None = None
    after: dict[str, str] | None = None


def sent(offset: int, **rows: dict[str, str]) -> Change:
    """Return a change at an offset."""
    return cast("Change", Sent(("f", offset), ("f", offset + 10), **rows))


def test_a_tail(monkeypatch):
    """It has a beginning, what was shown every five minutes, and an end."""
    notes: list[tuple[str, dict[str, object]]] = []
    sums = TailSums(lambda event, **more: notes.append((event, more)))
    sums.add(sent(100, after={"a": "1"}))
    sums.add(sent(200, before={"a": "1"}, after={"a": "2"}))
    sums.look()
    assert notes == [("tail", {})]
    monkeypatch.setattr(tail_sums, "SUM_S", 0.0)
    sums.look()
    sums.look()
    sums.add(sent(300))  # a statement
    sums.end()
    assert notes[1:] == [
        ("tail_read", {"from": "f:100", "to": "f:210", "rows": 2}),
        ("tail_end", {"from": "f:300", "to": "f:310", "rows": 0}),
    ]


def test_a_tail_that_shows_nothing():
    """It has an end as well."""
    notes: list[tuple[str, dict[str, object]]] = []
    sums = TailSums(lambda event, **more: notes.append((event, more)))
    sums.look()
    sums.end()
    assert notes[1:] == [("tail_end", {"from": None, "to": None, "rows": 0})]
