"""The filters of the clients of a destination, and their union.

What a filter is: `table_filters`. Applying the filters is left to the callers.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import TYPE_CHECKING, Final

from canal_server.errors import ClientError
from canal_server.filters.filter_union import FilterUnion
from canal_server.filters.table_filters import (
    TableFilter,
    doubtful_pieces,
    for_client,
)
from canal_server.messages import filter_messages
from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import FilterConfig
    from canal_server.model.ddl_statement import FilteredNames
    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import TablePredicate

_log = logging.getLogger(__name__)

# Total instructions of the different filters of the clients of one destination, at most
# about 100 bytes each. One filter may have a twentieth of it
# (`table_filters.SIZE_MAX`).
SIZE_MAX: Final = 2_000_000


def client_filter(
    expression: str, config: FilterConfig, *, probe: bool = True, beside: bool = False
) -> TableFilter:
    """Return the filter of a client, within its limits. Raises ClientError.

    `beside`: see `TableFilter`.
    """
    if len(expression) > config.client_length_max:
        raise ClientError(
            f"filter {quoted(expression)}: {len(expression)} characters exceed the"
            f" limit of {config.client_length_max}"
            " (canal.instance.filter.client.length.max)"
        )
    try:
        return for_client(
            expression, config.regex, config.black_regex, probe=probe, beside=beside
        )
    except ValueError as error:
        raise ClientError(f"filter {quoted(expression)}: {error}") from error


class ClientFilters:
    """One filter for each client; thread-safe.

    `change` receives the union of the filters of all clients, or the configured filter
    if there are no clients. Clients with the same expression share one filter. `check`
    does the slow work on the thread of the client that sets the filter, without a lock;
    `enter`, which others wait for, reuses the result.
    """

    def __init__(
        self,
        destination: str,
        config: FilterConfig,
        default: TableFilter,
        change: Callable[[TablePredicate], None],
    ) -> None:
        self._destination = destination
        self._config = config
        self._default = default
        self._change = change
        # For each client: its expression and its filter.
        self._filters: dict[int, tuple[str, TableFilter]] = {}
        # For each filter: the number of clients that use it.
        self._users: dict[TableFilter, int] = {}
        self._size = 0  # of all filters
        self._refused: dict[
            int, str
        ] = {}  # reasons, for clients with an invalid stored filter
        self._union = FilterUnion([default])
        # By expression; kept while a client uses or prepares it.
        self._made: weakref.WeakValueDictionary[str, TableFilter] = (
            weakref.WeakValueDictionary()
        )
        # The verdicts of filters that are not entered yet on the known tables.
        self._judged: weakref.WeakKeyDictionary[
            TableFilter, dict[FilteredNames, bool]
        ] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    @property
    def table_filter(self) -> TablePredicate:
        """Return the predicate for the union of all filters."""
        return self._union

    def check(self, expression: str) -> TableFilter:
        """Return a filter, prepared to be entered while the caller holds it.

        Raises ClientError if it is not a regular expression, or too expensive.
        """
        made = self._filter_of(expression, probe=True)
        judged = self._union.judged_by(made)
        with self._lock:
            self._check_room(made, expression)
            self._judged[made] = judged
        return made

    def enter(self, identity: ClientIdentity) -> TableFilter:
        """Set the filter of a client and return it.

        Returns the object that the client already has if nothing changed, so that the
        store need not evaluate its entries again. Raises ClientError; the client is
        then refused until it sets another filter.
        """
        try:
            # A stored filter was probed when the client set it.
            table_filter = self._filter_of(identity.filter, probe=False)
            with self._lock:
                known = self._filters.get(identity.client_id)
                if known == (identity.filter, table_filter):
                    return table_filter
                self._check_room(table_filter, identity.filter)
                self._refused.pop(identity.client_id, None)
                self._remove(identity.client_id)
                self._filters[identity.client_id] = (identity.filter, table_filter)
                if not self._users.get(table_filter):
                    self._size += table_filter.size
                self._users[table_filter] = self._users.get(table_filter, 0) + 1
                self._report()
        except ClientError as error:
            with self._lock:
                self._refused[identity.client_id] = (
                    f"client {identity.client_id} of {self._destination} is refused:"
                    f" {error}; subscribe with another filter"
                )
            raise
        self._log_doubts(identity)
        return table_filter

    def leave(self, identity: ClientIdentity) -> None:
        """Remove a client and its filter."""
        with self._lock:
            self._refused.pop(identity.client_id, None)
            if self._remove(identity.client_id):
                self._report()

    def clear(self) -> None:
        """Remove all filters, to be entered again; `change` is not called."""
        with self._lock:
            self._filters.clear()
            self._users.clear()
            self._refused.clear()
            self._size = 0
            self._union = FilterUnion([self._default])

    def why_refused(self, client_id: int) -> str:
        """Return why the filter of a client cannot be used, or an empty string."""
        return self._refused.get(client_id, "") if self._refused else ""

    def _remove(self, client_id: int) -> bool:
        assert self._lock.locked()
        found = self._filters.pop(client_id, None)
        if found is None:
            return False
        left = self._users[found[1]] - 1
        self._users[found[1]] = left
        if not left:
            del self._users[found[1]]
            self._size -= found[1].size
        return True

    def _check_room(self, added: TableFilter, expression: str) -> None:
        assert self._lock.locked()
        if added not in self._users and self._size + added.size > SIZE_MAX:
            raise ClientError(
                f"filter {quoted(expression)}: the filters of all clients of"
                f" {self._destination} are too large (limit {SIZE_MAX}, in use"
                f" {self._size}, this filter {added.size}); simplify it or unsubscribe"
                " unused clients"
            )

    def _report(self) -> None:
        """Pass the new union to `change` if the set of filters changed."""
        assert self._lock.locked()
        filters = frozenset(self._users or [self._default])
        if filters != self._union.filters:
            judged = {each: self._judged.pop(each, {}) for each in filters}
            self._union = FilterUnion(filters, self._union, judged)
            self._change(self._union)

    def _filter_of(self, expression: str, *, probe: bool) -> TableFilter:
        """Return the filter of an expression, shared by all clients that use it."""
        with self._lock:
            made = self._made.get(expression)
        if made is not None:
            return made
        made = client_filter(expression, self._config, probe=probe)
        with self._lock:
            return self._made.setdefault(expression, made)

    def _log_doubts(self, identity: ClientIdentity) -> None:
        for hint in doubtful_pieces(identity.filter):
            filter_messages.CLIENT_FILTER_DOUBTFUL.log(
                _log, self._destination, identity.client_id, hint
            )
        if identity.filter not in ("", self._config.regex):
            _log.info(
                "destination %s: client %s uses its own filter instead of "
                "canal.instance.filter.regex",
                self._destination,
                identity.client_id,
            )
