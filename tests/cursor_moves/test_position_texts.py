"""Positions, amounts of binlog and purged files as text."""

from __future__ import annotations

from canal_server.cursor_moves.position_texts import amount_text, purged_text, size_text
from canal_server.source.begin.source_lag import PurgedPart


def test_sizes():
    """Bytes are shown in units that people read."""
    assert [size_text(n) for n in (0, 1023, 1024, 1536, 5 << 20, 3 << 40)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 MiB",
        "3072.0 GiB",
    ]
    assert amount_text(1, 1024) == "1 transaction, 1.0 KiB"
    assert amount_text(2, None) == "2 transactions"
    assert amount_text(None, None) == "an unknown amount"


def test_what_is_purged():
    """The missing files are named, and the time in which they were written."""
    deleted = PurgedPart(
        "binlog.000003", "binlog.000005", 3, 1763719200000, 1763722800000, 12
    )
    shown = purged_text(deleted)
    assert "binlog.000003 to binlog.000005 (3 files) purged" in shown
    assert "from 2025-11-21T" in shown
    assert ", 12 transactions are no longer in the binlog" in shown
    shown = purged_text(PurgedPart("binlog.000003", "binlog.000003", 1, None, None))
    assert shown == "binlog.000003 purged: changes are no longer in the binlog"
