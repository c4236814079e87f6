"""The tables that a mirror knows, as its settings and its stored states say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.state.state import Phase, States

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.state import TableState


def known_tables(settings: MirrorSettings) -> dict[TableName, TableState]:
    """Return the states of all tables; the settings have the rule of each afterwards.

    Raises LakeError.
    """
    states = States(open_folder(settings.lake, settings.folder)).read_all()
    settings.note_tables((), targets_of(states))
    return states


def targets_of(states: Mapping[TableName, TableState]) -> dict[TableName, str]:
    """Return the folders of the tables that are mirrored."""
    return {
        name: state.target
        for name, state in states.items()
        if state.phase is not Phase.DROPPED
    }
