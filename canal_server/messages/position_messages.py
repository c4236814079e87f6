"""Messages of clients' cursors and stored positions."""

from __future__ import annotations

from logging import ERROR, WARNING

from canal_server.messages.message import Message

CLIENT_HISTORY_UNKNOWN = Message(
    name="client-history-unknown",
    level=ERROR,
    text="%s; the client is refused, the others are served",
    meaning="The client lags, and the table schemas at its position are not known, so"
    " its changes cannot be decoded. The text names the client and the reason.",
    remedy="Load its tables again, then move it with `canal-server position seek`, or"
    " [unsubscribe it](../howto/unsubscribe-a-client.md).",
)

CLIENT_MOVED = Message(
    name="client-moved",
    level=WARNING,
    text="destination %s: an operator moved client%s %s to %s",
    meaning="`canal-server position seek` was run.",
)

CLIENT_MOVED_PAST_LOSS = Message(
    name="client-moved-past-loss",
    level=ERROR,
    text="client %d of %s needs %s, which the source no longer has: %s; it resumes at"
    " %s, as canal.auto.reset.latest.pos.mode is true, and the changes in between"
    " are lost for it",
    meaning="The position of the client is no longer in the binlog of the source.",
    remedy="Load the tables of the client again. Keep binlogs for longer"
    " (`binlog_expire_logs_seconds`).",
)

CLIENT_POSITION_LOST = Message(
    name="client-position-lost",
    level=ERROR,
    text="%s; the client is refused, the others are served: load its tables again,"
    " then move it with `canal-server position seek`, or remove it with"
    " `canal-server unsubscribe`",
    meaning="The position of the client is no longer in the binlog of the source: it"
    " was disconnected, or slow, for longer than binlogs are kept. A client whose"
    " get is waiting receives the error then.",
    remedy="See [a client whose position is purged](../howto/purged-positions.md).",
)

CURSOR_NOTES_DAMAGED = Message(
    name="cursor-notes-damaged",
    level=WARNING,
    text="%s is damaged (%s) and is not used: transactions with a tag in their GTID"
    " may come again, and another server is read by time",
    meaning="The machine stopped during a write, or somebody else wrote there. The"
    " cursors themselves are not affected.",
)

CURSORS_RESTORED = Message(
    name="cursors-restored",
    level=ERROR,
    text="%s is damaged (%s), %s",
    meaning="The machine stopped during a write. The server uses the backup beside the"
    " file, which is older.",
    remedy="Nothing: clients receive some changes again.",
)

LAST_SEEN_DAMAGED = Message(
    name="last-seen-damaged",
    level=WARNING,
    text="%s is damaged (%r): all clients count as seen just now",
    meaning="The server does not know for how long clients have been disconnected."
    " They hold the ring for `canal.instance.cursor.pin.seconds` from now.",
)

LAST_SEEN_NOT_WRITTEN = Message(
    name="last-seen-not-written",
    level=WARNING,
    text="%s; disconnected clients count as seen just now after the next start",
    meaning="The time of the last contact with each client cannot be stored during the"
    " shutdown. Nothing is lost.",
)

POSITION_STORED_IN_SECONDARY = Message(
    name="position-stored-in-secondary",
    level=WARNING,
    text="position %s of %s is stored in the secondary store, as the primary failed:"
    " %s",
    meaning="The first of two stores of positions does not accept writes.",
    remedy="What the reason asks for.",
)

WRITES_FAIL = Message(
    name="writes-fail",
    level=ERROR,
    text="cannot write the %s for now, trying again: %s",
    meaning="The disk is full or cannot be written to, or ZooKeeper does not answer."
    " Until it is written, more changes come again after a crash. `… this server"
    " may no longer run the destination`: the lease was lost, and clients receive"
    " again what they acked last.",
    remedy="Free space, or restore ZooKeeper. The line"
    " [writes-resumed](#writes-resumed) says when it works again.",
)

WRITES_RESUMED = Message(
    name="writes-resumed",
    level=WARNING,
    text="writing the %s works again",
    meaning="The end of [writes-fail](#writes-fail).",
)

ZOOKEEPER_READ_RETRIED = Message(
    name="zookeeper-read-retried",
    level=WARNING,
    text="%s, trying again",
    meaning="The cursors of a destination cannot be read from ZooKeeper. The"
    " destination starts when they can.",
    remedy="Restore ZooKeeper or the network to it.",
)
