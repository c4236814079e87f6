"""What a running mirror reports: its status, and a history for plots.

The status is one file that is rewritten at intervals; the history consists of JSON
lines in a few files, of which the oldest are deleted. A restart needs neither.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.mirror.lake.lake_storage import Folder

STATUS: Final = "status.json"
LINES_MAX: Final = 2_000  # per file
FILES_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch of the stream did, and the state of the mirror after it."""

    at_ms: int  # when it was done
    batch: int = -1  # its number
    rows: int = 0
    seconds: float = 0.0  # duration
    delay_ms: int = -1  # from the commit of its last change until it was done
    applied: int = -1  # the position number up to which changes are applied
    journal: str = ""
    position: int = 0
    tables: int = 0  # with changes
    epoch: int = 0  # of the position, with the GTID set executed there
    gtids: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The mirror as a whole, for `mirror status`."""

    name: str
    host: str
    pid: int
    started_at_ms: int
    updated_at_ms: int
    message: str = ""  # why it ended
    rows: int = 0  # applied since it was started
    rows_per_second: float = 0.0  # recent
    last: Batch | None = None
    failing: str = ""  # why the stream fails, until a batch succeeds
    failing_since_ms: int = 0
    spark: str = ""  # why jobs wait for executors
    caught_up: bool = False  # the last poll brought nothing new
    warnings: tuple[str, ...] = ()  # of lasting conditions, such as foreign keys
    metrics_port: int | None = None  # for Prometheus, of this process
    ended_at_ms: int | None = None  # 0: it runs, or was killed; None: not known

    def to_json(self) -> str:
        """Return the text of the file."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Status:
        """Parse the text of `to_json`; fields of later versions are ignored."""
        found = _known(cls, json.loads(text))
        if found.get("last") is not None:
            found["last"] = Batch(**_known(Batch, found["last"]))
        found["warnings"] = tuple(map(str, found.get("warnings", ())))
        return cls(**found)


def _known(kind: type, found: dict[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in found.items() if name in names}


def read_status(folder: Folder) -> Status | None:
    """Return the last stored status; None if there is no status file."""
    data = folder.read(STATUS)
    if data is None:
        return None
    try:
        return Status.from_json(data.decode())
    except (ValueError, TypeError):
        return None


def write_status(folder: Folder, status: Status) -> None:
    """Store a status. Raises LakeError."""
    folder.write(STATUS, status.to_json().encode())


class History:
    """Writes the history of a run; for one thread. Methods may raise LakeError."""

    def __init__(self, folder: Folder) -> None:
        """Set the mirror's own folder; files of earlier runs stay."""
        self._folder = folder.below("history")
        self._lines: list[str] = []
        self._unwritten = 0
        names = self._folder.names()
        self._number = 1 + max((_number(name) for name in names), default=0)

    def add(self, batch: Batch) -> None:
        """Add a batch; `flush` stores it."""
        if len(self._lines) >= LINES_MAX:
            self.flush()
            self._number += 1
            self._lines.clear()
        self._lines.append(json.dumps(asdict(batch)))
        self._unwritten += 1

    def flush(self) -> None:
        """Store the added batches, and delete files that are too old."""
        if not self._unwritten:
            return
        text = "".join(f"{line}\n" for line in self._lines)
        self._folder.write(f"{self._number:08}.jsonl", text.encode())
        self._unwritten = 0
        for name in self._folder.names()[:-FILES_MAX]:
            self._folder.delete(name)


def read_history(folder: Folder) -> Iterator[Batch]:
    """Yield the stored batches, oldest first; unreadable lines are left out."""
    history = folder.below("history")
    for name in history.names():
        for line in (history.read(name) or b"").splitlines():
            try:
                yield Batch(**_known(Batch, json.loads(line)))
            except (ValueError, TypeError):
                continue


def _number(name: str) -> int:
    stem = name.partition(".")[0]
    return int(stem) if stem.isdecimal() else 0
