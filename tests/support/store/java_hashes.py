"""The hashes by which the original finds partitions."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Return Java's hash of a string."""
    units = text.encode("utf-16-be")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


def partition_of(hashed: int, partitions: int) -> int:
    """Return a row's partition: the remainder of Java has the sign of the number."""
    value = hashed if hashed == -(1 << 31) else abs(hashed)
    return abs(value) % partitions
