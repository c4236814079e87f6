"""Up to which place of the binlog the tables that are followed were fed.

Each batch leaves that in the lake before Spark takes it for done. So it is known,
whatever becomes of Spark's checkpoint and of the server's subscription, where a stream
has to begin so that no table misses anything. Leaves out how one begins (`beginning`).
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
    """Where a stream is: every table that follows it has all before `place`.

    `query` and `batch` are Spark's names for what came last, `source` is the database
    that was asked then. `xa` are the transactions that may be rolled back yet, `moved`
    the tables whose rows came or went with a statement on another one, and where the
    last of these is: a copy that began before has to be made again.
    """

    destination: str
    place: RangePosition
    generation: int = 0  # how often the stream was begun anew
    source: str = ""
    query: str = ""
    batch: int = -1
    xa: PreparedXa = field(default_factory=PreparedXa)
    moved: Seqs = field(default_factory=dict)

    def follows_on(self, query: str, batch: int, start: RangePosition) -> bool:
        """Tell whether a batch that begins at a place leaves nothing out.

        It does not if it is Spark's next one, or begins before this. A place in the
        binlog of another server is told by the set that was executed there.
        """
        if query == self.query and batch <= self.batch + 1:
            return True
        if start.epoch <= self.place.epoch:
            return version_of(start) <= version_of(self.place)
        return has_all(self.place.gtids, start.gtids)

    def is_in_another(self, end: RangePosition) -> bool:
        """Tell whether a batch that ends at a place is of another binlog than this.

        Epochs are the server's to count, and it begins anew when its data are lost. A
        binlog of MySQL has everything at a later place that was executed at an earlier
        one. One of MariaDB has the last of each domain, which may be an older one.
        """
        place = self.place
        if end.epoch != place.epoch or version_of(end) < version_of(place):
            return False
        is_known = ":" in end.gtids and ":" in place.gtids
        return is_known and not has_all(end.gtids, place.gtids)

    def to_json(self) -> str:
        """Return the text of the file."""
        told = {
            "form": FORM,
            "generation": self.generation,
            "at": offset_to_json({self.destination: self.place}),
            "source": self.source,
            "query": self.query,
            "batch": self.batch,
            "xa": self.xa.to_json(),
            "moved": listed(self.moved),
        }
        return json.dumps(told, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Feed:
        """Read what `to_json` gave. Raises ValueError, KeyError, TypeError else."""
        found: dict[str, Any] = json.loads(text)
        if found["form"] != FORM:
            raise ValueError(
                f"it is of form {found['form']}, this version knows {FORM}"
            )
        ((destination, place),) = offset_from_json(found["at"]).items()
        return cls(
            destination,
            place,
            int(found["generation"]),
            str(found["source"]),
            str(found["query"]),
            int(found["batch"]),
            PreparedXa.from_json(found["xa"]) if "xa" in found else PreparedXa(),
            seqs_of(found.get("moved", ())),
        )


def read_feed(folder: Folder, generation: int) -> Feed | None:
    """Return where the stream is, None when it was never begun. Raises LakeError."""
    data = folder.read(FILE)
    if data is None:
        return None
    try:
        feed = Feed.from_json(data.decode())
    except (ValueError, KeyError, TypeError, PositionError) as error:
        raise LakeError(
            f"{folder}/{FILE} is not what a mirror writes ({error!r}): put the file of "
            "before there, or have all tables copied anew: `canal-server mirror copy "
            "--all`"
        ) from error
    return feed if feed.generation == generation else None


def write_feed(folder: Folder, feed: Feed) -> None:
    """Store where the stream is. Raises LakeError."""
    folder.write(FILE, feed.to_json().encode())


def has_all(gtids: str, other: str) -> bool:
    """Tell whether a set, which has to be known, has all of another one."""
    if not (gtids and other):
        return False
    # Those of MariaDB have no colon.
    kind: Any = GtidSet if ":" in gtids else MariaGtidSet
    try:
        return bool(kind.parse(gtids).contains(kind.parse(other)))
    except ValueError:
        return False
