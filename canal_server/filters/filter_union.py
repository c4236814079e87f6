"""The union of several table filters, for the thread that reads for all clients.

The pump asks for each table that it encounters, again after every DDL, and all clients
wait for it. Therefore answers are cached, a new filter is evaluated for all known
tables by the thread that adds it, and the steps for one entry are limited across all
filters. If the limit is exceeded, the entry counts as accepted. This loses nothing,
because the filter of each client decides again before an entry is delivered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from canal_server.filters.matching import Steps, TooManyStepsError
from canal_server.messages import filter_messages
from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from canal_server.filters.table_filters import TableFilter
    from canal_server.model.ddl_statement import FilteredNames

    # The answers of a filter by names.
    Verdicts = Mapping[TableFilter, Mapping[FilteredNames, bool]]

logger = logging.getLogger(__name__)

STEPS_MAX: Final = 50_000  # for one entry, across all filters; about 50 ms
STEPS_PER_FILTER: Final = (
    100  # in addition for each filter, so that many simple ones suffice
)
STEPS_PER_PIECE: Final = 20
KNOWN_MAX: Final = 20_000  # names of entries with a cached answer
NAMES_MAX: Final = 16  # names per cached entry; few statements have more

# The filter that accepted an entry; None for no filter; or unknown.
_NOT_KNOWN: Final = object()


class FilterUnion:
    """Accepts what at least one of its filters accepts; for any thread.

    `before` is the previous union, and `verdicts` are the answers of the filters that
    were added to it for its names.
    """

    def __init__(
        self,
        filters: Iterable[TableFilter],
        before: FilterUnion | None = None,
        verdicts: Verdicts | None = None,
    ) -> None:
        # The simplest first: they accept most entries.
        self._filters = sorted(dict.fromkeys(filters), key=lambda f: f.size)
        self._steps_max = STEPS_MAX + sum(
            STEPS_PER_FILTER + STEPS_PER_PIECE * each.pieces for each in self._filters
        )
        self._known: dict[FilteredNames, object] = {}
        self._warned = False
        if before is not None:
            self._inherit(before, verdicts or {})

    def __call__(self, names: FilteredNames) -> bool:
        """Return whether an entry with these names is accepted, in bounded time."""
        if not names:
            return True
        known = self._known.get(names, _NOT_KNOWN)
        if known is not _NOT_KNOWN:
            return known is not None
        found = self._find(names)
        if len(names) <= NAMES_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known = {}
            self._known[names] = found
        return found is not None

    @property
    def filters(self) -> frozenset[TableFilter]:
        """Return the filters."""
        return frozenset(self._filters)

    def judged_by(self, added: TableFilter) -> dict[FilteredNames, bool]:
        """Return the answers of another filter for the names rejected so far.

        May be slow: call it on the thread that adds the filter, without a lock.
        """
        if added in self._filters:
            return {}
        rejected = [n for n, found in self._known.copy().items() if found is None]
        return {names: added.accepts(names) for names in rejected}

    def _find(self, names: FilteredNames) -> object:
        steps = Steps(self._steps_max)
        try:
            for each in self._filters:
                if each.accepts_within(names, steps):
                    return each
        except TooManyStepsError:
            if not self._warned:
                self._warned = True
                filter_messages.FILTERS_TOO_COSTLY.log(
                    logger,
                    self._steps_max,
                    quoted(".".join(str(part) for part in names[0])),
                )
            return steps  # stands for an unknown filter that accepts it
        return None

    def _inherit(self, before: FilterUnion, verdicts: Verdicts) -> None:
        """Keep the answers that are still valid."""
        here, there = set(self._filters), set(before._filters)
        added = [each for each in self._filters if each not in there]
        for names, found in before._known.copy().items():
            if found in here:
                self._known[names] = found
            elif found is None:
                # The remaining filters of `before` still reject it.
                said = {each: verdicts.get(each, {}).get(names) for each in added}
                accepting = next((each for each in added if said[each]), None)
                if accepting or None not in said.values():
                    self._known[names] = accepting
