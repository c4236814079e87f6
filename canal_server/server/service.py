"""Applies the requests of clients to instances: subscribe, get, ack, roll back.

Knows stores and meta managers as ports only, and sockets only as a number to pass to
the store. All methods are called by the threads of connections, many at a time.

A client is an identity (destination and client id), not a connection: one connection
may serve several identities, and several connections may serve one. What can coincide,
and why nothing is lost or confused:

* Two gets of one identity. Batches must be registered in the order in which the store
  delivered them, because an ack frees everything up to its batch's end. So a get holds
  the *turn* of the identity from before it asks the store until the batch is
  registered, even while the store waits for entries. A second get waits for the turn,
  but not longer than its own timeout. Then its answer is empty: the next entries belong
  to the get that waited first. (If that one is just disconnecting there may be entries
  after all; the next get delivers them.)
* Ack, rollback and subscription acquire the identity's *lock*, which no thread holds
  while it waits. A pending get delays none of them.
* A rollback while a get is in the store. The get may have fetched its entries before or
  after the cursor was reset; that cannot be determined. Each rollback is counted; a get
  that finds another count than before it asked resets the cursor again and asks again.
  That is harmless: after the rollback no batch is open (it forgets all), and none can
  have been registered since, because the get held the turn.
* An operator who moves cursors gives the instance another store. Positions change only
  while the instance is *steady*, together with the store to which the open batches
  refer: an ack of a batch from the old store finds no such batch, and a get that waited
  in it finds nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from canal_server.errors import CanalError, ClientError, StoreError
from canal_server.messages import server_messages
from canal_server.model.quoted import printable, quoted
from canal_server.protocol import server_session
from canal_server.protocol.range_messages import RangeRequest
from canal_server.runtime.lifecycle import Deadline
from canal_server.runtime.log_context import log_about
from canal_server.server.cursor_alignment import join_cursors, skip_rejected
from canal_server.server.range_service import RangedService
from canal_server.server.replies import (
    ACCEPTED,
    EMPTY,
    NOTHING,
    Refusal,
    registered,
    reply_of,
)
from canal_server.server.request_counts import RequestCounters
from canal_server.server.request_texts import (
    identity_of,
    instance_ended,
    log_text,
    name_of,
    no_such_batch,
    not_started,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from canal_server.model.batch import Batch
    from canal_server.model.identity import ClientIdentity
    from canal_server.ports import EventStore, Instances, RunningInstance
    from canal_server.server.replies import Reply
    from canal_server.server.session_rights import SessionRights

    # The clients that one connection served, and by which instance.
    Visits = dict[ClientIdentity, RunningInstance]

log = logging.getLogger(__name__)

_ALL_BATCHES = 0  # the batch id of a rollback of all
_NO_BATCH = -1  # the batch id of an ack of an empty batch


class FetchedBatch(NamedTuple):
    """A batch that was registered, with the store that it is of."""

    instance: RunningInstance
    batch_id: int
    batch: Batch
    store: EventStore


class _Seat:
    """Synchronizes gets, acks and rollbacks of one identity; see the module's text."""

    __slots__ = ("lock", "rollbacks", "store", "turn")

    def __init__(self, store: EventStore) -> None:
        self.store = store  # to whose sequences the open batches refer
        self.turn = threading.Lock()
        self.lock = threading.Lock()
        self.rollbacks = 0  # guarded by the lock


