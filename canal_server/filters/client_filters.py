"""The filters of a destination's clients, and what they want all together.

Leaves out what a filter is (`filters`), and who lets through what is wanted.
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
    from canal_server.core.table_ids import Names
    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import TablePredicate

_log = logging.getLogger(__name__)

# Instructions of the different filters of one destination's clients together; some 100
# bytes each at most. One filter may have a twentieth of it (`filters.SIZE_MAX`).
SIZE_MAX: Final = 2_000_000


def client_filter(
    expression: str, config: FilterConfig, *, probe: bool = True
) -> TableFilter:
    """Make a client's own filter, within its limits. Raises ClientError."""
    if len(expression) > config.client_length_max:
        raise ClientError(
            f"filter {quoted(expression)}: it has {len(expression)} characters, the"
            f" limit is {config.client_length_max}"
            " (canal.instance.filter.client.length.max)"
        )
    try:
        return for_client(expression, config.regex, config.black_regex, probe=probe)
    except ValueError as error:
        raise ClientError(f"filter {quoted(expression)}: {error}") from error


class ClientFilters:
    """One filter for each client; thread-safe.

    `change` is told what some client wants; what is configured when there is none.
    Clients with the same expression share one filter. `check` does all that may take
    long, on the thread of the client that brings the filter and without any lock;
    `enter`, which others wait for, finds it done.
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
        # Of each client: its expression and what became of it.
        self._filters: dict[int, tuple[str, TableFilter]] = {}
        # How many clients have each of these filters.
        self._users: dict[TableFilter, int] = {}
        self._size = 0  # of them all
        self._refused: dict[int, str] = {}  # why, of clients with a stored filter
        self._union = FilterUnion([default])
        # By expression; as long as anybody has or prepares one.
        self._made: weakref.WeakValueDictionary[str, TableFilter] = (
            weakref.WeakValueDictionary()
        )
        # What filters that are not entered yet say of the tables that are known.
        self._judged: weakref.WeakKeyDictionary[TableFilter, dict[Names, bool]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    @property
    def table_filter(self) -> TablePredicate:
        """Return what is wanted now."""
        return self._union

    def check(self, expression: str) -> TableFilter:
        """Return a filter, ready to be entered as long as it is kept.

        Raises ClientError when it is not a regular expression, or too costly.
        """
        made = self._filter_of(expression, probe=True)
        judged = self._union.judged_by(made)
        with self._lock:
            self._check_room(made, expression)
            self._judged[made] = judged
        return made

    def enter(self, identity: ClientIdentity) -> TableFilter:
        """Return a client's filter, which counts from now on.

        It is the one that the client has when nothing changed: to know that spares the
        store to judge its entries anew. Raises ClientError; then the client is refused
        until it has another one.
        """
        try:
            # What was stored was probed when the client brought it.
            wanted = self._filter_of(identity.filter, probe=False)
            with self._lock:
                known = self._filters.get(identity.client_id)
                if known == (identity.filter, wanted):
                    return wanted
                self._check_room(wanted, identity.filter)
                self._refused.pop(identity.client_id, None)
                self._remove(identity.client_id)
                self._filters[identity.client_id] = (identity.filter, wanted)
                if not self._users.get(wanted):
                    self._size += wanted.size
                self._users[wanted] = self._users.get(wanted, 0) + 1
                self._report()
        except ClientError as error:
            with self._lock:
                self._refused[identity.client_id] = (
                    f"client {identity.client_id} of {self._destination} is refused:"
                    f" {error}; subscribe with another filter"
                )
            raise
        self._log_doubts(identity)
        return wanted

    def leave(self, identity: ClientIdentity) -> None:
        """Remove a client and its filter."""
        with self._lock:
            self._refused.pop(identity.client_id, None)
            if self._remove(identity.client_id):
                self._report()

    def clear(self) -> None:
        """Forget all of them, to be entered again; `change` is not called."""
        with self._lock:
            self._filters.clear()
            self._users.clear()
            self._refused.clear()
            self._size = 0
            self._union = FilterUnion([self._default])

    def why_refused(self, client_id: int) -> str:
        """Return why the filter of a client cannot be used, empty when it can."""
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
                f" {self._destination} together are too large (limit {SIZE_MAX},"
                f" {self._size} are in use, this one has {added.size}), simplify it or"
                " unsubscribe clients that are gone"
            )

    def _report(self) -> None:
        """Have the pump read by another union, if the filters are others."""
        assert self._lock.locked()
        filters = frozenset(self._users or [self._default])
        if filters != self._union.filters:
            judged = {each: self._judged.pop(each, {}) for each in filters}
            self._union = FilterUnion(filters, self._union, judged)
            self._change(self._union)

    def _filter_of(self, expression: str, *, probe: bool) -> TableFilter:
        """Return the filter of an expression, the same for all who have it."""
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
