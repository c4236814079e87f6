"""A stream of a lake's table that goes on beside a mirror, and the rows that it gives.

::

    stream = TableStream(delta_streams, path, feed=True)
    stream.start()
    ...
    assert stream.settle() == ""
    assert stream.rows == ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fix_delta_streams import in_order, is_old

if TYPE_CHECKING:
    from pathlib import Path

    from fix_delta_streams import DeltaStreams

Row = dict[str, str | None]


class TableStream:
    """One stream with its checkpoint: of a table, or of its change feed."""

    def __init__(self, streams: DeltaStreams, path: Path, *, feed: bool) -> None:
        """Take the table's folder; nothing is read yet."""
        self.table = path.name
        self.path = path
        self.feed = feed
        self.rows: dict[int, Row] = {}  # by their ids: as of the last change
        self.checkpoints = 0
        self.interruptions: list[str] = []  # errors after which it went on
        self._streams = streams
        self._batch = -1
        self._runs = False
        self.start_anew()

    def __str__(self) -> str:
        return self._name

    def start_anew(self) -> None:
        """Forget the checkpoint, and the rows, from the next start on."""
        kind = "feed" if self.feed else "plain"
        self.checkpoints += 1
        self._name = f"{self.path.parent.name}-{self.table}-{kind}-{self.checkpoints}"
        self._batch = -1
        self.rows = {}

    def start(self) -> str:
        """Start it, from its checkpoint; returns why it does not start."""
        error = self._streams.start(self.path, self._name, feed=self.feed)
        self._runs = not error
        return error

    def stop(self) -> None:
        """End it, if it has not ended itself."""
        if self._runs:
            self._streams.stop(self._name)
            self._runs = False

    def settle(self) -> str:
        """Wait for all that the table has; returns why the stream has ended for good.

        One that ended is started again from its checkpoint, once.
        """
        error = self._streams.settle(self._name) if self._runs else self.start()
        if error:
            self.interruptions.append(error)
            self.stop()
            error = self.start()
        error = error or self._streams.settle(self._name)
        if error:
            self.stop()
        for number, rows in self._streams.batches(self._name, self._batch):
            self._batch = number
            self._take(rows)
        return error

    def _take(self, rows: list[dict[str, Any]]) -> None:
        if not self.feed:
            for row in sorted(rows, key=lambda row: (row["_seq"], row["_row"])):
                self.rows[row["id"]] = _own(row)
            return
        for change in in_order(rows):
            if is_old(change):
                del self.rows[change["id"]]
            else:
                assert change["id"] not in self.rows, change
                self.rows[change["id"]] = _own(change)


def _own(row: dict[str, Any]) -> Row:
    """Return the columns of the source."""
    return {n: as_text(v) for n, v in row.items() if not n.startswith("_")}


def as_text(value: object) -> str | None:
    """Return a value in a form that JSON leaves as it is."""
    return None if value is None else str(value)
