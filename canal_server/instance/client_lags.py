"""How far each client of a destination lags, whatever serves it.

Status, metrics, the page, the REST interface and alarms all show these numbers. Leaves
out the distance to the end of a binlog, for which the source has to be asked
(`canal_server.source.begin.source_lag`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from canal_server.core.gtid.transaction_count import transactions_between
from canal_server.position.log_position_managers import same_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canal_server.instance.source_events import ServedClients
    from canal_server.instance.stages import Stages
    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition
    from canal_server.ports import MetaManager
    from canal_server.position.data_loss import LostClients
    from canal_server.position.presence import Presence
    from canal_server.source.pump.read_files import ReadFiles
    from canal_server.store.counts import CursorCounts, StoreCounts

GTIDS_MAX: Final = 4096  # characters of a set; larger ones are not compared

IN_RING: Final = "in_ring"
EVICTED: Final = "evicted"
CATCHING_UP: Final = "catching_up"
LOST: Final = "lost"
CLIENT_STATES: Final = {  # and what they mean
    IN_RING: "served from the ring",
    EVICTED: "the ring lacks what comes next for it; a catch-up reader serves it when"
    " it connects",
    CATCHING_UP: "served by a catch-up reader, until that reaches the ring",
    LOST: "refused: it can be given nothing",
}


class ReadsSource(Protocol):
    """What is asked of a pump."""

    @property
    def passed_to(self) -> LogPosition | None:
        """Return up to where the source was read."""

    @property
    def files(self) -> ReadFiles:
        """Return what is known of the sizes of its files."""


@dataclass(frozen=True, slots=True)
class ClientLag:
    """One subscribed client. Unknown values are None.

    `lag_s`: in the ring, for how long the first entry that it has not acked has been
    there, 0 if it has acked all. Elsewhere the age of the last change that it has
    acked, 0 if nothing follows that. `away_s` is the time since it disconnected.
    """

    client_id: int
    state: str  # one of CLIENT_STATES
    connected: bool
    away_s: float | None = None
    lag_s: float | None = None
    entries: int | None = None  # of the ring that it has not acked
    rows: int | None = None  # fetched from the ring, counted again after rollbacks
    acked: LogPosition | None = None
    sent: LogPosition | None = None  # up to where it was sent batches that are open
    open_batches: int = 0  # that it has not acked
    bytes: int | None = None  # of the binlog from there to where the source was read
    transactions: int | None = None  # that are only in the set executed there


class ClientsNow(NamedTuple):
    """The clients of a destination at one moment, and the ring that serves them.

    Status and metrics show it; with a thousand destinations it must be taken once.
    """

    lags: tuple[ClientLag, ...]  # by client id
    store: StoreCounts
    connected: Sequence[int]  # client ids


def clients_now(stages: Stages, clients: ServedClients) -> ClientsNow:
    """Return how the clients of a destination lag now; costs the hot path nothing."""
    pipelines = list(stages.pipelines.values())
    stages.ring.slowest()  # skips what the filters of the slowest clients reject
    store, connected = stages.ring.counts(), clients.lagging.presence.here()
    lags = client_lags(
        clients.positions.subscriptions(),
        clients.positions.meta,
        store,
        {key: bool(each["reading"]) for key, each in stages.stores.diverted().items()},
        clients.lost,
        clients.lagging.presence,
        # In a group nobody is diverted, and a position is in one of its sources.
        pipelines[0].pump if len(pipelines) == 1 else None,
    )
    return ClientsNow(lags, store, connected)


def client_lags(  # noqa: PLR0917  # the parts of a destination, each once
    subscribed: Sequence[ClientIdentity],
    meta: MetaManager,
    store: StoreCounts,
    diverted: Mapping[int, bool],
    lost: LostClients,
    presence: Presence,
    pump: ReadsSource | None,
) -> tuple[ClientLag, ...]:
    """Return these clients, by id.

    `diverted` are those that the ring does not serve, with whether a reader does.
    `pump` reads the only source; None: there are several.
    """
    passed = None if pump is None else pump.passed_to
    in_ring = {each.client_id: each for each in store.cursors}
    here = set(presence.here())
    found = []
    for identity in subscribed:
        client_id, acked = identity.client_id, meta.cursor(identity)
        if lost.why(client_id):
            state = LOST
        elif client_id in diverted:
            state = CATCHING_UP if diverted[client_id] else EVICTED
        else:
            state = IN_RING
        cursor = in_ring.get(client_id) if state == IN_RING else None
        batches = meta.batches(identity)
        found.append(
            ClientLag(
                client_id,
                state,
                client_id in here,
                presence.away_s(client_id),
                _lag_s(state, cursor, acked, passed),
                None if cursor is None else store.put_sequence - cursor.ack_sequence,
                None if cursor is None else cursor.rows,
                acked,
                batches[max(batches)].end if batches else None,
                len(batches),
                *_distance(cursor, store, acked, pump, passed),
            )
        )
    return tuple(sorted(found, key=lambda each: each.client_id))


def _distance(
    cursor: CursorCounts | None,
    store: StoreCounts,
    acked: LogPosition | None,
    pump: ReadsSource | None,
    passed: LogPosition | None,
) -> tuple[int | None, int | None]:
    """Return the bytes and the transactions that a client lacks, where known."""
    if cursor is not None and cursor.ack_sequence >= store.put_sequence:
        return 0, 0
    if pump is None or acked is None or passed is None:
        return None, None
    here, there = acked.position, passed.position
    size = None
    if same_server(acked.identity, passed.identity):
        size = pump.files.bytes_between(here, there)
    if size == 0:
        return 0, 0
    if len(there.gtid or "") > GTIDS_MAX:
        return size, None
    return size, transactions_between(here.gtid or "", there.gtid or "")


def _lag_s(
    state: str,
    cursor: CursorCounts | None,
    acked: LogPosition | None,
    passed: LogPosition | None,
) -> float | None:
    if state == IN_RING:
        return None if cursor is None else cursor.lag_s
    if acked is None or not acked.position.timestamp:
        return None
    if (
        passed is not None
        and acked.position.journal_name
        and same_server(acked.identity, passed.identity)
        and acked.position.order() >= passed.position.order()
    ):
        return 0.0
    return max(0.0, time.time() - acked.position.timestamp / 1000)


def slowest_client(lags: Sequence[ClientLag]) -> dict[str, object] | None:
    """Return the client that lags most, as JSON values; None: no client lags.

    Leaves out lost clients, which the status names elsewhere.
    """
    lagging = [each for each in lags if each.state != LOST and _lags(each)]
    if not lagging:
        return None
    found = max(lagging, key=lambda each: each.lag_s or 0.0)
    return {
        "client": found.client_id,
        "entries": found.entries,
        "seconds": None if found.lag_s is None else round(found.lag_s, 3),
        "connected": found.connected,
        "away_s": None if found.away_s is None else round(found.away_s, 3),
    }


def _lags(client: ClientLag) -> bool:
    return bool(client.entries) if client.state == IN_RING else client.lag_s != 0
