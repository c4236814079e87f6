"""The binlog position up to which the followed tables were fed.

Each batch stores it in the lake before Spark records the batch as done. So a stream can
start where no table misses anything, even if Spark's checkpoint or the server's
subscription is lost. Leaves out how a stream starts (`stream_start`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import LakeError, PositionError
from canal_server.mirror.state.xa import PreparedXa, Seqs, listed, seqs_of
from canal_server.spark.options.offsets import (
    offset_from_json,
    offset_to_json,
    version_of,
)

if TYPE_CHECKING:
    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.lake.lake_storage import Folder

FILE: Final = "stream.json"
FORM: Final = 1  # of the JSON


@dataclass(frozen=True, slots=True)
class Feed:
    """The state of a stream: every followed table has all changes before `position`.

    `query` and `batch` are Spark's names of the last batch; `source` is the database at
    that time. `xa` has the transactions that may still be rolled back; `moved` has the
    tables whose rows a statement on another table added or removed, with the last
    position of this: a copy that began before it must be made again.
    """

    destination: str
    position: RangePosition
    generation: int = 0  # how often the stream was restarted from scratch
    source: str = ""
    query: str = ""
    batch: int = -1
    xa: PreparedXa = field(default_factory=PreparedXa)
    moved: Seqs = field(default_factory=dict)

    def follows_on(self, query: str, batch: int, start: RangePosition) -> bool:
        """Check whether a batch that starts at a position leaves no gap.

        It leaves none if it is Spark's next batch, or starts before this position. In
        another server's binlog, the executed GTID set decides that.
        """
        if query == self.query and batch <= self.batch + 1:
            return True
        if start.epoch <= self.position.epoch:
            return version_of(start) <= version_of(self.position)
        return has_all(self.position.gtids, start.gtids)

    def is_in_another(self, end: RangePosition) -> bool:
        """Check whether a batch that ends at a position is of another binlog.

        The server counts epochs, and restarts them when its data are lost. In a binlog
        of MySQL, a later position has all GTIDs of an earlier one. In one of MariaDB,
        it has the last GTID of each domain, which may be an older one.
        """
        position = self.position
        if end.epoch != position.epoch or version_of(end) < version_of(position):
            return False
        is_known = ":" in end.gtids and ":" in position.gtids
        return is_known and not has_all(end.gtids, position.gtids)

    def to_json(self) -> str:
        """Return the text of the file."""
        fields = {
            "form": FORM,
            "generation": self.generation,
            "at": offset_to_json({self.destination: self.position}),
            "source": self.source,
            "query": self.query,
            "batch": self.batch,
            "xa": self.xa.to_json(),
            "moved": listed(self.moved),
        }
        return json.dumps(fields, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Feed:
        """Parse the text of `to_json`. Raises ValueError, KeyError, TypeError."""
        found: dict[str, Any] = json.loads(text)
        if found["form"] != FORM:
            raise ValueError(f"form {found['form']} is not supported, only {FORM}")
        ((destination, position),) = offset_from_json(found["at"]).items()
        return cls(
            destination,
            position,
            int(found["generation"]),
            str(found["source"]),
            str(found["query"]),
            int(found["batch"]),
            PreparedXa.from_json(found["xa"]) if "xa" in found else PreparedXa(),
            seqs_of(found.get("moved", ())),
        )


def read_feed(folder: Folder, generation: int) -> Feed | None:
    """Return the stream's state; None if it was never started. Raises LakeError."""
    data = folder.read(FILE)
    if data is None:
        return None
    try:
        feed = Feed.from_json(data.decode())
    except (ValueError, KeyError, TypeError, PositionError) as error:
        raise LakeError(
            f"{folder}/{FILE} is not a valid state ({error!r}): restore an earlier "
            "file, or copy all tables again: `canal-server mirror copy --all`"
        ) from error
    return feed if feed.generation == generation else None


def write_feed(folder: Folder, feed: Feed) -> None:
    """Store the stream's state. Raises LakeError."""
    folder.write(FILE, feed.to_json().encode())


def has_all(gtids: str, other: str) -> bool:
    """Check whether a GTID set, which must be known, contains another one."""
    if not (gtids and other):
        return False
    # MariaDB's GTIDs have no colon.
    kind: Any = GtidSet if ":" in gtids else MariaGtidSet
    try:
        return bool(kind.parse(gtids).contains(kind.parse(other)))
    except ValueError:
        return False
