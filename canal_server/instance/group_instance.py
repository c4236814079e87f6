"""A destination that merges several sources, wired.

::

    member 1: pump ─► buffer ─► lane ─┐
    member 2: pump ─► buffer ─► lane ─┼─► store ─► (server, per client)
    …                                 ┘
         ▲                                meta manager ◄── acks
         └── where each member was acked ◄─┘

A client has one cursor, as the original knows it, and beside it a place in each source:
an ack moves the places of all sources that have a boundary of transactions in what was
acked. Each member begins, and begins again after a restart, by its own places.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.core.table_ids import TableIds
from canal_server.doors.zookeeper import ZooKeepers
from canal_server.errors import CanalError, StoreError
from canal_server.filters.client_filters import ClientFilters
from canal_server.instance.group_source import Member
from canal_server.instance.instance import Instance
from canal_server.instance.wiring import (
    block_pool,
    check_room,
    default_filter,
    executed_sets_of,
    history_owner_of,
    meta_manager_of,
    serve_stored_clients,
    standing_of,
    stop_writing,
    uncertain,
)
from canal_server.model.cursors import ClientCursor, DestinationCursors
from canal_server.pipeline.source_merge import Merge
from canal_server.position.data_loss import LostClients
from canal_server.position.ended_files import LeavingCursors, furthest_of
from canal_server.position.log_positions import same_server
from canal_server.position.offline import check_subscribed, log_move
from canal_server.position.presence import Presence
from canal_server.position.source_positions import (
    acked_places,
    by_source,
    cursor_among,
    owner_of,
    servers_of,
)
from canal_server.runtime.lifecycle import Deadline
from canal_server.source.pump.pump_status import PumpState
from canal_server.store.event_store import MemoryEventStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from canal_server.config.schema import InstanceConfig
    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
    from canal_server.ports import MetaManager, RangeSource, TablePredicate
    from canal_server.source.begin.position_loss import LostPosition

_log = logging.getLogger(__name__)


class GroupInstance:
    """A Stage; also what the server sees of a destination (ports.RunningInstance)."""

    def __init__(
        self,
        config: InstanceConfig,
        zookeepers: ZooKeepers | None = None,
        *,
        held: Callable[[], bool] = uncertain,
    ) -> None:
        """Build without starting; the arguments are those of `Instance`."""
        self.config = config
        self.destination = config.destination
        # By the number of the source; none where nothing is followed.
        self._executed = {
            each.source.member: found
            for each in config.by_source
            if (found := executed_sets_of(each)) is not None
        }
        zookeepers = zookeepers or ZooKeepers()
        self.meta: MetaManager = meta_manager_of(config, zookeepers, self._completed)
        self._history_owner = history_owner_of(config, zookeepers, held)
        self._servers = servers_of(config.group)
        self._default = default_filter(config)
        self._filters = ClientFilters(
            self.destination, config.filter, self._default, self._change_table_filter
        )
        # Held while clients' places change, and while the stages are replaced.
        self._steady = threading.Lock()
        # Held while a client's places are judged and handed to the store.
        self._cursors_lock = threading.Lock()
        self._lost = LostClients(
            self.destination, resets=config.group[0].auto_reset_latest
        )
        # Entries are held for all clients: only who is connected counts.
        self._presence = Presence(-1.0)
        # Members of which all clients lost their place: they are moved to where
        # reading begins.
        self._all_lost: set[int] = set()
        self._moving = threading.Lock()  # one move of cursors at a time
        self._is_whole = True  # guarded by `_moving`
        self._stopping = False  # guarded by `_steady`
        self._make_stages()
        self.store = self._store  # as the server sees it

    def _make_stages(self) -> None:
        """Make what the entries pass, empty: at first, and when cursors were moved."""
        config, pool = self.config, block_pool()
        self._filters.clear()
        self._table_ids = TableIds()
        self._store = MemoryEventStore(
            config.store,
            self._table_ids,
            pool,
            destination=self.destination,
            grouped=True,
        )
        merge = Merge(idle=self._store.wake_getters)
        self._members = {
            each.source.member: Member(
                each,
                self.destination,
                self.meta,
                self._servers,
                store=self._store,
                merge=merge,
                pool=pool,
                table_ids=self._table_ids,
                table_filter=self._filters.table_filter,
                begun=self._begun,
                session=self._session_begins,
                changed=self._epoch_changed,
                executed=self._executed.get(each.source.member),
                idle=self._idle,
                gone=self._gone,
                history_owner=self._history_owner,
            )
            for each in config.by_source
        }
        self._leaving = {number: self._leaving_of(number) for number in self._members}

    def _completed(self, position: LogPosition) -> LogPosition:
        """Return a position with the GTID set executed there, in whichever source."""
        for sets in self._executed.values():
            position = sets.completed(position)
        return position

    # --- Stage ----------------------------------------------------------------------

    def start(self) -> None:
        """Load what is stored, give each known client its cursor, start the members.

        Waits for ZooKeeper where cursors are there, until a stop is asked for. Raises
        MetaStoreError when the stored cursors cannot be read.
        """
        self.meta.start()
        try:
            for member in self._members.values():
                member.begin_with()
            self._begin_stages()
        except BaseException:
            self._end_stages()
            self.meta.stop()
            raise
        _log.info(
            "destination %s started, a group of %d sources",
            self.destination,
            len(self._members),
        )

    def _begin_stages(self) -> None:
        """Give each known client its cursor, and begin to read."""
        serve_stored_clients(self.meta, self.destination, self.subscribed)
        # Only now: who finds a store finds its cursor in it.
        self.store = self._store
        for member in self._members.values():
            member.start()

    def request_stop(self) -> None:
        """Ask the members to stop and end all waits."""
        self.meta.request_stop()
        with self._steady:  # stages that are being made are not started any more
            self._stopping = True
            for member in self._members.values():
                member.request_stop()
            self._store.close()

    def _end_stages(self) -> None:
        """Have nothing read any more."""
        for member in self._members.values():
            member.request_stop()
        for member in self._members.values():
            member.join(Deadline(None))

    def join(self, deadline: Deadline) -> bool:
        """Wait for the members, then write what is left of the cursors.

        They are written as well when a pump does not end, but only an instance that
        has ended raises MetaStoreError.
        """
        ended = True
        for member in self._members.values():
            ended = member.join(deadline) and ended
        stop_writing(self.destination, self.meta.stop, ended=ended)
        return ended

    # --- what the operator uses -----------------------------------------------------

    def cursors(self) -> DestinationCursors:
        """Return where each client stands, and how far each source was read."""
        clients = [
            ClientCursor(
                identity,
                self.meta.cursor(identity),
                open_batches=len(self.meta.batches(identity)),
            )
            for identity in self._subscriptions()
        ]
        places = [
            acked_places(self.meta, each.identity, self._servers) for each in clients
        ]
        held = [self._held_places(each.identity.client_id) for each in clients]
        return DestinationCursors(
            tuple(clients),
            sources={
                number: DestinationCursors(
                    tuple(
                        replace(each, cursor=acked.get(number), before=got.get(number))
                        for each, acked, got in zip(clients, places, held, strict=True)
                    ),
                    member.parsed(),
                    reads=member.pump.identity,
                )
                for number, member in self._members.items()
            },
        )

    def _held_places(self, client_id: int) -> dict[int, LogPosition]:
        """Return behind what all lies that a client has not acked, by the store."""
        # First: the store has all before them.
        passed = {number: each.pump.passed_to for number, each in self._members.items()}
        try:
            held = self._store.resume_positions(client_id)
            has_all = self._store.has_all(client_id)
        except StoreError:  # it came or went just now
            return {}
        found = {}
        for number, position in held.items():
            before = self._members[number].log_position(position)
            after = furthest_of(before, passed[number]) if has_all else None
            found[number] = after or before
        return found

    def seek(self, clients: Collection[int], *positions: LogPosition) -> None:
        """Move clients in the sources whose servers the positions name.

        Then all sources are read anew, each from the smallest place of all clients:
        their entries lie in one store. Blocks until the pumps have ended. Batches that
        any client has open are void, and what they held comes again where a client is
        not moved. Raises ClientError for clients that are not subscribed,
        MetaStoreError when they are moved but that could not be written, CanalError
        when a place is of a server that is not read, or the instance stops meanwhile.
        """
        moved = by_source(positions, self.destination, self._servers)
        servers = self._read_now()
        for number, position in moved.items():
            read = servers[number]
            if not same_server(position.identity, read):
                raise CanalError(
                    f"{position} is no place of the server that destination"
                    f" {self.destination}/master{number} reads,"
                    f" {read.address}:{read.port}"
                )
        with self._moving:
            check_subscribed(
                self.destination,
                clients,
                [each.client_id for each in self._subscriptions()],
            )
            self._end_stages()
            # From here on no batch is registered or acked until all is moved.
            with self._steady:
                if self._stopping:
                    raise CanalError(f"destination {self.destination} is being stopped")
                self._is_whole = False
                self._move(clients, moved)
                self._begin_anew(moved)
                self._is_whole = True
            log_move(self.destination, clients, positions)
            self.meta.flush()

    def _move(self, clients: Collection[int], moved: Mapping[int, LogPosition]) -> None:
        """Give each client its places: where it is moved to, else where it stands."""
        assert self._steady.locked()
        cursors = self.cursors()
        for index, client in enumerate(cursors.clients):
            # What its filter rejected need not be read again.
            places = {
                number: place
                for number, source in cursors.sources.items()
                if (place := source.clients[index].furthest()) is not None
            }
            if client.identity.client_id in clients:
                places.update(moved)
            cursor = cursor_among(places, client.cursor, self._servers)
            self.meta.update_places(client.identity, places)
            if cursor is not None:
                self.meta.update_cursor(client.identity, cursor)

    def _begin_anew(self, moved: Mapping[int, LogPosition]) -> None:
        """Replace the stages, and read each source from the smallest place on."""
        assert self._steady.locked()
        for identity in self._subscriptions():
            self.meta.clear_batches(identity)
        old, servers = self.store, self._read_now()
        self._make_stages()
        self._lost.clear()
        for number, member in self._members.items():
            place = moved.get(number)
            member.begin_with(servers[number] if place is None else place.identity)
        self._begin_stages()
        old.close()

    def is_whole(self) -> bool:
        """Tell whether it reads, or will: not so when a move failed midway."""
        with self._moving:
            return self._is_whole

    def _read_now(self) -> dict[int, LogIdentity]:
        """Return the server that is read of each source."""
        return {
            number: member.pump.identity for number, member in self._members.items()
        }

    def _subscriptions(self) -> list[ClientIdentity]:
        return self.meta.subscriptions(self.destination)

    # --- what the server uses -------------------------------------------------------

    def steady(self) -> AbstractContextManager[object]:
        """Keep store and places as they are; nothing waits in this context."""
        return self._steady

    @property
    def ranges(self) -> RangeSource | None:
        """Return nothing: a range is one of a single source's binlog."""
        return None

    def log_position(self, position: EntryPosition) -> LogPosition:
        """Return the position with the name of the server that it is of."""
        return next(iter(self._members.values())).log_position(position)

    def check_filter(self, expression: str) -> object:
        """Make a filter ready; raises ClientError when it cannot be used."""
        return self._filters.check(expression)

    def check_room(self, identity: ClientIdentity) -> None:
        """Raise ClientError when no further client may subscribe."""
        check_room(self.config, self.meta, identity)

    def why_refused(self, client_id: int) -> str:
        """Return why the stored filter of a client cannot be used, or nothing."""
        return self._filters.why_refused(client_id)

    def subscribed(self, identity: ClientIdentity) -> None:
        """Give the client its cursor and filter, and let the pumps read its tables."""
        wanted = self._filters.enter(identity)
        self._presence.enter(identity.client_id)
        with self._cursors_lock:
            if not self._lost.why(identity.client_id):
                self._store.subscribe(
                    identity.client_id, wanted.accepts, self._begins_after(identity)
                )

    def came(self, client_id: int) -> None:
        """Take note that a connection serves a client; entries are held for all."""
        self._presence.came(client_id)

    def left(self, client_id: int) -> None:
        """Take note that a connection that served a client ended."""
        self._presence.left(client_id)

    def why_lost(self, client_id: int) -> str:
        """Return why a client can be given nothing, empty when it can."""
        return self._lost.why(client_id)

    def unsubscribed(self, identity: ClientIdentity) -> None:
        """Take the client's cursor and wishes back."""
        self._lost.forget(identity.client_id)
        self._presence.forget(identity.client_id)
        self._drop(identity)

    def _drop(self, identity: ClientIdentity) -> None:
        """Hold no entries for a client."""
        self._store.unsubscribe(identity.client_id)
        self._filters.leave(identity)

    def resume_position(self, client_id: int) -> EntryPosition | None:
        """Return what lies before a client's entries in the source that it acked last.

        In any source when it has acked nothing; None: not known yet.
        """
        places = self.resume_places(client_id)
        cursor = next(
            (
                self.meta.cursor(identity)
                for identity in self._subscriptions()
                if identity.client_id == client_id
            ),
            None,
        )
        owner = None if cursor is None else owner_of(cursor.identity, self._servers)
        place = places.get(min(places, default=0) if owner is None else owner)
        return None if place is None else place.position

    def resume_places(self, client_id: int) -> dict[int, LogPosition]:
        """Return what lies before all of a client's entries of each source."""
        if self._lost.why(client_id):
            return {}
        held = self._store.resume_positions(client_id)
        found = {}
        for number, member in self._members.items():
            position = held.get(number) or member.pump.began_at
            if position is not None:
                found[number] = member.log_position(position)
        return found

    def _change_table_filter(self, table_filter: TablePredicate) -> None:
        for member in self._members.values():
            member.pump.change_table_filter(table_filter)

    def _begins_after(self, identity: ClientIdentity) -> dict[int, EntryPosition]:
        """Return the places behind which the client's entries begin, by member.

        All entries of the others are for it.
        """
        places = acked_places(self.meta, identity, self._servers)
        found = {
            number: member.pump.begins_after(places.get(number))
            for number, member in self._members.items()
        }
        return {number: each for number, each in found.items() if each is not None}

    # --- what the pumps' threads call -----------------------------------------------

    def _session_begins(self, member: Member) -> None:
        """Look again which clients' places are places of the server that is read.

        A client subscribes under the same lock, so that it decides by the session
        before or by this one, and in the first case is looked at here.
        """
        with self._cursors_lock:
            for identity in self._subscriptions():
                if member.number not in self._begins_after(identity):
                    self._store.forget_after(identity.client_id, member.number)

    def _begun(self, member: Member, position: EntryPosition) -> None:
        """Let clients that have acked nothing of a source begin here, once and for all.

        A client that subscribes meanwhile finds the position with the pump, which
        knows it already.
        """
        place = member.log_position(position)
        for identity in self._subscriptions():
            known = acked_places(self.meta, identity, self._servers)
            if member.number in self._all_lost:
                self._put_at(member, identity, place)
            elif member.number not in known:
                self.meta.update_places(identity, {member.number: place})
            if self.meta.cursor(identity) is None:
                self.meta.update_cursor(identity, place)
        self._all_lost.discard(member.number)

    def _gone(self, member: Member, gone: LostPosition) -> bool:
        """Begin a source at the oldest of the clients' places that is left.

        False when there is none: where the operator wants that, reading then begins
        at the end.
        """
        began = member.pump.has_delivered
        with self._cursors_lock:
            acked = {
                identity: acked_places(self.meta, identity, self._servers)
                for identity in self.meta.subscriptions(self.destination)
            }
            left = self._lost.leave_behind(
                {
                    identity: places[member.number]
                    for identity, places in acked.items()
                    if member.number in places
                },
                gone,
                began=began,
                move=lambda identity, place: self._put_at(member, identity, place),
                drop=self._drop,
            )
        if left is None:
            if self._lost.resets and not began:
                self._all_lost.add(member.number)
            return False
        member.begin_at(left)
        return True

    def _idle(self, member: Member) -> None:
        """Let clients that have all of a source leave its files that have ended."""
        self._leaving[member.number].look(member.pump.passed_to)

    def _leaving_of(self, number: int) -> LeavingCursors:
        return LeavingCursors(
            lambda: (
                (each, acked_places(self.meta, each, self._servers).get(number))
                for each in self._subscriptions()
            ),
            self._store.has_all,
            lambda identity, place: self._put_at(
                self._members[number], identity, place
            ),
            self._steady,
        )

    def _put_at(
        self, member: Member, identity: ClientIdentity, place: LogPosition
    ) -> None:
        """Put a client elsewhere in one source."""
        self.meta.update_places(identity, {member.number: place})
        cursor = self.meta.cursor(identity)
        if cursor and owner_of(cursor.identity, self._servers) == member.number:
            self.meta.update_cursor(identity, place)

    def _epoch_changed(self) -> None:
        """Let old names of tables go once no member has anything more with one."""
        epoch = self._table_ids.epoch
        if all(member.epoch == epoch for member in self._members.values()):
            self._store.note_new_table_ids()

    # --- what people ask ------------------------------------------------------------

    def status(self) -> dict[str, object]:
        """Return what an operator asks first, as plain values."""
        members = list(self._members.values())
        states = [member.pump.status.state for member in members]
        behind = [state for state in states if state is not PumpState.RUNNING]
        return {
            "destination": self.destination,
            "state": (behind or states)[0].value,
            "source": _told(members, "source"),
            "position": _told(members, "position"),
            "error": _told(members, "error"),
            "reads": _told(members, "reads"),
            "sources": [member.status() for member in members],
            "clients": [identity.client_id for identity in self._subscriptions()],
            "lost_clients": self._lost.told(),
            "waits_for": list(self._store.holders()),
            "error_since_ms": _first_error_ms(members),
            "warnings": [
                f"master{member.number}: {each}"
                for member in members
                for each in member.pump.status.warnings
            ],
            "lag": _greatest_lag(members),
            **standing_of(self._store, self.meta, self.destination, self._presence),
            "connected": self._presence.here(),
            "transactions": sum(m.sink.counters.transactions for m in members),
            "rows": sum(m.sink.counters.rows for m in members),
        }


def _first_error_ms(members: list[Member]) -> int | None:
    """Return since when any source fails, None: none does."""
    since = [each.pump.status.error_since_ms for each in members]
    return min(filter(None, since), default=None)


def _greatest_lag(members: list[Member]) -> dict[str, object]:
    """Return the lag of the source that is behind most."""
    found = [each.pump.status for each in members]
    last = max(
        found, key=lambda each: float("inf") if (lag := each.lag_s()) is None else lag
    )
    return dict(last.as_json()["lag"])  # type: ignore[call-overload, no-any-return]


def _told(members: list[Member], word: str) -> str:
    """Return what each member's status says of something, in one line."""
    return "; ".join(
        f"master{member.number}: {told}"
        for member in members
        if (told := member.status()[word])
    )


def make_instance(
    config: InstanceConfig,
    zookeepers: ZooKeepers | None = None,
    *,
    held: Callable[[], bool] = uncertain,
) -> GroupInstance | Instance:
    """Return what runs a destination: for one source, or for several."""
    if config.group:
        return GroupInstance(config, zookeepers, held=held)
    return Instance(config, zookeepers, held=held)
