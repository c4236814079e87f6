"""Batches as the rule of a user shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.users.redaction import Redaction
from canal_server.users.rights import ShownColumns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canal_server.users.rights import ReadRule


def redaction_of(rule: ReadRule) -> Redaction | None:
    """Return what removes what a rule does not show, None if it shows all.

    It is for one thread at a time.
    """
    if not rule.is_limited:
        return None
    shown = ShownColumns(rule)
    has_columns = bool(rule.columns or rule.removed or rule.masked)
    return Redaction(shown.shows, shown.column_rule if has_columns else None)


def redacted(redaction: Redaction, slices: Iterable[bytes | memoryview]) -> bytes:
    """Return the entries in `slices`, which hold whole ones, as they may be seen."""
    return redaction.apply(b"".join(slices))
