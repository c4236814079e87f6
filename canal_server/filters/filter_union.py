"""What several table filters accept together, for the thread that reads for all.

The pump asks for each table that it meets, again after every DDL, and nobody is served
while it waits. So what was found once is kept, another filter is asked about all tables
that are known by the thread that brings it, and the steps for one entry are limited for
all filters together: when they are used up the entry counts as accepted. That loses
nothing, as each client's own filter decides again before an entry is handed out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from canal_server.filters.matching import Steps, TooManyStepsError
from canal_server.messages import filter_messages
from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from canal_server.core.table_ids import Names
    from canal_server.filters.table_filters import TableFilter

    # What filters say of names.
    Verdicts = Mapping[TableFilter, Mapping[Names, bool]]

logger = logging.getLogger(__name__)

STEPS_MAX: Final = 50_000  # for one entry, of all filters together; some 50 ms
STEPS_PER_FILTER: Final = (
    100  # and for each filter, so that many simple ones have enough
)
STEPS_PER_PIECE: Final = 20
KNOWN_MAX: Final = 20_000  # entries' names of which the answer is kept
NAMES_MAX: Final = 16  # of an entry of which it is; few statements have more

# Who accepted an entry: a filter, nobody (None), or nobody knows.
_NOT_KNOWN: Final = object()


class FilterUnion:
    """Accepts what at least one of its filters does; for any thread.

    `before` is what counted so far, and `verdicts` what filters that were added to it
    say of the names in it.
    """

    def __init__(
        self,
        filters: Iterable[TableFilter],
        before: FilterUnion | None = None,
        verdicts: Verdicts | None = None,
    ) -> None:
        # The simplest first: most entries are accepted by one of these.
        self._filters = sorted(dict.fromkeys(filters), key=lambda f: f.size)
        self._steps_max = STEPS_MAX + sum(
            STEPS_PER_FILTER + STEPS_PER_PIECE * each.pieces for each in self._filters
        )
        self._known: dict[Names, object] = {}
        self._warned = False
        if before is not None:
            self._inherit(before, verdicts or {})

    def __call__(self, names: Names) -> bool:
        """Tell whether an entry with these table names is accepted; bounded in time."""
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
        """Return its filters."""
        return frozenset(self._filters)

    def judged_by(self, added: TableFilter) -> dict[Names, bool]:
        """Return what another filter says of the names that were rejected so far.

        May take long: for the thread that brings the filter, without a lock.
        """
        if added in self._filters:
            return {}
        rejected = [n for n, found in self._known.copy().items() if found is None]
        return {names: added.accepts(names) for names in rejected}

    def _find(self, names: Names) -> object:
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
            return steps  # stands for whoever would accept it
        return None

    def _inherit(self, before: FilterUnion, verdicts: Verdicts) -> None:
        """Keep the answers that hold still."""
        here, there = set(self._filters), set(before._filters)
        added = [each for each in self._filters if each not in there]
        for names, found in before._known.copy().items():
            if found in here:
                self._known[names] = found
            elif found is None:
                # Those of before that are left reject it still.
                said = {each: verdicts.get(each, {}).get(names) for each in added}
                accepting = next((each for each in added if said[each]), None)
                if accepting or None not in said.values():
                    self._known[names] = accepting
