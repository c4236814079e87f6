"""What a stream delivered into a sink, compared with what a writer wrote.

The writer is a `ledger.Writer`, the sink a file (`stream_sink`).
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import Change
from stream_sink import StreamSink

if TYPE_CHECKING:
    from ledger import Writer


@dataclass(frozen=True)
class SinkRow:
    """What one row of a generic stream says: a change, or a statement."""

    table: str
    sql: str  # of a statement, else empty
    change: Change


class Sink(StreamSink):
    """A sink that can say whether it has what was written."""

    def rows(self, destination: str) -> list[SinkRow]:
        """Return the result of a destination, in the total order."""
        with closing(self.connect()) as db:
            found = db.execute(
                "SELECT name, sql, body FROM received WHERE destination = ?"
                " ORDER BY seq, row",
                (destination,),
            )
            return [
                SinkRow(name, sql, Change(*json.loads(body)))
                for name, sql, body in found
            ]

    def check(self, writer: Writer, destination: str = "example") -> None:
        """Fail unless exactly what was written arrived, in that order."""
        received = [each.change for each in self.rows(destination) if not each.sql]
        expected = [change for changes in writer.transactions for change in changes]
        assert len(received) == len(expected), (
            f"{len(received)} rows of {len(expected)} arrived"
        )
        for number, (one, other) in enumerate(zip(received, expected, strict=True)):
            assert one == other, f"row {number} is {one} instead of {other}"
        with closing(self.connect()) as db:
            found = db.execute(
                "SELECT version FROM received WHERE destination = ? AND sql = ''"
                " ORDER BY seq, row",
                (destination,),
            )
            versions = [version for (version,) in found]
        assert versions == sorted(versions), "transactions are not in their order"
        assert len(set(versions)) == len(writer.transactions)


def expected_rows(writer: Writer) -> int:
    """Return how many rows a writer wrote."""
    return sum(map(len, writer.transactions))
