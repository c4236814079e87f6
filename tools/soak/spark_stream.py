"""A Spark stream of all destinations as a process, and the checkers of its sink.

The sink takes each micro-batch once, so nothing may come again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from server_spawner import SPAWNER
from stream_sink import StreamSink

from soak.checker import Follower, Row
from soak.reader import statement_number

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from soak.ledger import Ledger
    from soak.sources import Source

LOOK_S = 1.0
STOP_S = 60.0
# Spark gives a Python worker ten seconds to start, and fifteen to fetch what was
# collected, which no setting changes: a process that is paused, or a machine with much
# else to do, needs longer.
BUSY = (
    "Python worker failed to connect back",
    "cannot access local variable 'sockfile'",  # pyspark's, for want of the other side
)
BUSY_MAX = 10  # times that it is started again for that
CHANGES = ("INSERT", "UPDATE", "DELETE")
NEW = (
    "SELECT rowid, version, name, sql, body FROM received"
    " WHERE destination = ? AND rowid > ? ORDER BY batch, seq, row"
)
TOOLS = Path(__file__).parents[1]


class SparkStream:
    """The process, which can be ended and started again, and the result of it."""

    def __init__(
        self,
        folder: Path,
        ports: Sequence[int],
        sources: Sequence[Source],
        ledgers: Sequence[Ledger],
    ) -> None:
        self.error: BaseException | None = None
        self.busy = 0  # how often it ended as its machine had too much to do
        self.followers = {
            source.flavour: Follower(
                ledger,
                f"Spark stream of {source.flavour}",
                lambda _: True,
                statements=True,
                again=False,
                ordered=False,
            )
            for source, ledger in zip(sources, ledgers, strict=True)
        }
        self._schemas = {source.flavour: source.schema for source in sources}
        self._reached = dict.fromkeys(self.followers, 0)
        self._folder = folder
        folder.mkdir()
        self._sink = StreamSink(folder / "sink.db")
        self._process: subprocess.Popen[bytes] | None = None
        self._job = folder / "job.json"
        self._log_begin = 0  # of the process that runs
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        options = {
            "servers": servers,
            "destination": ",".join(self.followers),
            "subscription": "soak",
            "startingPosition": "earliest",
        }
        self._job.write_text(json.dumps({"folder": str(folder), "options": options}))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def pid(self) -> int | None:
        """The process while it runs."""
        return self._process.pid if self._process else None

    def launch(self) -> None:
        """Start it; the first time also what checks the sink."""
        environ = [
            f"PYTHONPATH={TOOLS}",
            f"PYSPARK_PYTHON={sys.executable}",
            "SPARK_LOCAL_IP=127.0.0.1",
        ]
        command = [sys.executable, "-P", "-m", "soak.spark_job", str(self._job)]
        log = self._folder / "spark.log"
        if log.exists():
            self._log_begin = len(log.read_text(errors="replace"))
        self._process = SPAWNER.spawn(["env", *environ, *command], self._folder, log)
        if not self._thread.ident:
            self._thread.start()

    def kill(self) -> None:
        """End it and all that it started."""
        process, self._process = self._process, None
        if process is not None:
            # It leads a session of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> int:
        """End it as a user does who ends the job."""
        self.kill()
        return 0

    def ended(self) -> int | None:
        """Return the exit status of a process that ended without being asked to.

        One that ended because its machine was too busy is started again.
        """
        status = self._process.poll() if self._process else None
        if (
            status
            and self.busy < BUSY_MAX
            and any(each in self.log_end() for each in BUSY)
        ):
            self.busy += 1
            self.kill()
            self.launch()
            return None
        return status

    def log_end(self) -> str:
        """Return the last lines of its log, without the plan of the query."""
        text = (self._folder / "spark.log").read_text(errors="replace")
        lines = text[self._log_begin :].partition("\nLogical Plan:")[0].splitlines()
        return "\n".join(lines[-24:])

    def close(self) -> None:
        """End all."""
        self._stop.set()
        self.kill()
        if self._thread.ident:
            self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK_S):
                for destination in self.followers:
                    self._look(destination)
        except BaseException as error:  # noqa: BLE001  # shown by the verdict
            self.error = error

    def _look(self, destination: str) -> None:
        """Take what is new in the sink; batches are there as a whole or not at all."""
        with closing(self._sink.connect()) as db:
            rows = db.execute(NEW, (destination, self._reached[destination])).fetchall()
        for _, group in groupby(rows, key=lambda row: row[1]):
            self._take(destination, list(group))
        self._reached[destination] = max(
            (row[0] for row in rows), default=self._reached[destination]
        )

    def _take(self, destination: str, rows: list[tuple[Any, ...]]) -> None:
        """Take what has one version: a transaction, or a statement on tables."""
        follower = self.followers[destination]
        changes = []
        for _, _, name, sql, body in rows:
            table = f"{self._schemas[destination]}.{name}"
            if sql:
                number = statement_number(follower, sql, table)
                if number is not None:
                    follower.statement(number)
                continue
            kind, before, after = json.loads(body)
            if kind in CHANGES:
                changes.append(Row(table, kind, before, after))
        follower.transaction(changes)
