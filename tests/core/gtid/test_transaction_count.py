"""How many transactions are between two sets of GTIDs."""

from __future__ import annotations

import pytest

from canal_server.core.gtid.transaction_count import transactions_between

ONE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TWO = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        (f"{ONE}:1-5", f"{ONE}:1-5", 0),
        (f"{ONE}:1-5", f"{ONE}:1-9", 4),
        (f"{ONE}:1-5", f"{ONE}:1-9,{TWO}:1-3:7", 8),
        (f"{ONE}:1-5", f"{ONE}:1-5:tag:1-2", 2),
        (f"{ONE}:1-9", f"{ONE}:1-5", 0),
        ("0-1-100", "0-1-120,1-1-3", 23),
        ("0-1-100", "0-2-101", 1),
        ("0-1-100", "0-1-90", 0),
    ],
)
def test_counts(earlier, later, expected):
    """Single numbers, ranges, tags, several servers and domains are counted."""
    assert transactions_between(earlier, later) == expected


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("", f"{ONE}:1"),
        (f"{ONE}:1", ""),
        ("0-1-1", f"{ONE}:1"),
        (f"{ONE}:1", "0-1-1"),
        ("nonsense", "0-1-1"),
        (f"{ONE}:!", f"{ONE}:1"),
    ],
)
def test_unknown(earlier, later):
    """A set that is missing, damaged or of another kind of server has no count."""
    assert transactions_between(earlier, later) is None
