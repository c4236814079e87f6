"""Logs of changes end to end: copy, stream, kills; each change is there once."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from typing import TYPE_CHECKING, Self

import pytest
from change_logs import changes, changes_by_file, folded
from fix_random import longer

if TYPE_CHECKING:
    import random

    from fix_mirror_process import MirrorProcess

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]

KEYS = 40
ROUNDS = longer(1)


class Writer:
    """Writes single rows into two tables, alike; each value is written once."""

    def __init__(self, mirror: MirrorProcess, rng: random.Random) -> None:
        self._mirror = mirror
        self._rng = rng
        self._serial = itertools.count(1)
        self._keys: set[int] = set()
        self._stop = threading.Event()
        self._error: Exception | None = None
        self.deletes = 0
        self.written: list[int] = []  # values, in their order

    def write(self, count: int) -> None:
        """Insert, update, delete and change keys."""
        for _ in range(count):
            key, other = (self._rng.randrange(KEYS) for _ in range(2))
            value = next(self._serial)
            if key not in self._keys:
                self.each(f"INSERT INTO {{}} (id, v) VALUES ({key}, {value})")
                self._keys.add(key)
            elif self._rng.random() < 0.2:
                self.each(f"DELETE FROM {{}} WHERE id = {key}")
                self._keys.remove(key)
                self.deletes += 1
                continue
            elif other not in self._keys and self._rng.random() < 0.2:
                self.each(f"UPDATE {{}} SET id = {other}, v = {value} WHERE id = {key}")
                self._keys.remove(key)
                self._keys.add(other)
                self.deletes += 1  # a key that changes is a delete and an insert
            else:
                self.each(f"UPDATE {{}} SET v = {value} WHERE id = {key}")
            self.written.append(value)

    def forget(self) -> None:
        """Record that the tables were emptied."""
        self._keys.clear()

    def each(self, sql: str) -> None:
        """Run a statement for each table, whose name replaces `{}`."""
        schema = self._mirror.pipeline.schema
        self._mirror.source.execute(
            *(sql.format(f"{schema}.{name}") for name in ("p", "j"))
        )

    def __enter__(self) -> Self:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.02):
                self.write(1)
        except Exception as error:  # noqa: BLE001  # shown by the test's own thread
            self._error = error


def check_once(mirror: MirrorProcess, table: str, writer: Writer) -> None:
    """Check that each change since the copy began is there once, at its position."""
    streamed = [
        c for c, file in changes_by_file(mirror, table) if file.startswith("changes-")
    ]
    positions = Counter((c["_seq"], c["_row"], c["_change_type"]) for c in streamed)
    assert max(positions.values()) == 1, positions.most_common(3)
    values = Counter(c["v"] for c in streamed if c["_change_type"] != "delete")
    twice = {value: count for value, count in values.items() if count > 1}
    assert not twice
    first = min(values)
    assert [v for v in writer.written if v >= first and v not in values] == []


@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 runs it")
def test_each_change_once(mirror, rng) -> None:
    """Parquet and JSON logs have all changes despite kills; folded they are the table.

    With the mirror killed while it copies and while it follows; an added column; an
    emptied table; a DDL that leads to another copy; verify reports that it is a log.
    """
    schema = mirror.pipeline.schema
    mirror.settings["tables"] = [
        {"match": rf"{schema}\.p", "format": "parquet"},
        {"match": rf"{schema}\.j", "format": "json"},
    ]
    mirror.source.execute(
        *(
            f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY, v INT)"
            for name in ("p", "j")
        )
    )
    writer = Writer(mirror, rng)
    writer.write(50)

    def agreed() -> bool:
        return all(folded(mirror, n) == mirror.truth(n, "id") for n in ("p", "j"))

    with writer:
        mirror.start(wait=False)
        mirror.wait_for(lambda: mirror.phase_of("p")[0] == "copying", "a copy")
        mirror.kill()
        for _ in range(ROUNDS):
            mirror.start()
            mirror.wait_for(lambda: mirror.phase_of("j")[0] == "following", "following")
            since = len(writer.written) + 60
            mirror.wait_for(lambda n=since: len(writer.written) > n, "writing")
            mirror.kill()
    mirror.start()
    mirror.wait_for(agreed, "the end")
    for name in ("p", "j"):
        check_once(mirror, name, writer)

    writer.each("ALTER TABLE {} ADD COLUMN w INT")
    writer.write(20)
    mirror.wait_for(agreed, "a new column")
    writer.each("TRUNCATE TABLE {}")
    writer.forget()
    writer.write(20)
    mirror.wait_for(agreed, "emptied")
    assert any(c["_change_type"] == "truncate" for c in changes(mirror, "p"))

    before = changes(mirror, "j")
    writer.each("ALTER TABLE {} MODIFY v SMALLINT UNSIGNED")
    writer.write(20)
    mirror.wait_for(agreed, "a new copy")
    assert changes(mirror, "j")[: len(before)] == before
    done = mirror.command("verify")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "is a log of changes, not a copy" in done.stdout
    mirror.stop()
