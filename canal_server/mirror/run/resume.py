"""What happens to each table when the mirror is started.

A table resumes where it stopped. A rule that has mirrored nothing yet must be fully
valid; later, a problem with one table is a change in the source and stops only that
table. Leaves out what happens while the mirror runs (`run`, `table_sync`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConfigError
from canal_server.messages.mirror import mirror_run_messages, mirror_table_messages
from canal_server.mirror.follow.foreign_keys import hidden_keys
from canal_server.mirror.follow.leaving import (
    TableStoppedError,
)
from canal_server.mirror.follow.source_columns import columns_at
from canal_server.mirror.follow.stream_start import identity_of
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.rows.chunks import quoted
from canal_server.mirror.rows.copy_positions import latest
from canal_server.mirror.run.requests import stopped_message
from canal_server.mirror.session.spark_session import table_options
from canal_server.mirror.settings import selected_tables
from canal_server.mirror.state.known_tables import targets_of
from canal_server.mirror.state.lake_tables import (
    NOWHERE,
    UnusableTableError,
    open_table,
)
from canal_server.mirror.state.state import Phase, TableState
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.flavour import read_server_info
from canal_server.mysql.server_errors import account_text
from canal_server.spark.options.offsets import version_of
from canal_server.spark.options.servers import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from canal_server.mirror.follow.foreign_keys import HiddenKey
    from canal_server.mirror.settings.mirror_settings import MirrorSettings, TableRule
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.mirror.state.state import States
    from canal_server.mysql.flavour import ServerInfo
    from canal_server.runtime.lifecycle import Stop

    Known = Mapping[TableName, TableState]

log = logging.getLogger(__name__)

LEFT_OUT: Final = (
    "left out by its name, as a table of an online schema change (a rule for it with "
    "migration_tables: mirror mirrors it)"
)
SHADOW: Final = (
    "recognized by its name as the new rows of an online schema change, which are in a "
    "folder of the mirror's own (a rule for it with migration_tables: mirror mirrors "
    "it like any other table)"
)
MISSING: Final = "the source no longer has this table"
SPARSE: Final = ("MINIMAL", "NOBLOB")


@dataclass(frozen=True, slots=True)
class Selected:
    """The tables to mirror; `stopped`: why some of them cannot be mirrored."""

    names: tuple[TableName, ...]
    stopped: dict[TableName, str] = field(default_factory=dict)
    is_mariadb: bool = False
    source: str = ""  # the database's identity
    hidden_keys: tuple[HiddenKey, ...] = ()  # whose changes no event shows
    end: int = 0  # position number of the binlog's end, if known tables are missing


def look(settings: MirrorSettings, known: Known, stop: Stop) -> Selected:
    """Find the tables to mirror; `known` are those of earlier runs.

    Raises ConfigError for all problems of the database and of rules that have mirrored
    nothing yet; SourceError.
    """
    with ControlConnection(settings.source.access, stop) as connection:
        info = read_server_info(connection)
        problems = list(binlog_problems(info))
        found = selected_tables.survey(connection, settings, targets_of(known))
        is_mariadb = connection.is_mariadb
        keys = tuple(hidden_keys(connection, settings))
    in_use = {id(rule) for rule in _in_use(settings, known)}
    problems += [each.text for each in found.found if id(each.rule) not in in_use]
    if problems:
        raise ConfigError(problems)
    for name in found.left_out:
        log.info("%s: %s", name, LEFT_OUT)
    for name in found.shadows:
        log.info("%s: %s", name, SHADOW)
    stopped: dict[TableName, str] = {}
    for problem in found.found:
        if problem.table is None:
            mirror_run_messages.MIRROR_RULE_UNUSED.log(log, problem.text)
        else:
            earlier = stopped.get(problem.table)
            stopped[problem.table] = (
                f"{earlier}; {problem.text}" if earlier else problem.text
            )
    names = [each.table.source for each in found.tables] + list(stopped)
    hidden, end = _missing(settings, known, set(names))
    identity = identity_of(info)
    return Selected((*names, *hidden), stopped, is_mariadb, identity, keys, end)


def _in_use(settings: MirrorSettings, known: Known) -> Iterator[TableRule]:
    """Yield the rules that have copied a table and are unchanged since."""
    for name, state in known.items():
        rule = settings.rule_of(name)
        if (
            rule
            and state.plan
            and state.plan == selected_tables.signature(name, settings)
        ):
            yield rule


def _missing(
    settings: MirrorSettings, known: Known, found: set[TableName]
) -> tuple[list[TableName], int]:
    """Return tables that canal-server still reads but the account does not see.

    Also, if any table is missing, the position number at which the binlog ends now.
    """
    missing = [
        name
        for name, state in known.items()
        if name not in found and state.phase is not Phase.DROPPED
        if settings.rule_of(name) is not None
    ]
    if not missing:
        return [], 0
    channel = Channel(table_options(settings, missing[0]), settings.canal.destination)
    try:
        hidden = [name for name in missing if columns_at(channel, name, None)]
        end = version_of(latest(settings, channel))
    finally:
        channel.close()
    user = settings.source.access.credentials.user
    for name in hidden:
        mirror_table_messages.MIRROR_TABLE_GRANT_MISSING.log(
            log, name, user, ".".join(map(quoted, name)), account_text(user)
        )
    return hidden, end


def binlog_problems(info: ServerInfo) -> Iterator[str]:
    """Yield why a database's changes are incomplete, with the remedy."""
    if not info.log_bin:
        yield "source: the database writes no binary log: enable log_bin"
    elif info.binlog_format != "ROW":
        yield (
            f"source: binlog_format is {info.binlog_format}, which logs statements, "
            "not row changes: SET GLOBAL binlog_format = ROW"
        )
    if info.row_image in SPARSE:
        yield (
            f"source: binlog_row_image is {info.row_image}, which omits values: "
            "SET GLOBAL binlog_row_image = FULL"
        )


