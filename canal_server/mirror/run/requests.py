"""Requests of `mirror copy`: tables to copy again.

A running mirror picks requests up; a stopped one does so when it is started. If all
tables are requested, the stream is restarted as well, which requires that the mirror
is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.errors import (
    CanalError,
    ClientError,
    ConfigError,
)
from canal_server.mirror.follow.stream_start import subscription_of
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run.pauses import requested
from canal_server.mirror.session.spark_session import source_options
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.feed import FILE
from canal_server.mirror.state.known_tables import known_tables
from canal_server.mirror.state.lake_lease import Lease, holder
from canal_server.mirror.state.lake_tables import UnusableTableError
from canal_server.mirror.state.run_history import read_status
from canal_server.mirror.state.state import Phase, States
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.state.state import TableState

PATIENCE_MS: Final = 2_000  # for the server, while a person waits
NO_SUBSCRIPTION: Final = 404


def stopped_message(name: TableName, why: CanalError) -> str:
    """Return the message for a table that is stopped until it is copied again."""
    text = f"{why}; `canal-server mirror copy {name}` makes a new copy"
    if isinstance(why, UnusableTableError):
        text += "; if that fails in the same way, move the lake's table away first"
    return text


@dataclass(frozen=True, slots=True)
class Requested:
    """An accepted request. `warning` says what remains to be done by hand."""

    tables: tuple[TableName, ...]
    runs_on: str | None  # None: the request waits until the mirror is started
    warning: str = ""


def copy_tables(settings: MirrorSettings, names: Sequence[str]) -> Requested:
    """Request new copies of tables. Raises ConfigError, LakeError."""
    folder = open_folder(settings.lake, settings.folder)
    store = States(folder)
    known = known_tables(settings)
    problems = []
    tables = []
    for text in dict.fromkeys(names):
        schema, dot, table = text.partition(".")
        name = TableName(schema, table)
        state = known.get(name)
        if not (schema and dot and table):
            problems.append(f"{text}: write schema.table")
        elif settings.rule_of(name) is None:
            problems.append(f"{text}: no pattern in the settings matches this table")
        elif state is None or state.phase is Phase.DROPPED:
            problems.append(
                f"{text}: mirror {settings.name} has no such table: see "
                "`canal-server mirror status`"
            )
        else:
            tables.append(name)
    if problems:
        raise ConfigError(problems)
    store.request_copy(tables)
    return Requested(tuple(tables), holder(folder))


def copy_all(settings: MirrorSettings) -> Requested:
    """Request new copies of all tables; restarts the stream if the mirror is stopped.

    Raises LakeError.
    """
    folder = open_folder(settings.lake, settings.folder)
    store = States(folder)
    runs_on = holder(folder)
    if runs_on is not None:
        tables = _present(store.read_all().values())
        store.request_copy(tables)
        return Requested(tables, runs_on)
    with Lease(folder):
        states = store.read_all()
        status = read_status(folder)
        ended_at_ms = None if status is None else status.updated_at_ms
        tables = _present(states.values())
        for name in tables:
            why = "a new copy of all tables was requested"
            store.write(requested(states[name], why, ended_at_ms))
        before = store.generation()
        store.next_generation()
        folder.delete(FILE)  # of the old stream, even if it is unreadable
    return Requested(tables, None, _unsubscribed(settings, before))


def _present(states: Iterable[TableState]) -> tuple[TableName, ...]:
    return tuple(
        sorted(each.source for each in states if each.phase is not Phase.DROPPED)
    )


def _unsubscribed(settings: MirrorSettings, generation: int) -> str:
    """Remove the old stream's subscription; returns a warning if that fails."""
    name = subscription_of(settings, generation)
    destination = settings.canal.destination
    options = source_options(settings) | {"retryTimeoutMs": str(PATIENCE_MS)}
    channel = Channel(read_options(options), destination)
    try:
        channel.call(lambda client: client.unsubscribe(destination, name))
    except ClientError as error:
        if error.code == NO_SUBSCRIPTION:
            return ""
        problem: Exception = error
    except (CanalError, OSError) as error:
        problem = error
    else:
        return ""
    finally:
        channel.close()
    return (
        f"the server still keeps the old subscription {name} ({problem}): "
        f"remove it with `canal-server subscriptions remove {name}` there"
    )
