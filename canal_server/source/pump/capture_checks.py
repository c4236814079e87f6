"""Whether a source can be captured: its settings, and which tables the account sees.

Settings that make capture impossible are an error; the rest is worth a warning.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost, SourceError
from canal_server.filters.table_filters import (
    TableFilter,
    compile_expression,
    split_expression,
)
from canal_server.model.quoted import quoted
from canal_server.mysql.binlogs import binary_logs
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import (
    capture_warnings,
    check_capture,
    read_server_info,
)
from canal_server.mysql.server_answers import answer_about
from canal_server.mysql.server_errors import account_text
from canal_server.mysql.silent_foreign_keys import hidden_foreign_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.config.schema import FilterConfig, SourceConfig
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.mysql.silent_foreign_keys import ForeignKey
    from canal_server.mysql.source_settings import Access
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.pump.session_failures import Failures


# Comparisons of one check of the tables; each takes some microseconds.
MATCHES_MAX: Final = 50_000
OPENED_MAX: Final = 1_000  # tables, when a destination starts
KEYS_TOLD_MAX: Final = 5
# Between two checks of the tables of one server: a right may be granted or revoked.
# While a warning holds the time doubles, as checking many tables costs the server.
LOOK_AGAIN_S: Final = 60.0
LOOK_AGAIN_S_MAX: Final = 3600.0

# Nothing in the schemas that are left out is in the binlog.
_TABLES: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
    " WHERE TABLE_TYPE NOT LIKE '%VIEW' AND TABLE_SCHEMA NOT IN"
    " ('information_schema', 'performance_schema', 'sys')"
)


class CaptureChecks:
    """The checks of one destination's sources; for the pump's thread."""

    def __init__(self, source: SourceConfig, tables: FilterConfig) -> None:
        self._source = source
        self._tables = tables
        self._address = ""  # whose tables were checked last
        self._looked_at_s = 0.0  # and when
        self._wait_s = LOOK_AGAIN_S  # until the next check, while a warning holds
        self._of_settings: tuple[str, ...] = ()
        self._of_tables = self._of_keys = self._unlisted = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what an operator should know, by the last checks."""
        found = (self._unlisted, self._of_tables, self._of_keys)
        return (*self._of_settings, *filter(None, found))

    def examine(self, control: ControlConnection, failures: Failures) -> ServerInfo:
        """Return the server's settings; warn of what an operator should know.

        Raises SourceRefused when capture is impossible, SourceError for the rest.
        """
        self._unlisted = ""
        info = read_server_info(control)
        check_capture(
            info,
            address=control.access.address,
            formats=self._source.binlog_formats,
            images=self._source.binlog_images,
        )
        self._of_settings = tuple(capture_warnings(info))
        for line in self._of_settings:
            failures.warn(line)
        self._look(control, failures)
        return info

    def note_unlisted(self, why: str, failures: Failures) -> None:
        """Record why the source does not list its binlog files."""
        self._unlisted = (
            "the source does not list its binlog files, so stored positions"
            f" cannot be checked: {why}"
        )
        failures.warn(self._unlisted)

    def look_again(self, access: Access, stop: Stop, failures: Failures) -> None:
        """Check, less and less often, whether warnings about tables still hold.

        It opens a connection, as granted rights on all schemas count for new ones only.
        """
        if not (self._of_tables or self._unlisted):
            return
        if time.monotonic() - self._looked_at_s < self._wait_s:
            return
        self._looked_at_s = time.monotonic()
        self._wait_s = min(2 * self._wait_s, LOOK_AGAIN_S_MAX)
        with (
            contextlib.suppress(SourceError),
            ControlConnection(access, stop) as control,
        ):
            self._look_at_tables(control, failures, self._of_tables)
            if self._unlisted:
                binary_logs(control)
                self._unlisted = ""

    def _look(self, control: ControlConnection, failures: Failures) -> None:
        """Check the tables at the start of a session, unless that was done just now."""
        address = str(control.access.address)
        is_same = address == self._address
        if is_same and time.monotonic() - self._looked_at_s < LOOK_AGAIN_S:
            return
        before, keys_before = self._of_tables, self._of_keys
        if not is_same:
            self._of_tables = self._of_keys = before = keys_before = ""
        self._address, self._looked_at_s = address, time.monotonic()
        self._wait_s = LOOK_AGAIN_S
        try:
            tables = self._look_at_tables(control, failures, before)
            with answer_about("its foreign keys", address):
                keys = _hidden_keys(control, tables)
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

    def _look_at_tables(
        self, control: ControlConnection, failures: Failures, before: str
    ) -> list[tuple[str, str]]:
        """Return the tables that the account sees; logs what is odd if that is new.

        Raises SourceError.
        """
        address = str(control.access.address)
        rows = control.query(_TABLES)
        with answer_about("its tables", address):
            tables = [(str(schema), str(table)) for schema, table in rows]
        self._of_tables = table_warning(
            self._tables, tables, control.account(), address
        )
        if self._of_tables not in ("", before):
            failures.warn(self._of_tables)
        return tables


