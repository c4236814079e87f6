"""The filters of the clients of a destination, and their union."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from canal_server.config.schema import FilterConfig
from canal_server.errors import ClientError
from canal_server.filters import client_filters
from canal_server.filters.client_filters import ClientFilters
from canal_server.filters.table_filters import TableFilter
from canal_server.model.identity import ClientIdentity

if TYPE_CHECKING:
    from canal_server.ports import TablePredicate

TABLES = (("a", "t"), ("b", "t"), ("c", "t"), ("black", "t"))


class Filtered:
    """Filters of clients, and which tables they currently select."""

    def __init__(self) -> None:
        config = FilterConfig(regex=r"a\..*,c\..*", black_regex=r"black\..*")
        self.table_filter: TablePredicate | None = None
        self.changes = 0
        default = TableFilter(config.regex, config.black_regex)
        self.filters = ClientFilters("example", config, default, self._change)

    def _change(self, table_filter: TablePredicate) -> None:
        self.table_filter = table_filter
        self.changes += 1

    def selected(self) -> list[str]:
        """Return the tables that are let through."""
        table_filter = self.table_filter
        assert table_filter
        return [".".join(name) for name in TABLES if table_filter((name,))]


def client(expression: str, client_id: int = 1001) -> ClientIdentity:
    """Return a client with a filter."""
    return ClientIdentity("example", client_id, expression)


@pytest.fixture
def filtered() -> Filtered:
    """Give the filters of no clients."""
    return Filtered()


def test_union(filtered: Filtered) -> None:
    """A table that one client selects passes, unless it is on the deny list."""
    filtered.filters.enter(client(r"b\..*", 1))
    assert filtered.selected() == ["b.t"]
    filtered.filters.enter(client(r"c\..*,black\..*", 2))
    assert filtered.selected() == ["b.t", "c.t"]
    filtered.filters.leave(client("", 1))
    assert filtered.selected() == ["c.t"]


def test_without_clients(filtered: Filtered) -> None:
    """Then what is configured counts, as for a client without a filter."""
    filtered.filters.enter(client(r"b\..*", 1))
    filtered.filters.leave(client("", 1))
    assert filtered.selected() == ["a.t", "c.t"]
    filtered.filters.enter(client(""))
    assert filtered.selected() == ["a.t", "c.t"]


def test_same_filter_again(filtered: Filtered) -> None:
    """Entering again with the same filter keeps it, with another replaces it."""
    before = filtered.filters.enter(client(r"a\..*"))
    assert filtered.filters.enter(client(r"a\..*")) is before
    assert filtered.changes == 1
    assert filtered.filters.enter(client(r"b\..*")) is not before
    assert filtered.changes == 2


def test_cleared(filtered: Filtered) -> None:
    """Afterwards each client is entered again, and the union is reported."""
    filtered.filters.enter(client(r"b\..*"))
    filtered.filters.clear()
    assert filtered.changes == 1
    filtered.filters.enter(client(r"b\..*"))
    assert filtered.changes == 2
    assert filtered.selected() == ["b.t"]


def test_no_expression(filtered: Filtered) -> None:
    """A broken filter is refused and changes nothing."""
    for ask in (
        lambda: filtered.filters.check("("),
        lambda: filtered.filters.enter(client("(")),
    ):
        with pytest.raises(ClientError, match=r"filter '\('"):
            ask()
    assert filtered.changes == 0


def test_shared(filtered: Filtered) -> None:
    """Clients with one expression share its filter, and the pump is notified once."""
    first = filtered.filters.enter(client(r"a\..*", 1))
    assert filtered.filters.enter(client(r"a\..*", 2)) is first
    assert filtered.changes == 1
    filtered.filters.leave(client("", 1))
    assert filtered.changes == 1
    assert filtered.selected() == ["a.t"]


def test_ready_filter(filtered: Filtered) -> None:
    """A checked filter is entered unchanged: nothing is slow any more."""
    ready = filtered.filters.check(r"b\..*")
    assert filtered.filters.enter(client(r"b\..*")) is ready


def test_length(filtered: Filtered) -> None:
    """A filter of a client has a limit of length, which the message names."""
    with pytest.raises(
        ClientError,
        match=r"65537 characters exceed the limit of 65536 \(canal\.instance\.",
    ):
        filtered.filters.check("a" * 65_537)


def test_all_together(filtered: Filtered, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all filters have together is limited; who leaves makes room."""
    monkeypatch.setattr(client_filters, "SIZE_MAX", 2_000)
    for number in (1, 2):
        filtered.filters.enter(client(f"(a|b){{160}}{number}", number))
    with pytest.raises(ClientError, match=r"are too large \(limit 2000"):
        filtered.filters.check("(a|b){160}3")
    with pytest.raises(ClientError, match="are too large"):
        filtered.filters.enter(client("(a|b){160}3", 3))
    assert "are too large" in filtered.filters.why_refused(3)
    assert not filtered.filters.why_refused(1)
    filtered.filters.enter(client("(a|b){160}1", 4))
    filtered.filters.leave(client("", 2))
    filtered.filters.enter(client("(a|b){160}3", 3))
    assert not filtered.filters.why_refused(3)


def test_own_filters_are_reported(
    filtered: Filtered, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says that a client has its own filter, and what is doubtful in it."""
    with caplog.at_level(logging.INFO):
        filtered.filters.enter(client(""))
        filtered.filters.enter(client(r"a\..*,c\..*"))
        assert caplog.messages == []
        filtered.filters.enter(client(r"b\\..*"))
    assert "uses its own filter instead" in caplog.text
    assert "requires a backslash in a name" in caplog.text
