"""A thread that starts processes which cannot outlive this one."""

from __future__ import annotations

import queue
import subprocess
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from server_folders import Unavailable

if TYPE_CHECKING:
    from pathlib import Path

SPAWN_SECONDS_MAX = 30.0


class Spawner:
    """A thread that starts processes which end when this process does.

    Linux sends a child's parent-death signal when the *thread* that made it ends, so
    all are made by one thread that lives as long as the process.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[
            tuple[list[str], Path, Path, Future[subprocess.Popen[bytes]]]
        ] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def spawn(
        self, command: list[str], folder: Path, log: Path
    ) -> subprocess.Popen[bytes]:
        """Start a command in a folder, its output appended to a log."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="server-spawner", daemon=True
                )
                self._thread.start()
        made: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((command, folder, log, made))
        try:
            return made.result(timeout=SPAWN_SECONDS_MAX)
        except FileNotFoundError as error:
            raise Unavailable(f"{error.filename} is not on this machine") from error

    def _run(self) -> None:
        while True:
            command, folder, log, made = self._requests.get()
            try:
                with log.open("ab") as output:
                    made.set_result(
                        subprocess.Popen(
                            ["setpriv", "--pdeathsig", "KILL", *command],
                            cwd=folder,
                            stdin=subprocess.DEVNULL,
                            stdout=output,
                            stderr=output,
                            start_new_session=True,  # ^C is for us, not for it
                        )
                    )
            except OSError as error:
                made.set_exception(error)


SPAWNER = Spawner()
