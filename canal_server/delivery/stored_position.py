"""The position that a message queue stores together with the messages before it.

It decides where delivery continues: a cursor is written later, and may be older after a
crash. Leaves out how a broker stores it (`queues.producers`).
"""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from canal_server.config.queue_section import CLIENT_ID
from canal_server.core.gtid.transaction_count import transactions_between
from canal_server.delivery.first_delivery import PURGED
from canal_server.errors import CanalError, ConnectionLost
from canal_server.messages import delivery_messages
from canal_server.position.sidecar import entry_from_json, entry_to_json
from canal_server.queues.producers.queue_producer import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.delivery.first_delivery import FirstDelivery
    from canal_server.model.identity import ClientIdentity
    from canal_server.model.positions import LogPosition
    from canal_server.ports import MetaManager
    from canal_server.queues.producers.queue_producer import TransactionalProducer
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
WARN_S: Final = 5.0  # for example after a broker's start


def encoded(position: LogPosition) -> bytes:
    """Return the form of a position in the message queue."""
    return json.dumps(entry_to_json(position), ensure_ascii=False).encode()


def decoded(value: bytes) -> LogPosition:
    """Read what `encoded` returned. Raises CanalError."""
    try:
        return entry_from_json(json.loads(value))
    except (LookupError, TypeError, ValueError, AttributeError):
        # Its content is not shown: somebody else may have written a secret.
        raise CanalError(
            f"the last message in the topic of positions ({len(value)} bytes) was not"
            " written by canal-server: set canal.mq.positionTopic to another name, to"
            " begin with the stored cursor"
        ) from None


def is_same(one: LogPosition | None, other: LogPosition | None) -> bool:
    """Return whether two positions are the same place of the same server."""
    return one is other or (
        one is not None
        and other is not None
        and one.identity == other.identity
        and one.position.order() == other.position.order()
    )


def is_newer(stored: LogPosition, cursor: LogPosition | None) -> bool:
    """Return whether delivery continues at a stored position, not at the cursor.

    A cursor beyond it is of a time when positions were not stored. One to which an
    operator has moved it counts, whether it is before or after. Positions of different
    servers are compared by their GTID sets; without them, by their times.
    """
    if cursor is None:
        return True
    if cursor.moved or is_same(stored, cursor):
        return False
    ours, theirs = stored.position, cursor.position
    more = transactions_between(theirs.gtid or "", ours.gtid or "")
    less = transactions_between(ours.gtid or "", theirs.gtid or "")
    if more is not None and less is not None and (more or less):
        return more > less
    if stored.identity == cursor.identity:
        return ours.order() > theirs.order()
    return (ours.timestamp or 0) >= (theirs.timestamp or 0)


def continue_at_stored(
    identity: ClientIdentity,
    make_producer: Callable[[], TransactionalProducer],
    meta: MetaManager,
    stop: Stop,
    *,
    on_wait: Callable[[str, str], None] = lambda *_: None,
    first: FirstDelivery | None = None,
) -> None:
    """Move a client's cursor to the position in the message queue, if that is newer.

    Waits for the brokers until a stop. Raises CanalError, also for the stop. `on_wait`
    is passed the destination and why it waits, "" when it does not any more. If the
    brokers have no position and no client has a cursor, it begins at `first`.
    """
    name, cursor = identity.destination, meta.cursor(identity)
    since, has_waited = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}+00:00", False
    if any(meta.cursor(each) is not None for each in meta.subscriptions(name)):
        first = None  # reading begins at a cursor, or before it
    if first is not None:
        first.note()  # before the brokers are asked, which may take a while

    def note_wait(why: str) -> None:
        nonlocal has_waited
        has_waited = True
        on_wait(name, why)
        if first is not None:
            first.note()

    producer = make_producer()
    try:
        value = _position(name, producer, stop, note_wait)
    finally:
        on_wait(name, "")
        producer.close(0.0)
    if value is None:
        if first is not None and not first.is_configured:
            position = first.position(stop)
            if position is not None:
                _begin_at(position, identity, meta)
            elif has_waited:
                _warn_of_loss(name, since, first)
        return
    stored = decoded(value)
    if not is_newer(stored, cursor):
        return
    _move(meta, identity, stored)
    log.info(
        "destination %s: delivery continues at %s, which the message queue has; the"
        " stored cursor is %s",
        identity.destination,
        stored,
        cursor or "not set",
    )


def _begin_at(
    position: LogPosition, identity: ClientIdentity, meta: MetaManager
) -> None:
    _move(meta, identity, position)
    log.info(
        "destination %s: nothing was delivered before, delivery begins at %s, where the"
        " binlog ended when the destination started",
        identity.destination,
        position,
    )


def _warn_of_loss(destination: str, since: str, first: FirstDelivery) -> None:
    to = "oldest" if first.why_not == PURGED else since
    delivery_messages.NO_POSITION_AFTER_WAIT.log(
        log,
        destination,
        since,
        first.why_not,
        first.conf_option,
        destination,
        CLIENT_ID,
        to,
    )


def _move(meta: MetaManager, identity: ClientIdentity, position: LogPosition) -> None:
    if not meta.has_subscribed(identity):
        meta.subscribe(identity)
    meta.update_cursor(identity, position)


def _position(
    destination: str,
    producer: TransactionalProducer,
    stop: Stop,
    on_wait: Callable[[str], None],
) -> bytes | None:
    warn_at = time.monotonic() + WARN_S
    while True:
        try:
            producer.open()
            return producer.position(stop)
        except BrokerUnavailableError as error:
            on_wait(str(error))
            if time.monotonic() >= warn_at:
                delivery_messages.POSITION_NOT_READ.log(log, destination, error)
                warn_at = float("inf")
        if stop.wait(RETRY_S):
            raise ConnectionLost(
                f"destination {destination}: a stop ended the wait for the position in"
                " the message queue"
            )
