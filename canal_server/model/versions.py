"""Numbers that order commits and events of a source: `_commit_version` and `_seq`.

    bits 56-62   epoch: grows when the source changes to a server with other binlogs
    bits 32-55   the number in the binlog file's name
    bits 0-31    the offset in the file

Offsets from 2 GiB on, which only the end of one huge transaction in a file can have,
are counted in steps of 64 bytes: no transaction is shorter, so that the versions of
commits stay distinct. Offsets up to 128 GiB have a version that way.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from canal_server.model.positions import binlog_file_number

EPOCH_MAX: Final = 127
FILE_NUMBER_MAX: Final = (1 << 24) - 1
EXACT_OFFSETS: Final = 1 << 31  # lower offsets are stored exactly
STEP_BYTES: Final = 64
OFFSET_MAX: Final = EXACT_OFFSETS + EXACT_OFFSETS * STEP_BYTES - 1


class VersionPosition(NamedTuple):
    """The position that a version stands for."""

    epoch: int
    file_number: int
    offset: int


def version(epoch: int, journal: str | int, offset: int) -> int:
    """Return the version of a position, given the file's name or its number.

    Raises ValueError, with the limit, for a position that has no version.
    """
    number = binlog_file_number(journal) if isinstance(journal, str) else journal
    for what, value, limit in (
        ("epoch", epoch, EPOCH_MAX),
        ("binlog file number", number, FILE_NUMBER_MAX),
        ("offset", offset, OFFSET_MAX),
    ):
        if not 0 <= value <= limit:
            raise ValueError(f"{what} {value} is out of range 0..{limit}")
    if offset >= EXACT_OFFSETS:
        offset = EXACT_OFFSETS + (offset - EXACT_OFFSETS) // STEP_BYTES
    return epoch << 56 | number << 32 | offset


def position_of_version(value: int) -> VersionPosition:
    """Return what `version` was given; exact for offsets below 2 GiB.

    From there on, the offset is rounded down to a multiple of 64 bytes above 2 GiB.
    """
    if not 0 <= value < 1 << 63:
        raise ValueError(f"{value} is not a version")
    offset = value & 0xFFFF_FFFF
    if offset >= EXACT_OFFSETS:
        offset = EXACT_OFFSETS + (offset - EXACT_OFFSETS) * STEP_BYTES
    return VersionPosition(value >> 56, value >> 32 & FILE_NUMBER_MAX, offset)
