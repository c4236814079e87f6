"""Memory, threads, descriptors and delay of each part, every few seconds, in a file."""

from __future__ import annotations

import csv
import os
import re
import threading
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KIB = 1024
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Sample:
    """What a part has at a time: a process with all that descend from it, or a delay.

    Memory is what is resident and not shared; `lag_s` of a client or a stream.
    """

    second: float
    part: str
    memory_mib: float = 0.0
    threads: int = 0
    descriptors: int = 0
    lag_s: float = 0.0


class Sampler:
    """A thread that looks again and again; a context manager.

    `pids` gives the process of each part that runs, `lags` the delays.
    """

    def __init__(
        self,
        file: Path,
        every_s: float,
        pids: Callable[[], Mapping[str, int | None]],
        lags: Callable[[], Mapping[str, float]],
    ) -> None:
        self.samples: list[Sample] = []
        self.began_s = time.monotonic()
        self._file, self._every_s = file, every_s
        self._pids, self._lags = pids, lags
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def look(self) -> list[Sample]:
        """Return what all parts have now."""
        second = round(time.monotonic() - self.began_s, 1)
        trees = _children()
        found = []
        for part, pid in self._pids().items():
            if pid is not None and (sample := sample_of(second, part, pid, trees)):
                found.append(sample)
        lags = self._lags().items()
        return found + [Sample(second, part, lag_s=round(lag, 2)) for part, lag in lags]

    def _run(self) -> None:
        with self._file.open("w", newline="") as file:
            writer = csv.DictWriter(file, [each.name for each in fields(Sample)])
            writer.writeheader()
            while True:
                samples = self.look()
                self.samples += samples
                writer.writerows(map(asdict, samples))
                file.flush()
                if self._stop.wait(self._every_s):
                    return


def sample_of(
    second: float, part: str, pid: int, children: Mapping[int, list[int]]
) -> Sample | None:
    """Return what a process and its descendants have; None when it has ended."""
    memory = threads = descriptors = count = 0
    left = [pid]
    while left:
        each = left.pop()
        left += children.get(each, [])
        folder = Path(f"/proc/{each}")
        try:
            resident, shared = map(int, (folder / "statm").read_text().split()[1:3])
            found = re.search(r"Threads:\s+(\d+)", (folder / "status").read_text())
            descriptors += len(list((folder / "fd").iterdir()))
        except OSError:
            continue  # it has ended
        memory += (resident - shared) * PAGE
        threads += int(found[1]) if found else 0
        count += 1
    mib = round(memory / KIB / KIB, 1)
    return Sample(second, part, mib, threads, descriptors) if count else None


def read_samples(file: Path) -> list[Sample]:
    """Read a file that a sampler wrote."""
    with file.open(newline="") as opened:
        return [
            Sample(
                float(row["second"]),
                row["part"],
                float(row["memory_mib"]),
                int(row["threads"]),
                int(row["descriptors"]),
                float(row["lag_s"]),
            )
            for row in csv.DictReader(opened)
        ]


@dataclass(frozen=True, slots=True)
class Limit:
    """What a part may have at most."""

    part: str  # how its name begins
    memory_mib: float
    threads: int
    descriptors: int


def excesses(samples: Sequence[Sample], limits: Sequence[Limit]) -> list[str]:
    """Return one sentence for each part that had more than it may have."""
    found: dict[tuple[str, str], tuple[float, float, float]] = {}
    for sample in samples:
        for limit in limits:
            if not sample.part.startswith(limit.part):
                continue
            for name in ("memory_mib", "threads", "descriptors"):
                has, most = getattr(sample, name), getattr(limit, name)
                known = found.get((sample.part, name), (most, 0.0, 0.0))
                if has > known[0]:
                    found[sample.part, name] = (has, most, sample.second)
    return [
        f"{part} had {has:g} {name} at second {second:g}, more than {most:g}"
        for (part, name), (has, most, second) in found.items()
    ]


def _children() -> dict[int, list[int]]:
    """Return the children of each process."""
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has ended
        # The name, which may hold anything, stands in brackets in front of these.
        parent = int(text.rpartition(")")[2].split()[1])
        found.setdefault(parent, []).append(int(folder.name))
    return found
