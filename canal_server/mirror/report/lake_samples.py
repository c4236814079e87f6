"""What metrics need of the lake, read at intervals: sizes of tables, verify results.

On a thread of its own, which reads the lake as any other reader does: it delays neither
the stream nor a request for metrics.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError
from canal_server.messages.mirror import mirror_run_messages
from canal_server.mirror.settings.selected_tables import mirror_table
from canal_server.mirror.state.lake_tables import open_table
from canal_server.mirror.state.state import Phase
from canal_server.mirror.state.verify_results import VerifyResults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.mirror.lake.lake_table import LakeTable, Size
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.state import TableState
    from canal_server.mirror.state.verify_results import VerifyResult
    from canal_server.runtime.lifecycle import Deadline, Stop

log = logging.getLogger(__name__)

TURN_S: Final = 1.0  # how often it is checked whether there is a new copy
EVERY_S: Final = 60.0  # otherwise
SHARE: Final = 10  # looking uses at most this part of the time
PUBLISHED: Final = (Phase.CATCHING_UP, Phase.FOLLOWING, Phase.STOPPED)


class LakeSamples:
    """A stage with a thread that reads the lake; its results are for other threads."""

    def __init__(
        self,
        settings: MirrorSettings,
        folder: Folder,
        states: Callable[[], Mapping[TableName, TableState]],
        stop: Stop,
    ) -> None:
        """`states` returns the tables as they are now."""
        self._settings = settings
        self._results = VerifyResults(folder)
        self._states = states
        self._stop = stop
        # By the copy and its settings: what is opened reads only newer commits again.
        self._opened: dict[TableName, tuple[tuple[str, str, str], LakeTable]] = {}
        self._sizes: Mapping[TableName, Size] = {}
        self._verified: Mapping[TableName, VerifyResult] = {}
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    @property
    def sizes(self) -> Mapping[TableName, Size]:
        """The sizes of tables; those that could not be read are left out."""
        return self._sizes

    @property
    def verified(self) -> Mapping[TableName, VerifyResult]:
        """The last results of `mirror verify`."""
        return self._verified

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, deadline: Deadline) -> bool:
        """Wait until the thread has ended, after a stop was requested."""
        self._thread.join(deadline.remaining_s())
        return not self._thread.is_alive()

    def look(self) -> None:
        """Read everything once."""
        states = self._published()
        for name in self._opened.keys() - states.keys():
            del self._opened[name]
        sizes = {}
        for name, state in states.items():
            if self._stop.requested():
                return
            size = self._size(state)
            if size is not None:
                sizes[name] = size
        self._sizes = sizes
        try:
            self._verified = self._results.read_all()
        except CanalError as error:
            log.info("results of verify cannot be read for metrics: %s", error)

    def _published(self) -> dict[TableName, TableState]:
        return {
            name: state
            for name, state in self._states().items()
            if state.phase in PUBLISHED and state.copy_id
        }

    def _size(self, state: TableState) -> Size | None:
        key = (state.copy_id, state.target, state.plan)
        opened = self._opened.get(state.source)
        try:
            if opened is None or opened[0] != key:
                table = mirror_table(
                    state.source, state.columns, self._settings, state.target
                )
                opened = key, open_table(self._settings, table)
                self._opened[state.source] = opened
            return opened[1].size()
        except CanalError as error:
            log.info("%s: its size cannot be read for metrics: %s", state.source, error)
            return None

    def _run(self) -> None:
        due_s, known = 0.0, None
        while not self._stop.wait(TURN_S):
            began = time.monotonic()
            copies = {name: each.copy_id for name, each in self._published().items()}
            if copies == known and began < due_s:
                continue
            try:
                self.look()
            except Exception:  # noqa: BLE001  # the outermost frame of this thread
                mirror_run_messages.MIRROR_METRICS_FAILED.log(log, exc_info=True)
            known, now = copies, time.monotonic()
            due_s = now + max(EVERY_S, SHARE * (now - began))
