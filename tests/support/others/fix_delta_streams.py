"""Streams of Spark's own Delta connector, in a program that does as it is asked.

The connector is of the newest Delta, with the Spark that it is made for: both are
fetched, with CANAL_INTEROP=1. `tests/interop/delta` has the program.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from spark_connectors import spark_program, without_own_spark
from support_paths import TESTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

HERE = TESTS / "interop" / "delta"
SPARK = "pyspark==4.2.1"  # that Delta's connector in the pom is made for
BEFORE = ("delete", "update_preimage")


class DeltaStreams:
    """The program that reads streams."""

    def __init__(self, popen: subprocess.Popen[str], folder: Path) -> None:
        self._popen = popen
        self._folder = folder

    def read(self, path: Path, name: str, *, feed: bool) -> dict[str, Any]:
        """Read a stream to the end of its table; returns its rows and its error."""
        return self._ask(do="read", path=str(path), name=name, feed=feed)

    def start(self, path: Path, name: str, *, feed: bool) -> str:
        """Start a stream that goes on, from its checkpoint; returns an error."""
        asked = {"path": str(path), "name": name, "feed": feed}
        return str(self._ask(do="start", **asked)["error"])

    def settle(self, name: str) -> str:
        """Wait until a stream has all that its table has; returns why it ended."""
        return str(self._ask(do="settle", name=name)["error"])

    def stop(self, name: str) -> str:
        """End a stream; returns why it had ended before."""
        return str(self._ask(do="stop", name=name)["error"])

    def batches(self, name: str, after: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield the batches of a stream that goes on, with their numbers."""
        folder = self._folder / name / "rows"
        numbers = sorted(int(each.stem) for each in folder.glob("[0-9]*.json"))
        for number in numbers:
            if number > after:
                yield number, json.loads((folder / f"{number}.json").read_text())

    def _ask(self, **asked: object) -> dict[str, Any]:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write(json.dumps(asked) + "\n")
        self._popen.stdin.flush()
        answer: dict[str, Any] = json.loads(self._popen.stdout.readline())
        return answer


def in_order(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return changes of a feed in their order: of a commit, what was before first."""
    return sorted(changes, key=lambda row: (row["_commit_version"], not is_old(row)))


def is_old(change: Mapping[str, Any]) -> bool:
    """Return whether a change of a feed has the row as it was."""
    return change["_change_type"] in BEFORE


@pytest.fixture(scope="module")
def delta_streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaStreams]:
    """Give the program, in an environment of its own."""
    folder = tmp_path_factory.mktemp("delta")
    program = HERE / "delta_streams.py"
    command = spark_program(program, HERE / "pom.xml", SPARK, folder)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=without_own_spark(),
    ) as popen:
        yield DeltaStreams(popen, folder)
        popen.kill()