def new_state(settings: MirrorSettings, name: TableName) -> TableState:
    """Return the state of a table to mirror that is not known yet."""
    rule = settings.rule_of(name)
    assert rule is not None  # a rule matches it
    return TableState(name, selected_tables.target_of(name, rule))


class Resume:
    """Resumes tables as an earlier run left them; for one thread."""

    def __init__(
        self,
        settings: MirrorSettings,
        store: States,
        join: Callable[[TableState], None],
        ended_at_ms: int | None = None,
    ) -> None:
        """`join` makes a table that followed the stream follow it again.

        It may raise TableStoppedError and UnusableTableError. `ended_at_ms` is when the
        last run ended.
        """
        self._ended_at_ms = ended_at_ms
        self._settings = settings
        self._store = store
        self._join = join

    def states(self, selected: Selected, known: Known) -> dict[TableName, TableState]:
        """Return the new states of all tables, which are stored. Raises LakeError.

        A table that the source no longer has follows the stream up to the statement
        that ended it, as another table may get its rows.
        """
        states = dict(known)
        for name in selected.names:
            state = states.get(name) or new_state(self._settings, name)
            states[name] = self._resumed(state, selected.stopped.get(name, ""))
        for name in states.keys() - set(selected.names):
            state = states[name]
            if state.phase is Phase.FOLLOWING and self._settings.rule_of(name):
                state = self._resumed(state, "")
                if state.phase is Phase.FOLLOWING:
                    states[name] = state
                    continue
            states[name] = self._not_selected(state)
        return states

    def _resumed(self, state: TableState, problem: str) -> TableState:
        if state.phase is Phase.STOPPED:
            mirror_table_messages.MIRROR_TABLE_STOPPED_BEFORE.log(
                log, state.source, state.message
            )
            return state
        if problem:
            return self._stopped(state, problem)
        try:
            return self._as_it_was(state)
        except ConfigError as error:
            return self._stopped(state, "; ".join(error.problems))
        except TableStoppedError as error:
            return self._stopped(state, str(error))
        except UnusableTableError as error:
            return self._stopped(state, stopped_message(state.source, error))

    def _as_it_was(self, state: TableState) -> TableState:
        if state.phase is Phase.DROPPED:  # and exists again
            return self._store.write(state.moved(Phase.WAITING))
        if state.phase is Phase.WAITING:
            return state
        if selected_tables.signature(state.source, self._settings) != state.plan:
            state = self._shown(state)
            return self._store.write(
                self._moved(
                    state, Phase.WAITING, "the settings of the table have changed"
                )
            )
        if state.phase in (Phase.CATCHING_UP, Phase.FOLLOWING):
            table = selected_tables.mirror_table(
                state.source, state.columns, self._settings, state.target
            )
            if open_table(self._settings, table).applied(state.copy_id) == NOWHERE:
                waiting = state.moved(Phase.WAITING, "its copy is missing in the lake")
                return self._store.write(replace(waiting, old_since_ms=0))
        if state.phase is Phase.FOLLOWING:
            self._join(state)
            log.info("%s: resumed following the stream", state.source)
        return state

    def _shown(self, state: TableState) -> TableState:
        """Remove the copy of a table that readers did not see, but will."""
        own = f"{self._settings.migrations_folder}/"
        target = new_state(self._settings, state.source).target
        if not state.target.startswith(own) or target.startswith(own):
            return state
        open_folder(self._settings.lake, state.target).remove()
        return replace(
            state, target=target, phase=Phase.WAITING, copy_id="", old_since_ms=0
        )

    def _moved(self, state: TableState, phase: Phase, why: str) -> TableState:
        return state.moved(phase, why, self._ended_at_ms)

    def _stopped(self, state: TableState, why: str) -> TableState:
        mirror_table_messages.MIRROR_TABLE_STOPPED.log(log, state.source, why)
        return self._store.write(self._moved(state, Phase.STOPPED, why))

    def _not_selected(self, state: TableState) -> TableState:
        if state.phase is Phase.DROPPED:
            return state
        why = (
            MISSING
            if self._settings.rule_of(state.source)
            else "the settings no longer select it"
        )
        if self._settings.is_shadow(state.source):
            log.info("%s: %s", state.source, why)
        else:
            mirror_table_messages.MIRROR_TABLE_UNWANTED.log(log, state.source, why)
        return self._store.write(state.moved(Phase.DROPPED, why))
