"""Offsets of a stream: where it stands in each destination, as Spark stores it.

Spark compares offsets as JSON text, so there is one text for each: keys are sorted,
and nothing is in it but the places. Leaves out how places are found (`stream`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from canal_server.client.range_client import RangePosition
from canal_server.errors import PositionError
from canal_server.model.versions import version

if TYPE_CHECKING:
    from collections.abc import Mapping

FORM: Final = 1  # of the JSON


def version_of(position: RangePosition) -> int:
    """Return the number by which positions of one destination are compared."""
    return version(position.epoch, position.journal, position.position)


def offset_to_json(places: Mapping[str, RangePosition]) -> dict[str, Any]:
    """Return the object that Spark stores; equal places give equal texts.

    `e` is the epoch, `j` the binlog file, `p` the offset in it, `s` their version, and
    `g` the GTID set that was executed there, if the server told it.
    """
    return {"d": {name: _told(places[name]) for name in sorted(places)}, "v": FORM}


def _told(place: RangePosition) -> dict[str, Any]:
    told: dict[str, Any] = {"e": place.epoch}
    if place.gtids:
        told["g"] = place.gtids
    return told | {
        "j": place.journal,
        "p": place.position,
        "s": version_of(place),
    }


def offset_from_json(value: Mapping[str, Any]) -> dict[str, RangePosition]:
    """Read what `offset_to_json` gave. Raises PositionError for anything else."""
    if value.get("v") != FORM:
        raise PositionError(
            f"the checkpoint has an offset of form {value.get('v')!r}, "
            f"this source knows {FORM}; use the version that wrote it, "
            "or begin with a new checkpoint"
        )
    try:
        return {
            str(name): RangePosition(
                int(place["e"]),
                str(place["j"]),
                int(place["p"]),
                gtids=str(place.get("g", "")),
            )
            for name, place in value["d"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PositionError(
            f"the checkpoint has an offset that this source did not write "
            f"({error!r}): {str(value)[:300]}"
        ) from error
