"""Foreign keys that change rows without an event, and the warnings about them.

They are queried when the mirror starts, and after each statement that may add or drop
one. A separate thread queries the database, which may take long to answer. Leaves out
what a server does with foreign keys (`mysql.foreign_keys`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.errors import ConfigError, SourceError
from canal_server.messages.mirror import mirror_stream_messages
from canal_server.mirror.follow.key_values import has_values
from canal_server.mirror.settings import selected_tables
from canal_server.mirror.settings.table_values import TableName
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns
from canal_server.mysql.silent_foreign_keys import hidden_foreign_keys
from canal_server.runtime.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.mysql.silent_foreign_keys import ForeignKey
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0

Keys = tuple["HiddenKey", ...]


class HiddenKey(NamedTuple):
    """A foreign key whose changes are in no event of the binlog.

    `why_not`: why the rows that it changes are not read again; empty: they are.
    `above`: a foreign key that changes the parent without an event, so that this key's
    changes go unnoticed; "" for none.
    """

    key: ForeignKey
    why_not: str
    above: str = ""

    @property
    def child(self) -> TableName:
        """The table whose rows it changes."""
        return TableName(*self.key.child)

    @property
    def warning(self) -> str:
        """A warning that is shown as long as the key exists; empty: none."""
        if self.why_not:
            text = (
                "the rows that it changes are not in the binlog, so the copy keeps "
                f"their old values ({self.why_not})"
            )
        elif self.above:
            text = (
                f"rows of {'.'.join(self.key.parent)} that foreign key {self.above} "
                "changes are not in the binlog and are not read again, so the changes "
                "of this key are missed"
            )
        else:
            return ""
        return (
            f"{self.child}: {self.key}: {text}; see docs/howto/mirror-foreign-keys.md"
        )


def hidden_keys(
    connection: ControlConnection, settings: MirrorSettings
) -> list[HiddenKey]:
    """Return the foreign keys of mirrored tables whose changes are in no event.

    Raises SourceError.
    """
    names = selected_tables.present(connection, settings)
    keys = [
        key
        for key in hidden_foreign_keys(connection, {name.schema for name in names})
        if TableName(*key.child) in names
    ]
    both = {TableName(*name) for key in keys for name in (key.child, key.parent)}
    metas = TableColumns(connection).fetch_many(both & names)
    known = {}
    for name in both & names:
        meta = metas.get((name.schema, name.table))
        with suppress(ConfigError):  # reported elsewhere
            if meta is not None:
                known[name] = selected_tables.mirror_table(name, meta.columns, settings)
    found = [HiddenKey(key, _why_not(key, settings, known)) for key in keys]
    found.sort(key=lambda each: (each.key.child, each.key.name))
    return _with_keys_above(found)


def _with_keys_above(keys: list[HiddenKey]) -> list[HiddenKey]:
    """Return the keys, each with a key above it whose changes go unnoticed."""
    above: dict[ForeignKey, str] = {}
    left = deque(each.key for each in keys if each.why_not)
    while left:
        upper = left.popleft()
        for key, why_not, _ in keys:
            if not why_not and key not in above and key.follows(upper):
                above[key] = upper.name
                left.append(key)
    return [each._replace(above=above.get(each.key, "")) for each in keys]


def _why_not(
    key: ForeignKey,
    settings: MirrorSettings,
    known: Mapping[TableName, MirrorTable],
) -> str:
    """Return why a child's rows are not read again; empty if they are."""
    name, parent = TableName(*key.child), TableName(*key.parent)
    rule = settings.rule_of(name)
    if rule is None or rule.foreign_keys != "reread":
        return "set foreign_keys: reread in its rule to read them again"
    child = known.get(name)
    if child is None or child.is_log:
        return "it is a log of changes"
    if child.is_keyless:
        return "without a primary key its rows cannot be found"
    if settings.rule_of(parent) is None or parent not in known:
        return f"{parent} is not mirrored, so its changes are unknown"
    needed = [(child, each) for each in (*child.key, *key.columns)]
    needed += [(known[parent], each) for each in key.referenced]
    for table, column in needed:
        if not has_values(table, column):
            return (
                f"column {column} of {table.source} is masked, left out or a FLOAT, "
                "DOUBLE or BIT, so its values cannot be searched"
            )
    return ""


class KeyWatch:
    """Tracks the hidden foreign keys; `poll` is for one thread."""

    def __init__(
        self,
        settings: MirrorSettings,
        stop: Stop,
        on_keys: Callable[[Keys, Keys], None] = lambda before, now: None,  # noqa: ARG005
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call `on_keys` with old and new keys, on the thread of `begin` and `poll`."""
        self._settings = settings
        self._on_keys = on_keys
        self._stop = stop
        self._now = now
        self._answer: Future[list[HiddenKey]] | None = None
        self._statements = 0  # statements before the last query
        self._known: tuple[HiddenKey, ...] = ()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="foreign-keys")
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._due = 0.0
        self.warnings: tuple[str, ...] = ()

    def begin(self, keys: Iterable[HiddenKey]) -> None:
        """Set the keys at the start of the mirror, and warn of them."""
        self._set_keys(keys)

    def poll(self, statements: int) -> None:
        """Query the keys again after further statements."""
        if self._answer is not None:
            if self._answer.done():
                self._collect()
        elif statements != self._statements and self._now() >= self._due:
            self._statements = statements
            self._answer = self._pool.submit(self._query)

    def close(self) -> None:
        """End the query's thread; the stop was requested before."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _query(self) -> list[HiddenKey]:
        with ControlConnection(self._settings.source.access, self._stop) as connection:
            return hidden_keys(connection, self._settings)

    def _collect(self) -> None:
        assert self._answer is not None
        answer, self._answer = self._answer, None
        try:
            keys = answer.result()
        except SourceError as error:
            now = self._now()
            delay_s = self._backoff.delay_s(now)
            self._due, self._statements = now + delay_s, -1
            mirror_stream_messages.MIRROR_FOREIGN_KEYS_NOT_LISTED.log(
                log, error, delay_s
            )
        else:
            self._backoff.reset()
            self._set_keys(keys)

    def _set_keys(self, keys: Iterable[HiddenKey]) -> None:
        found = tuple(keys)
        for each in found:
            if each not in self._known and each.warning:
                mirror_stream_messages.MIRROR_FOREIGN_KEY.log(log, each.warning)
        there = {each.key for each in found}
        for each in self._known:
            if each.key not in there:
                log.info("%s: %s was dropped", each.child, each.key)
        known, self._known = self._known, found
        self.warnings = tuple(each.warning for each in found if each.warning)
        self._on_keys(known, found)
