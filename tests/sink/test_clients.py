"""The filters of a destination's clients, and what they want all together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from canal_server.config.schema import FilterConfig
from canal_server.errors import ClientError
from canal_server.model.identity import ClientIdentity
from canal_server.sink.clients import ClientFilters
from canal_server.sink.filters import TableFilter

if TYPE_CHECKING:
    from canal_server.ports import Accepts

TABLES = (("a", "t"), ("b", "t"), ("c", "t"), ("black", "t"))


class Filtered:
    """Filters of clients, and which tables are wanted by them now."""

    def __init__(self) -> None:
        config = FilterConfig(regex=r"a\..*,c\..*", black_regex=r"black\..*")
        self.accepts: Accepts | None = None
        self.changes = 0
        default = TableFilter(config.regex, config.black_regex)
        self.filters = ClientFilters("example", config, default, self._change)

    def _change(self, accepts: Accepts) -> None:
        self.accepts = accepts
        self.changes += 1

    def wanted(self) -> list[str]:
        """Return the tables that are let through."""
        accepts = self.accepts
        assert accepts
        return [".".join(name) for name in TABLES if accepts((name,))]


def client(expression: str, client_id: int = 1001) -> ClientIdentity:
    """Return a client with a filter."""
    return ClientIdentity("example", client_id, expression)


@pytest.fixture
def filtered() -> Filtered:
    """Give the filters of nobody."""
    return Filtered()


def test_union(filtered: Filtered) -> None:
    """What one client wants is let through, but never what is on the black list."""
    filtered.filters.enter(client(r"b\..*", 1))
    assert filtered.wanted() == ["b.t"]
    filtered.filters.enter(client(r"c\..*,black\..*", 2))
    assert filtered.wanted() == ["b.t", "c.t"]
    filtered.filters.leave(client("", 1))
    assert filtered.wanted() == ["c.t"]


def test_without_clients(filtered: Filtered) -> None:
    """Then what is configured counts, as for a client without a filter."""
    filtered.filters.enter(client(r"b\..*", 1))
    filtered.filters.leave(client("", 1))
    assert filtered.wanted() == ["a.t", "c.t"]
    filtered.filters.enter(client(""))
    assert filtered.wanted() == ["a.t", "c.t"]


def test_same_filter_again(filtered: Filtered) -> None:
    """Entering again with the same filter keeps it, with another replaces it."""
    before = filtered.filters.enter(client(r"a\..*"))
    assert filtered.filters.enter(client(r"a\..*")) is before
    assert filtered.changes == 1
    assert filtered.filters.enter(client(r"b\..*")) is not before
    assert filtered.changes == 2


def test_cleared(filtered: Filtered) -> None:
    """After that each filter is a new one."""
    before = filtered.filters.enter(client(r"a\..*"))
    filtered.filters.clear()
    assert filtered.filters.enter(client(r"a\..*")) is not before


def test_no_expression(filtered: Filtered) -> None:
    """A broken filter is refused and changes nothing."""
    for ask in (
        lambda: filtered.filters.check("("),
        lambda: filtered.filters.enter(client("(")),
    ):
        with pytest.raises(ClientError, match=r"filter '\('"):
            ask()
    assert filtered.changes == 0


def test_own_filters_are_told(
    filtered: Filtered, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says that a client has its own filter, and what is doubtful in it."""
    with caplog.at_level(logging.INFO):
        filtered.filters.enter(client(""))
        filtered.filters.enter(client(r"a\..*,c\..*"))
        assert caplog.messages == []
        filtered.filters.enter(client(r"b\\..*"))
    assert "uses its own filter instead" in caplog.text
    assert "wants a backslash in a name" in caplog.text
