"""The filters of a destination's clients, and what they want all together.

Leaves out what a filter is (`filters`), and who lets through what is wanted.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from canal_server.errors import ClientError
from canal_server.model.quoted import quoted
from canal_server.sink.filters import (
    TableFilter,
    doubtful_pieces,
    for_client,
    union,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import FilterConfig
    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import Accepts

_log = logging.getLogger(__name__)


class ClientFilters:
    """One filter for each client; thread-safe.

    `change` is told what some client wants; what is configured when there is none.
    """

    def __init__(
        self,
        destination: str,
        config: FilterConfig,
        default: TableFilter,
        change: Callable[[Accepts], None],
    ) -> None:
        self._destination = destination
        self._config = config
        self._default = default
        self._change = change
        # Of each client: its expression and what became of it.
        self._filters: dict[int, tuple[str, TableFilter]] = {}
        self._lock = threading.Lock()

    def check(self, expression: str) -> None:
        """Raise ClientError when a filter is not a regular expression."""
        self._made(expression)

    def enter(self, identity: ClientIdentity) -> TableFilter:
        """Return a client's filter, which counts from now on.

        It is the one that the client has when nothing changed: to know that spares the
        store to judge its entries anew. Raises ClientError.
        """
        wanted = self._filter_for(identity)
        with self._lock:
            if self._filters.get(identity.client_id) != (identity.filter, wanted):
                self._filters[identity.client_id] = (identity.filter, wanted)
                self._tell()
        return wanted

    def leave(self, identity: ClientIdentity) -> None:
        """Take a client's wishes back."""
        with self._lock:
            self._filters.pop(identity.client_id, None)
            self._tell()

    def clear(self) -> None:
        """Forget all of them, to be entered anew; nobody is told."""
        with self._lock:
            self._filters.clear()

    def _tell(self) -> None:
        assert self._lock.locked()
        filters = [wanted for _, wanted in self._filters.values()] or [self._default]
        self._change(union(filters))

    def _filter_for(self, identity: ClientIdentity) -> TableFilter:
        with self._lock:
            known = self._filters.get(identity.client_id)
        if known is not None and known[0] == identity.filter:
            return known[1]
        for hint in doubtful_pieces(identity.filter):
            _log.warning(
                "destination %s: filter of client %s: %s",
                self._destination,
                identity.client_id,
                hint,
            )
        if identity.filter not in ("", self._config.regex):
            _log.info(
                "destination %s: client %s uses its own filter instead of "
                "canal.instance.filter.regex",
                self._destination,
                identity.client_id,
            )
        return self._made(identity.filter)

    def _made(self, expression: str) -> TableFilter:
        try:
            return for_client(expression, self._config.regex, self._config.black_regex)
        except ValueError as error:
            raise ClientError(f"filter {quoted(expression)}: {error}") from error
