"""The other mirrors of a lake, and which tables there are theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.lake.lake_table import NOWHERE
from canal_server.mirror.state.state import States

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.mirror.lake.lake_table import LakeTable
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.mirror.state.state import TableState

FOLDER = "_mirror"  # of the lake; each mirror has one of its own below it


def owned_by_other(
    settings: MirrorSettings, table: MirrorTable, lake: LakeTable, copy_id: str
) -> str:
    """Return why a table of the lake cannot be replaced: another mirror writes it.

    Empty if none does. `copy_id` is the last copy of this mirror: if it is there, no
    other one is looked at. Raises LakeError.
    """
    owner = _owner_of(settings, table, lake, copy_id)
    if not owner:
        return ""
    return (
        f"{lake} is written by the mirror {owner}, which has the same lake: choose "
        "another folder (`to` of its rule), or, if that mirror is not used any more, "
        f"delete its folder {FOLDER}/{owner}"
    )


def _owner_of(
    settings: MirrorSettings, table: MirrorTable, lake: LakeTable, copy_id: str
) -> str:
    if not lake.exists() or (copy_id and lake.applied(copy_id) != NOWHERE):
        return ""
    for mirror, state in _states(settings, table):
        if (
            state.target == table.target
            and state.copy_id
            and lake.applied(state.copy_id) != NOWHERE
        ):
            return mirror
    return ""


def _states(
    settings: MirrorSettings, table: MirrorTable
) -> Iterator[tuple[str, TableState]]:
    """Yield the states of the other mirrors, those of the same name first."""
    folder = open_folder(settings.lake, FOLDER)
    others = {
        name: States(folder.below(name))
        for name in folder.folders()
        if name != settings.name
    }
    for mirror, states in others.items():
        if (state := states.read(table.source)) is not None:
            yield mirror, state
    for mirror, states in others.items():
        for state in states.read_all().values():
            yield mirror, state
