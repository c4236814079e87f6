"""The content and the names of a destination's nodes in ZooKeeper.

The Java server reads a cursor or a mark only with the names of its own classes in it,
and the position of a pump only without them (`meta_file`). Leaves out ZooKeeper itself
(`zookeeper_meta`).
"""

from __future__ import annotations

import re
from typing import Any, Final

from canal_server.model.positions import (
    LogPosition,
    PositionRange,
    log_position_to_json,
)
from canal_server.model.znodes import destination_path
from canal_server.position.meta_file import abridged, compact

CLIENT_ID_MAX: Final = 2**15 - 1
BATCH_ID_DIGITS: Final = 10

_CLIENT_ID: Final = re.compile("0|[1-9][0-9]{0,4}")
_BATCH_ID: Final = re.compile("[0-9]{1,19}")
_CLASSES: Final = "com.alibaba.otter.canal.protocol.position."
_LOG_POSITION: Final = {"@type": f"{_CLASSES}LogPosition"}
_POSITION_RANGE: Final = {"@type": f"{_CLASSES}PositionRange"}


def client_path(destination: str, client_id: int) -> str:
    """Return the path of the node whose existence is a client's subscription."""
    return f"{destination_path(destination)}/{client_id}"


def client_id_of(name: str) -> int | None:
    """Return the client id that a destination's child node is named for, or None."""
    if not _CLIENT_ID.fullmatch(name) or int(name) > CLIENT_ID_MAX:
        return None
    return int(name)


def mark_name(batch_id: int) -> str:
    """Return the name of a batch's node."""
    return f"{batch_id:0{BATCH_ID_DIGITS}}"


def batch_id_of(name: str) -> int | None:
    """Return the batch id that a child of `mark` is named for, or None."""
    return int(name) if _BATCH_ID.fullmatch(name) else None


def encode_cursor(position: LogPosition) -> bytes:
    """Return the content of a cursor's node."""
    return compact(_to_json(position))


def encode_mark(positions: PositionRange) -> bytes:
    """Return the content of a batch's node."""
    fields: dict[str, Any] = dict(_POSITION_RANGE)
    if positions.ack is not None:
        fields["ack"] = _to_json(positions.ack)
    fields["end"] = _to_json(positions.end)
    fields["endSeq"] = positions.end_sequence
    fields["start"] = _to_json(positions.start)
    return compact(fields)


def _to_json(position: LogPosition) -> dict[str, Any]:
    return _LOG_POSITION | log_position_to_json(abridged(position))
