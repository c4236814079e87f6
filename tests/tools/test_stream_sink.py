"""The sink of the soak and of Spark's tests: what counts as the same micro-batch."""

from __future__ import annotations

import pytest
from stream_sink import StreamSink

BATCH = 7


class Frame:
    """Rows as a micro-batch hands them over."""

    def __init__(self, *rows: tuple[str, int, int, str]) -> None:
        self.rows = rows

    def select(self, *_: str) -> Frame:
        """Return all of it."""
        return self

    def collect(self) -> list[dict[str, object]]:
        """Return the rows: destination, version, sequence, value."""
        return [
            {
                "destination": destination,
                "_commit_version": version,
                "_seq": sequence,
                "_row": 0,
                "table": "t",
                "is_ddl": False,
                "sql": None,
                "op": "INSERT",
                "before": None,
                "after": {"a": value},
            }
            for destination, version, sequence, value in self.rows
        ]


FIRST = (("a", 10, 8, "1"), ("a", 10, 9, "2"), ("a", 20, 19, "3"), ("b", 5, 4, "4"))


@pytest.mark.parametrize(
    "again",
    [
        FIRST,
        # Read from another server, which has the same transactions elsewhere.
        (("a", 30, 21, "1"), ("a", 30, 29, "2"), ("a", 90, 80, "3"), FIRST[3]),
        # Which changed rows of a table without a key in an order of its own.
        (("a", 30, 21, "2"), ("a", 30, 29, "1"), ("a", 90, 80, "3"), FIRST[3]),
    ],
    ids=["same positions", "other server", "its order"],
)
def test_same(tmp_path, again):
    """A batch that comes again with the same transactions is taken once."""
    sink = StreamSink(tmp_path / "sink.db")
    sink.apply(Frame(*FIRST), BATCH)
    sink.apply(Frame(*again), BATCH)
    assert sink.repeated() == [BATCH]
    assert sink.batches() == [len(FIRST)]


@pytest.mark.parametrize(
    "again",
    [
        FIRST[1:],
        (*FIRST, ("b", 6, 5, "5")),
        (("a", 10, 8, "1"), ("a", 10, 9, "2"), ("a", 20, 19, "other"), FIRST[3]),
        # Another order on the same server.
        (("a", 10, 8, "2"), ("a", 10, 9, "1"), FIRST[2], FIRST[3]),
        # Smaller numbers, another transaction, another order of transactions.
        (("a", 3, 1, "1"), ("a", 3, 2, "2"), ("a", 4, 3, "3"), FIRST[3]),
        (("a", 30, 21, "1"), ("a", 31, 29, "2"), ("a", 90, 80, "3"), FIRST[3]),
        (("a", 30, 21, "3"), ("a", 90, 79, "1"), ("a", 90, 80, "2"), FIRST[3]),
    ],
    ids=["fewer", "more", "value", "rows", "earlier", "transactions", "order"],
)
def test_other(tmp_path, again):
    """A batch that comes again with anything else is an error."""
    sink = StreamSink(tmp_path / "sink.db")
    sink.apply(Frame(*FIRST), BATCH)
    with pytest.raises(AssertionError, match="is not what it was"):
        sink.apply(Frame(*again), BATCH)
