"""Offsets of a stream: its position in each destination, in the form Spark stores.

Spark compares offsets as JSON text, so each has only one text: keys are sorted, and it
contains only the positions. Finding positions is left to `driver`.
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
    """Return the number by which positions of one destination are ordered."""
    return version(position.epoch, position.journal, position.position)


def offset_to_json(positions: Mapping[str, RangePosition]) -> dict[str, Any]:
    """Return the JSON object that Spark stores; equal positions give equal texts.

    `e` is the epoch, `j` the binlog file, `p` the offset in it, `s` their version, and
    `g` the GTID set that was executed there, if the server reported it.
    """
    return {
        "d": {name: _as_json(positions[name]) for name in sorted(positions)},
        "v": FORM,
    }


def _as_json(position: RangePosition) -> dict[str, Any]:
    fields: dict[str, Any] = {"e": position.epoch}
    if position.gtids:
        fields["g"] = position.gtids
    return fields | {
        "j": position.journal,
        "p": position.position,
        "s": version_of(position),
    }


def offset_from_json(value: Mapping[str, Any]) -> dict[str, RangePosition]:
    """Parse the result of `offset_to_json`. Raises PositionError for anything else."""
    if value.get("v") != FORM:
        raise PositionError(
            f"the checkpoint has an offset of unsupported form {value.get('v')!r}, "
            f"this source supports {FORM}; use the version that wrote it, or start "
            "with a new checkpoint"
        )
    try:
        return {
            str(name): RangePosition(
                int(position["e"]),
                str(position["j"]),
                int(position["p"]),
                gtids=str(position.get("g", "")),
            )
            for name, position in value["d"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PositionError(
            f"the checkpoint has an invalid offset ({error!r}): {str(value)[:300]}"
        ) from error
