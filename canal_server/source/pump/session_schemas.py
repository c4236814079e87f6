"""The tables' columns for a session: from the history, or as the server has them now.

The history is opened by the first session that needs it, and anew when its store
failed. Leaves out how it is searched and completed (`history`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.mysql.cached_columns import CachedColumns
from canal_server.source.read.ddl_scan import DdlScanner
from canal_server.source.schema.history_schemas import HistorySchemas
from canal_server.tablemeta.storage.open_storage import warn_of_java_history

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.positions import EntryPosition, LogPosition
    from canal_server.mysql.control_connection import ControlConnection
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.source_settings import Access
    from canal_server.ports import TableSchemas
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.begin.session_start import SessionStart
    from canal_server.source.read.start_position import Place
    from canal_server.tablemeta.history.tsdb import Steady, TableMetaTsdb

    SchemasOf = Callable[[ControlConnection, ServerInfo, Place], TableSchemas]


class SessionSchemas:
    """Gives each session its images; for the pump's thread, but for `steady`."""

    def __init__(
        self,
        config: InstanceConfig,
        history: TableMetaTsdb | None,
        images_of: SchemasOf | None,
    ) -> None:
        """Take a history, None for columns as of now; `images_of` comes before both."""
        self._config = config
        self._history = history
        self._is_open = False
        self._images_of = images_of
        self._images: TableSchemas | None = None  # of this session

    @property
    def steady(self) -> Steady | None:
        """Return since where the history has changed nothing; None without one."""
        return None if self._history is None else self._history.steady

    def open(self) -> None:
        """Open the history unless it is. Raises TableMetaStoreError."""
        if self._history is None or self._is_open:
            return
        if not self._history.init(self._config.destination):
            warn_of_java_history(self._config)
        self._is_open = True

    def close(self) -> None:
        """Close the history; `open` opens it anew."""
        if self._history is not None:
            self._history.close()
            self._is_open = False

    def sources(self) -> list[str]:
        """Return what tells the servers whose statements the history has, in order."""
        segments = self._history.segments() if self._history else ()
        return [each.source for each in segments]

    def begin(
        self,
        place: Place,
        control: ControlConnection,
        info: ServerInfo,
        *,
        access: Access,
        stored: LogPosition | None,
        beginning: SessionStart,
        turn: Stop,
    ) -> tuple[TableSchemas, Place]:
        """Return the columns as of a place, and where to read from for them.

        Raises CanalError.
        """
        self._images = None
        if self._images_of is not None:
            self._images = self._images_of(control, info, place)
            return self._images, place
        if self._history is None:
            self._images = CachedColumns(control)
            return self._images, place
        images = HistorySchemas(
            self._history,
            control,
            info,
            destination=self._config.destination,
            scanner=DdlScanner(self._config, access, turn),
        )
        begin = images.begin(place, stored, beginning.files, beginning.scanner)
        self._images = images
        return images, begin

    def passed(self, position: EntryPosition) -> None:
        """Tell the session's images up to where all was handed on."""
        if self._images is not None:
            self._images.passed(position)
