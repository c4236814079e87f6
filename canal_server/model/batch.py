"""The result of one get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.model.positions import EntryPosition


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries in the order of the store, waiting for an ack.

    `slices` hold the entries as repeated field 2 of `Messages` (`0x12`, length,
    bytes), end to end over all slices. `count` and `size` count entries and bytes.
    `ack` is the last entry in the batch from which a client may resume, if any. In a
    group, `source_positions` maps the number of each source to the transaction boundary
    from which the client resumes there after this batch. `is_open`: the last entry is
    in a transaction that goes on after it. `begins_anew`: the first entry is in none
    that was open before it. `is_broken`: a transaction in it was not ended, as when the
    source was replaced in its middle.
    """

    first_sequence: int
    last_sequence: int
    slices: tuple[memoryview, ...]
    count: int
    size: int
    start: EntryPosition
    end: EntryPosition
    ack: EntryPosition | None
    source_positions: Mapping[int, EntryPosition] = field(default_factory=dict)
    is_open: bool = False
    begins_anew: bool = False
    is_broken: bool = False