def _hidden_keys(
    control: ControlConnection, tables: Sequence[tuple[str, str]]
) -> list[ForeignKey]:
    """Return foreign keys whose changes are in no event, unless that takes too long.

    MariaDB opens each table for it.
    """
    if len(tables) > OPENED_MAX and control.is_mariadb:
        return []
    schemas = {schema for schema, _ in tables} - {"mysql"}
    return hidden_foreign_keys(control, schemas)


def key_warning(filters: FilterConfig, keys: Sequence[ForeignKey]) -> str:
    """Return the changes that clients do not get, for a person; empty: none."""
    table_filter = TableFilter(filters.regex, filters.black_regex).accepts
    found = [key for key in keys if table_filter((key.child,))]
    if not found:
        return ""
    listed = "; ".join(f"{'.'.join(key.child)}: {key}" for key in found[:KEYS_TOLD_MAX])
    more = len(found) - KEYS_TOLD_MAX
    if more > 0:
        listed += f"; and {more} more"
    return (
        "rows that foreign keys delete or change are not in this server's binlog, so"
        f" clients do not receive them: {listed}"
    )


def table_warning(
    filters: FilterConfig,
    tables: Sequence[tuple[str, str]],
    account_of: tuple[str, str],
    address: str,
) -> str:
    """Return what is wrong with the tables that an account sees; empty: nothing.

    It sees the tables on which it has any right, such as SELECT.
    """
    who, account = f"account {account_of[0]} at {address}", account_text(*account_of)
    if not tables:
        return (
            f"{who} sees no table, so columns cannot be read: have an administrator"
            f" run: GRANT SELECT ON *.* TO {account}"
        )
    missing = ", ".join(map(quoted, _unmatched(filters.regex, tables)))
    if missing:
        return (
            f"canal.instance.filter.regex: no table that {who} sees matches {missing}:"
            " correct it, leave it if the tables do not exist yet, or have an"
            f" administrator run: GRANT SELECT ON *.* TO {account}"
        )
    table_filter = TableFilter(filters.regex, filters.black_regex).accepts
    if filters.black_regex and not any(
        table_filter(((schema, table),)) for schema, table in tables[:MATCHES_MAX]
    ):
        return (
            "canal.instance.filter.black.regex excludes all tables that"
            f" {who} sees: {quoted(filters.black_regex)}"
        )
    return ""


def _unmatched(expression: str, tables: Iterable[tuple[str, str]]) -> list[str]:
    """Return the pieces that match no table; none if finding out takes too long."""
    left = {piece: compile_expression(piece) for piece in split_expression(expression)}
    tries = 0
    for schema, table in tables:
        tries += len(left)
        if not left or tries > MATCHES_MAX:
            return []
        name = f"{schema}.{table}"
        for piece in [piece for piece, matches in left.items() if matches(name)]:
            del left[piece]
    return list(left)
