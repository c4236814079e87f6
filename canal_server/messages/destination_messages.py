"""Messages of a destination's life: start, lease, stop, and a full ring."""

from __future__ import annotations

from logging import ERROR, WARNING

from canal_server.messages.message import Message

CURSORS_NOT_WRITTEN_AT_STOP = Message(
    name="cursors-not-written-at-stop",
    level=ERROR,
    text="destination %s cannot write its cursors during shutdown: %s",
    meaning="The last acks of clients are not stored.",
    remedy="Fix the cause given in the text. Clients receive their last acked changes"
    " again.",
)

DESTINATION_CRASHED = Message(
    name="destination-crashed",
    level=ERROR,
    text="destination %s ended because of an internal error",
    meaning="The thread that runs the destination ended; it is not started again. The"
    " other destinations continue.",
    remedy="Restart canal-server, and report the traceback that follows the line.",
)

DESTINATION_FAILED = Message(
    name="destination-failed",
    level=ERROR,
    text="destination %s failed because of an internal error and is retried later",
    meaning="The server met an error that it does not expect. It released the lease, so"
    " that another server can run the destination, and retries after 10 s, with"
    " growing delays up to 300 s.",
    remedy="Report the traceback with the lines above it.",
)

DESTINATION_RESTARTING = Message(
    name="destination-restarting",
    level=ERROR,
    text="destination %s restarts: it cannot continue from where it is",
    meaning="A move of cursors (`position seek`) failed midway. Or a transaction of the"
    " message queue failed after parts of it had left the ring, with"
    " [`canal.mq.exactlyOnce`](configuration.md#canalmqexactlyonce); then a line of the"
    " delivery says why, and all is read again. Clients reconnect.",
    remedy="After a move, check the positions of the clients with"
    " `canal-server position show`. Otherwise nothing.",
)

DESTINATION_START_FAILED = Message(
    name="destination-start-failed",
    level=ERROR,
    text="destination %s cannot start: %s",
    meaning="Something that the destination needs is missing or damaged; the text says"
    " what. The start is retried.",
    remedy="Fix the cause given in the text; see [errors](#errors).",
)

DESTINATION_STEPPED_DOWN = Message(
    name="destination-stepped-down",
    level=WARNING,
    text="destination %s lost its lease, stepping down: %s",
    meaning="This server may no longer run the destination. `no contact with ZooKeeper"
    " for … s` and `the session with ZooKeeper has ended`: another server may get"
    " the lease soon, or already has it. `… was deleted`, `was changed to request"
    " it`: somebody changed the node `running`. `… runs it`: another server wrote"
    " the node.",
    remedy="Restore ZooKeeper or the network to it; the destination continues by"
    " itself, here or on another server. If `… runs it` names this server's own"
    " address, give each server its own (`canal.register.ip`).",
)

DESTINATION_STOP_DELAYED = Message(
    name="destination-stop-delayed",
    level=ERROR,
    text="destination %s has not stopped yet, still waiting",
    meaning="A part of the destination is busy; the server waits until it has ended,"
    " because two instances must never run at the same time.",
    remedy="Look in the log for what it waits for. If it does not end, restart"
    " canal-server and report it.",
)

DESTINATION_STOP_FAILED = Message(
    name="destination-stop-failed",
    level=ERROR,
    text="destination %s failed during shutdown: %s",
    meaning="The destination has stopped, but something could not be stored.",
    remedy="Fix the cause given in the text. Clients receive their last acked changes"
    " again.",
)

DESTINATION_STOP_TIMED_OUT = Message(
    name="destination-stop-timed-out",
    level=ERROR,
    text="destination %s did not stop in time",
    meaning="The destination was still busy when the shutdown timed out.",
    remedy="Nothing is lost: clients receive their last acked changes again.",
)

RING_IS_FULL = Message(
    name="ring-is-full",
    level=WARNING,
    text="destination %s: nothing has been read for %.0f s because the ring is full,"
    " and %s must ack first; if client %d will not come back, run `canal-server"
    " unsubscribe --destination %s --client-id %d`",
    meaning="A client is slow or disconnected, and the ring keeps what it has not"
    " acked.",
    remedy="Nothing if the client comes back; otherwise [unsubscribe"
    " it](../howto/unsubscribe-a-client.md).",
)

RING_WAITS_FOR_QUEUE = Message(
    name="ring-waits-for-queue",
    level=WARNING,
    text="destination %s: nothing has been read for %.0f s because the ring is full"
    " until %s acks",
    meaning="The brokers accept nothing, or less than the source writes. The ring keeps"
    " what was not delivered, and the source has what follows.",
    remedy="See the reason in `canal-server status`. Nothing is lost while the source"
    " keeps its binlogs.",
)

STORED_FILTER_REFUSED = Message(
    name="stored-filter-refused",
    level=ERROR,
    text="destination %s: client %s is refused until it subscribes with another filter,"
    " because its stored one cannot be used: %s",
    meaning="The filter that the client had subscribed with is no longer accepted, for"
    " instance because a limit was lowered. The other clients are served.",
    remedy="Subscribe with another filter, or raise the limit that the text names.",
)
