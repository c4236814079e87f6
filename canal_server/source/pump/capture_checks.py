"""When a source is checked, and what of that is logged.

Settings that make capture impossible are an error; the rest is worth a warning. The
checks themselves are in `mysql.capture_settings` and `source.check`.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost, SourceError
from canal_server.mysql.binlogs import binary_logs
from canal_server.mysql.capture_settings import (
    check_capture,
    needs_of,
    read_capture_facts,
)
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_answers import answer_about
from canal_server.source.check.unlogged_changes import unlogged_changes
from canal_server.source.check.visible_tables import (
    hidden_keys,
    key_warning,
    table_warning,
    visible_tables,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import FilterConfig, SourceConfig
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.pump.session_failures import Failures


# Between two checks of the tables of one server: a right may be granted or revoked.
# While a warning holds the time doubles, as checking many tables costs the server.
LOOK_AGAIN_S: Final = 60.0
LOOK_AGAIN_S_MAX: Final = 3600.0


class CaptureChecks:
    """The checks of one destination's sources; for the pump's thread."""

    def __init__(
        self,
        source: SourceConfig,
        tables: FilterConfig,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._tables = tables
        self._now = now
        self._address = ""  # whose tables were checked last
        self._looked_at_s = 0.0  # and when
        self._wait_s = LOOK_AGAIN_S  # until the next check, while a warning holds
        self._of_settings: tuple[str, ...] = ()
        self._of_tables = self._of_keys = self._unlisted = ""
        self._unlogged: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what an operator should know, by the last checks."""
        found = (self._unlisted, self._of_tables, self._of_keys)
        return (*self._of_settings, *filter(None, found), *self._unlogged)

    @property
    def may_change(self) -> bool:
        """Whether there is a warning that `look_again` may find to hold no longer."""
        return bool(self._of_tables or self._unlisted)

    def examine(self, control: ControlConnection, failures: Failures) -> ServerInfo:
        """Return the server's settings; warn of what an operator should know.

        Raises SourceRefused when capture is impossible, SourceError for the rest.
        """
        self._unlisted = ""
        facts = read_capture_facts(control)
        address = control.access.address
        found = check_capture(facts, needs_of(self._source), address=address)
        self._of_settings = tuple(found)
        for line in self._of_settings:
            failures.warn(line)
        self._look(control, facts.info, failures)
        return facts.info

    def note_unlisted(self, why: str, failures: Failures) -> None:
        """Record why the source does not list its binlog files, if it does not."""
        if not why:
            return
        self._unlisted = (
            "the source does not list its binlog files, so stored positions"
            f" cannot be checked: {why}"
        )
        failures.warn(self._unlisted)

    def look_again(self, access: Access, stop: Stop, failures: Failures) -> None:
        """Check, less and less often, whether warnings about tables still hold.

        It opens a connection, as granted rights on all schemas count for new ones only.
        """
        if not self.may_change:
            return
        if self._now() - self._looked_at_s < self._wait_s:
            return
        self._looked_at_s = self._now()
        self._wait_s = min(2 * self._wait_s, LOOK_AGAIN_S_MAX)
        with (
            contextlib.suppress(SourceError),
            ControlConnection(access, stop) as control,
        ):
            self._look_at_tables(control, failures, self._of_tables)
            if self._unlisted:
                binary_logs(control)
                self._unlisted = ""

    def _look(
        self, control: ControlConnection, info: ServerInfo, failures: Failures
    ) -> None:
        """Check the tables at the start of a session, unless that was done just now."""
        address = str(control.access.address)
        is_same = address == self._address
        if is_same and self._now() - self._looked_at_s < LOOK_AGAIN_S:
            return
        before, keys_before = self._of_tables, self._of_keys
        unlogged_before = self._unlogged
        if not is_same:
            self._of_tables = self._of_keys = before = keys_before = ""
            self._unlogged = ()
        self._address, self._looked_at_s = address, self._now()
        self._wait_s = LOOK_AGAIN_S
        try:
            tables = self._look_at_tables(control, failures, before)
            with answer_about("its foreign keys", address):
                keys = hidden_keys(control, tables)
            self._unlogged = tuple(
                unlogged_changes(control, info, self._tables, tables)
            )
        except ConnectionLost:
            self._address = ""  # the next session checks
            raise
        except SourceError as error:
            user = control.access.credentials.user
            self._of_tables = f"cannot check the tables that {user} sees: {error}"
            if self._of_tables != before:
                failures.warn(self._of_tables)
            return
        self._of_keys = key_warning(self._tables, keys)
        if self._of_keys not in ("", keys_before):
            failures.warn(self._of_keys)
        for line in self._unlogged:
            if line not in unlogged_before:
                failures.warn(line)

    def _look_at_tables(
        self, control: ControlConnection, failures: Failures, before: str
    ) -> list[tuple[str, str]]:
        """Return the tables that the account sees; logs what is odd if that is new.

        Raises SourceError.
        """
        address = str(control.access.address)
        tables = visible_tables(control)
        self._of_tables = table_warning(
            self._tables, tables, control.account(), address
        )
        if self._of_tables not in ("", before):
            failures.warn(self._of_tables)
        return tables
