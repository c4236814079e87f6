"""The checksum of events against zlib's."""

from __future__ import annotations

import random
import zlib

import pytest

from canal_server.core.crc32 import checksum, checksum_by_table


@pytest.mark.parametrize("compute", [checksum, checksum_by_table])
def test_agrees_with_zlib_for_every_length(compute):
    """All lengths of input give what zlib gives."""
    data = random.Random(1).randbytes(700)
    for length in range(len(data)):
        assert compute(data[:length]) == zlib.crc32(data[:length]), length


@pytest.mark.parametrize("compute", [checksum, checksum_by_table])
def test_goes_on_from_a_checksum(compute):
    """Data in two parts, split anywhere, has the checksum of the whole."""
    data = random.Random(2).randbytes(300)
    for cut in range(len(data)):
        assert compute(data[cut:], compute(data[:cut])) == zlib.crc32(data), cut


def test_does_not_depend_on_alignment():
    """The same bytes at any address have the same checksum."""
    data = random.Random(3).randbytes(1000)
    for shift in range(33):
        moved = memoryview(bytes(shift) + data)[shift:]
        assert checksum(moved) == zlib.crc32(data), shift


def test_long_input():
    """A megabyte, where folding by four does nearly all the work."""
    data = random.Random(4).randbytes(1 << 20)
    assert checksum(data) == zlib.crc32(data)
