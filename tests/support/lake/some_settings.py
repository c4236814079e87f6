"""Settings of mirrors, of which a test names what matters to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fix_pipeline import DESTINATION
from fix_source_access import access_of

from canal_server.mirror.settings.mirror_settings import (
    CanalSettings,
    LakeSettings,
    MirrorSettings,
    SourceSettings,
)
from canal_server.mysql.source_settings import Access, Address, Credentials

if TYPE_CHECKING:
    from pathlib import Path

    from fix_pipeline import Pipeline

NO_SERVER = SourceSettings(
    access=Access(address=Address("h", 1), credentials=Credentials("u", "p"))
)


def settings_of(lake: LakeSettings | Path | str, **others: Any) -> MirrorSettings:
    """Return the settings of a mirror with this lake, which reads no server.

    `others`: what is to be different.
    """
    if not isinstance(lake, LakeSettings):
        lake = LakeSettings(path=str(lake))
    given: dict[str, Any] = {
        "name": "m",
        "canal": CanalSettings(destination="d"),
        "source": NO_SERVER,
        "lake": lake,
        "tables": (),
    }
    return MirrorSettings(**given | others)


def settings_for(
    pipeline: Pipeline, lake: LakeSettings | Path | str, **others: Any
) -> MirrorSettings:
    """Return the settings of a mirror of what a pipeline reads."""
    servers = f"127.0.0.1:{pipeline.server_port}"
    given: dict[str, Any] = {
        "canal": CanalSettings(destination=DESTINATION, servers=servers),
        "source": SourceSettings(access=access_of(pipeline.source)),
    }
    return settings_of(lake, **given | others)
