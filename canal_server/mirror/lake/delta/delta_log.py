"""What commits of a Delta table tell of the mirror: which copy, how far, a note.

All of it is in the same commit as the change that it tells of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from deltalake import CommitProperties, DeltaTable, Transaction

from canal_server.mirror.lake.lake_table import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMITS_MAX: Final = 10_000  # of others, behind which our note is looked for

_APP: Final = "canal-mirror/"  # of transactions in the Delta log, before the id
_COPY: Final = "canal-server mirror, copy "  # a description, before the id
_NOTE: Final = "canal"  # our part of a commit's own metadata


def description(copy_id: str) -> str:
    """Return what a table says about the copy that it is."""
    return _COPY + copy_id


def applied(delta: DeltaTable, copy_id: str) -> int:
    """Return the position number up to which changes are in.

    NOWHERE when the table is not this copy.
    """
    if delta.metadata().description != _COPY + copy_id:
        return NOWHERE
    version = delta.transaction_version(_APP + copy_id)
    return NOWHERE if version is None else version


def commit(copy_id: str, upto: int, note: Mapping[str, str]) -> CommitProperties:
    """Return what a commit tells besides the change."""
    told = {"copy": copy_id, "upto": upto, "note": dict(note)}
    return CommitProperties(
        custom_metadata={_NOTE: told},
        app_transactions=[Transaction(_APP + copy_id, upto)],
    )


def commit_alone(delta: DeltaTable, properties: CommitProperties) -> None:
    """Tell how far a table has come where nothing of it changes."""
    delta.create_write_transaction(
        [], "append", delta.schema(), commit_properties=properties
    )


def commit_of_upkeep(delta: DeltaTable) -> CommitProperties:
    """Return what a commit tells that changes no row: what the last one told.

    So it is found, also when the log does not reach back any more.
    """
    told = _newest(delta)
    return CommitProperties(custom_metadata={_NOTE: told} if told else None)


def place(delta: DeltaTable) -> tuple[int, dict[str, str]]:
    """Return the position number and the note of the newest change by a mirror."""
    told = _newest(delta)
    if told is not None:
        return int(told["upto"]), dict(told["note"])
    described = delta.metadata().description or ""
    if not described.startswith(_COPY):
        return NOWHERE, {}
    return applied(delta, described.removeprefix(_COPY)), {}


def _newest(delta: DeltaTable) -> dict[str, Any] | None:
    """Return what the newest commit of a mirror tells, in whatever others follow."""
    limit = 1
    while True:
        commits = delta.history(limit)
        for told in commits:
            if _NOTE in told:
                return dict(told[_NOTE])
        if len(commits) < limit or limit >= COMMITS_MAX:
            return None
        limit *= 10