class Service:
    """Answers the requests of all connections."""

    def __init__(
        self, instances: Instances, reserved: Mapping[int, str] | None = None
    ) -> None:
        """Serve these instances; `reserved` says what uses client ids in this process.

        Connections are refused these ids.
        """
        self._instances = instances
        self._reserved = reserved or {}
        self.ranged = RangedService(instances)
        self.counters = RequestCounters()
        self._seats: dict[ClientIdentity, _Seat] = {}
        self._seats_lock = threading.Lock()

    def answer(
        self,
        request: server_session.Request,
        peer_fd: int | None,
        wait_s: float,
        visits: Visits | None = None,
        *,
        rights: SessionRights | None = None,
    ) -> Reply | None:
        """Carry a request out and return its reply.

        `rights` are those of the connection's user; None: all.

        `visits` belong to the connection, which calls `on_disconnect` with them at its
        end. They show that the instance that served it has ended.

        `peer_fd` is the client's socket; a waiting get ends when it closes. A get waits
        at most `wait_s`; the answer is None when it would have waited longer. Refusals
        of all kinds become replies.
        """
        assert not isinstance(request, RangeRequest), "see `ranged`"
        try:
            if rights is not None:
                rights.check(request)
            self._check_reserved(request)
            visited = None if visits is None else self._visited(request, visits)
            if isinstance(request, server_session.Fetch):
                return self._get(request, peer_fd, wait_s, visited, rights)
            return self._answer_others(request, visited, rights)
        except ClientError as error:
            return Refusal.of(error.code, str(error))
        except CanalError as error:
            server_messages.REQUEST_FAILED.log(log, log_text(request), error)
            return Refusal.of(server_session.REFUSED, str(error), is_logged=True)

    def count(
        self, request: server_session.Request, reply: Reply, started_s: float
    ) -> None:
        """Count a request whose reply was sent; `started_s` is of the monotonic clock.

        Requests to unknown destinations are not counted, as they could be of any
        number.
        """
        code = reply.code if isinstance(reply, Refusal) else 0
        identity = identity_of(request)
        if identity is None or (
            code and not self._instances.is_configured(identity.destination)
        ):
            return
        self.counters.note(
            request,
            sent_bytes=sum(map(len, reply)),
            is_empty=reply is EMPTY,
            error_code=code,
            took_ms=(time.monotonic() - started_s) * 1000,
        )

    def _check_reserved(self, request: server_session.Request) -> None:
        identity = identity_of(request)
        if identity is not None and (user := self.user_of(identity.client_id)):
            raise ClientError(
                f"client id {identity.client_id} is used by {user}: use another one"
            )

    def user_of(self, client_id: int) -> str:
        """Return what in this process uses a client id, "" if nothing does."""
        return self._reserved.get(client_id, "")

    def _visited(
        self, request: server_session.Request, visits: Visits
    ) -> RunningInstance | None:
        """Report to the instance that its client is connected, before the request.

        Returns that instance. Raises ClientError for a get or an ack when another
        instance served this connection before.
        """
        identity = identity_of(request)
        if identity is None:
            return None
        # Files of the log have these names: none that a client made up.
        if self._instances.is_configured(identity.destination):
            log_about(identity.destination, identity.client_id)
        else:
            log_about("")
        instance = self._instances.running(identity.destination)
        known = visits.get(identity)
        if instance is known:
            return instance
        if instance is not None:
            instance.on_connect(identity.client_id)
            visits[identity] = instance
        if known is not None:
            known.on_disconnect(identity.client_id)
            if instance is None:
                del visits[identity]
            if isinstance(request, server_session.Fetch | server_session.Acknowledge):
                self._check_configured(identity)
                raise (
                    not_started(identity)
                    if instance is None
                    else instance_ended(identity)
                )
        return instance

    def on_disconnect(self, visits: Visits) -> None:
        """Report to instances that a connection ended."""
        for identity, instance in visits.items():
            instance.on_disconnect(identity.client_id)

    def _answer_others(
        self,
        request: server_session.Request,
        visited: RunningInstance | None,
        rights: SessionRights | None,
    ) -> Reply:
        match request:
            case server_session.Acknowledge(identity, batch_id):
                self.ack(identity, batch_id, visited)
                return NOTHING
            case server_session.Rollback(identity, batch_id):
                self.rollback(identity, batch_id)
                return NOTHING
            case server_session.Subscribe(identity):
                self.subscribe(identity, rights)
                return ACCEPTED
            case server_session.Unsubscribe(identity):
                if self.unsubscribe(identity) and rights and rights.audit:
                    rights.audit.on_subscription("unsubscribe", identity)
                return ACCEPTED
            case server_session.Login(subscribe=identity):
                if identity is not None:
                    self.subscribe(identity, rights)
                return ACCEPTED
            case server_session.Refused(code=code, message=message):
                return Refusal.of(code, message)
        raise AssertionError(f"{request!r} is answered elsewhere")

    # ----------------------------------------------------------------------------
    # Subscriptions
    # ----------------------------------------------------------------------------

    def subscribe(
        self, identity: ClientIdentity, rights: SessionRights | None = None
    ) -> None:
        """Subscribe a client, or replace its filter; starts a lazy instance.

        Nothing changes when the filter is invalid.
        """
        self._check_configured(identity)
        if rights is not None:
            identity = rights.completed(identity)
        destination = identity.destination
        instance = self._instances.running(destination)
        if instance is None:
            instance = self._instances.start_lazy(destination)
        if instance is None:
            raise not_started(identity)

        # Compiled before the lock is acquired, so that under it this is a look-up.
        ready = instance.check_filter(identity.filter)
        _check_not_lost(instance, identity)
        with self._locked(identity, instance):
            is_new = not instance.meta.has_subscribed(identity)
            if is_new:
                instance.check_subscription_limit(identity)
            is_new |= bool(instance.why_refused(identity.client_id))
            instance.meta.subscribe(identity)
            instance.subscribed(identity)
            del ready
            if is_new or instance.meta.cursor(identity) is None:
                join_cursors(instance, identity)
        if rights is not None and rights.audit is not None:
            rights.audit.on_subscription("subscribe", identity)
        log.info(
            "client %d subscribed to %s with filter %s",
            identity.client_id,
            destination,
            quoted(identity.filter),
        )

    def unsubscribe(self, identity: ClientIdentity) -> bool:
        """End a subscription, and return whether there was one.

        The client's acked position is kept.

        Its open batches are forgotten: they refer to the sequences of its cursor in the
        store, which is removed.
        """
        instance = self._running(identity)
        with self._locked(identity, instance) as seat:
            had_subscribed = instance.meta.has_subscribed(identity)
            if had_subscribed:
                skip_rejected(instance, identity)
            instance.meta.unsubscribe(identity)
            instance.meta.clear_batches(identity)
            instance.unsubscribed(identity)
            seat.rollbacks += 1
        text = "client %d unsubscribed from %s"
        if not had_subscribed:
            text = "client %d asked to unsubscribe from %s, but was not subscribed"
        log.info(text, identity.client_id, identity.destination)
        return had_subscribed

    # ----------------------------------------------------------------------------
    # Batches
    # ----------------------------------------------------------------------------

    def _get(
        self,
        request: server_session.Fetch,
        peer_fd: int | None,
        wait_s: float,
        visited: RunningInstance | None,
        rights: SessionRights | None,
    ) -> Reply | None:
        timeout_s = request.timeout_s
        cut = timeout_s is None or timeout_s > wait_s
        reply = self.get(
            request.identity,
            request.size,
            wait_s if cut else timeout_s,
            peer_fd,
            visited,
            rights=rights,
        )
        return None if cut and reply is EMPTY else reply

    def get(
        self,
        identity: ClientIdentity,
        size: int,
        timeout_s: float | None,
        peer_fd: int | None = None,
        visited: RunningInstance | None = None,
        *,
        rights: SessionRights | None = None,
    ) -> Reply:
        """Fetch the next batch, register it, and return it as a reply.

        Only from the instance `visited`, unless that is None; as `rights` show it.
        """
        fetched = self.fetch(identity, size, timeout_s, peer_fd, visited)
        if fetched is None:
            return EMPTY
        return reply_of(
            fetched.instance, identity, fetched.batch_id, fetched.batch, rights
        )

    def fetch(
        self,
        identity: ClientIdentity,
        size: int,
        timeout_s: float | None,
        peer_fd: int | None = None,
        visited: RunningInstance | None = None,
        *,
        whole: bool = False,
    ) -> FetchedBatch | None:
        """Fetch the next batch and register it.

        Only from the instance `visited`, unless that is None. None: no batch in time.
        `whole`: it ends with a transaction, or has only a part of one.
        """
        instance = self._subscribed(identity, visited)
        seat = self._seat(identity, instance)
        deadline = Deadline(timeout_s)
        if not seat.turn.acquire(blocking=False) and not seat.turn.acquire(
            timeout=-1 if timeout_s is None else timeout_s
        ):
            return None
        try:
            rollbacks = seat.rollbacks
            while True:
                try:
                    batch = seat.store.get(
                        identity.client_id,
                        size,
                        deadline.remaining_s(),
                        peer_fd,
                        whole=whole,
                    )
                except StoreError as error:
                    # Its cursor may have been dropped while the get waited.
                    if why := _why_not_served(instance, identity):
                        raise ClientError(why) from error
                    raise
                if self._instances.running(identity.destination) is not instance:
                    # It stopped while the get waited, and may start again.
                    if batch is not None:
                        _redeliver(instance, identity, seat)
                    raise not_started(identity)
                if batch is None:
                    return None
                with seat.lock, instance.steady():
                    current = self._seats[identity] is seat
                    if not current or instance.store is not seat.store:
                        return None  # the batch belongs to the old store
                    if seat.rollbacks == rollbacks:
                        batch_id = registered(instance, identity, batch)
                        return FetchedBatch(instance, batch_id, batch, seat.store)
                    seat.store.rollback(identity.client_id)
                    rollbacks = seat.rollbacks
        finally:
            seat.turn.release()

    def ack(
        self,
        identity: ClientIdentity,
        batch_id: int,
        visited: RunningInstance | None = None,
        *,
        is_part: bool = False,
    ) -> None:
        """Note that the client has processed its oldest open batch.

        Only in the instance `visited`, unless that is None. `is_part`: of a transaction
        whose rest follows, so the entries are freed, but the cursor stays.
        """
        instance = self._subscribed(identity, visited)
        if batch_id == _NO_BATCH:
            return
        with self._locked(identity, instance):
            positions = instance.meta.remove_batch(identity, batch_id)
            if positions is None:
                raise no_such_batch("ack", identity, batch_id)
            if positions.source_positions and not is_part:
                instance.meta.update_source_positions(
                    identity, positions.source_positions
                )
            if positions.ack is not None and not is_part:
                instance.meta.update_cursor(identity, positions.ack)
            instance.store.ack(identity.client_id, positions.end_sequence)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "client %d of %s acked batch %d",
                identity.client_id,
                identity.destination,
                batch_id,
                extra={"batch": batch_id, "position": str(positions.ack)},
            )

    def rollback(self, identity: ClientIdentity, batch_id: int) -> None:
        """Forget the oldest open batch, and with it all others: they come again.

        Clients roll all batches back when they connect, before or after they subscribe,
        and do not expect an answer. Therefore it is not an error when the instance does
        not run, or when the client is not subscribed.
        """
        self._check_configured(identity)
        if batch_id == _ALL_BATCHES:
            instance = self._instances.running(identity.destination)
            if instance is None:
                return
        else:
            instance = self._running(identity)
        if not instance.meta.has_subscribed(identity) or _why_not_served(
            instance, identity
        ):
            return
        with self._locked(identity, instance) as seat:
            if batch_id != _ALL_BATCHES and (
                instance.meta.remove_batch(identity, batch_id) is None
            ):
                raise no_such_batch("rollback", identity, batch_id)
            instance.meta.clear_batches(identity)
            instance.store.rollback(identity.client_id)
            seat.rollbacks += 1

    # ----------------------------------------------------------------------------
    # Finding the object of a request
    # ----------------------------------------------------------------------------

    def _check_configured(self, identity: ClientIdentity) -> None:
        if not self._instances.is_configured(identity.destination):
            raise ClientError(
                f"can't find destination:{printable(identity.destination)}"
            )

    def _running(self, identity: ClientIdentity) -> RunningInstance:
        instance = self._instances.running(identity.destination)
        if instance is None:
            self._check_configured(identity)
            raise not_started(identity)
        return instance

    def _subscribed(
        self, identity: ClientIdentity, visited: RunningInstance | None
    ) -> RunningInstance:
        instance = self._running(identity)
        if visited is not None and instance is not visited:
            raise instance_ended(identity)  # it was replaced just now
        if not instance.meta.has_subscribed(identity):
            raise ClientError(
                f"ClientIdentity:{name_of(identity)} should subscribe first"
            )
        if why := _why_not_served(instance, identity):
            raise ClientError(why)
        return instance

    def _seat(self, identity: ClientIdentity, instance: RunningInstance) -> _Seat:
        """Return the object that synchronizes this identity's requests.

        A restarted instance has another store. Batches that are still open refer to
        sequences of the old one, so that they are forgotten with the old seat.
        """
        store = instance.store
        seat = self._seats.get(identity)
        if seat is not None and seat.store is store:
            return seat
        with self._seats_lock:
            seat = self._seats.get(identity)
            if seat is not None and seat.store is store:
                return seat
            # With the old seat's lock, because a request may be about to use it.
            with seat.lock if seat is not None else contextlib.nullcontext():
                instance.meta.clear_batches(identity)
                seat = self._seats[identity] = _Seat(store)
        return seat

    @contextlib.contextmanager
    def _locked(
        self, identity: ClientIdentity, instance: RunningInstance
    ) -> Iterator[_Seat]:
        """Hold the identity's lock and keep the instance steady.

        Raises ClientError when the instance stopped meanwhile.
        """
        while True:
            seat = self._seat(identity, instance)
            with seat.lock, instance.steady():
                if instance.store is not seat.store:
                    continue  # cursors were moved since the look-up
                here = self._instances.running(identity.destination)
                if self._seats[identity] is not seat or here is not instance:
                    raise not_started(identity)
                yield seat
                return


def _check_not_lost(instance: RunningInstance, identity: ClientIdentity) -> None:
    if why := instance.why_lost(identity.client_id):
        raise ClientError(why)


def _why_not_served(instance: RunningInstance, identity: ClientIdentity) -> str:
    """Return why a subscribed client has no cursor in the store, empty when it has."""
    return instance.why_lost(identity.client_id) or instance.why_refused(
        identity.client_id
    )


def _redeliver(
    instance: RunningInstance, identity: ClientIdentity, seat: _Seat
) -> None:
    """Reset the cursor, so that fetched entries and open batches come again."""
    # A store that was closed meanwhile has nothing to reset.
    with seat.lock, contextlib.suppress(StoreError):
        seat.rollbacks += 1
        instance.meta.clear_batches(identity)
        seat.store.rollback(identity.client_id)
