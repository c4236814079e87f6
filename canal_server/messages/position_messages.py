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
    remedy="Reload its tables, then move it with `canal-server position seek`, or"
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
    remedy="Reload the tables of the client. Keep binlogs for longer"
    " (`binlog_expire_logs_seconds`).",
)

CLIENT_POSITION_LOST = Message(
    name="client-position-lost",
    level=ERROR,
    text="%s; the client is refused, the others are served: reload its tables, then"
    " move it with `canal-server position seek`, or remove it with `canal-server"
    " unsubscribe`",
    meaning="The position of the client is no longer in the binlog of the source: it"
    " was disconnected, or slow, for longer than binlogs are kept. A client with a"
    " waiting get receives this error.",
    remedy="See [a client whose position is purged](../howto/purged-positions.md).",
)

CURSOR_NOTES_DAMAGED = Message(
    name="cursor-notes-damaged",
    level=WARNING,
    text="%s is damaged (%s) and is not used: transactions with a tag in their GTID may"
    " be delivered again, and reading on another server resumes by time",
    meaning="The machine stopped during a write, or something else changed the file or"
    " node. The cursors themselves are not affected.",
)

CURSORS_RESTORED = Message(
    name="cursors-restored",
    level=ERROR,
    text="%s is damaged (%s), %s",
    meaning="The machine stopped during a write. The server uses the backup next to the"
    " file, which is older.",
    remedy="Nothing: clients receive some changes again.",
)

LAST_SEEN_DAMAGED = Message(
    name="last-seen-damaged",
    level=WARNING,
    text="%s is damaged (%r): all clients count as seen now",
    meaning="The server does not know for how long clients have been disconnected. The"
    " ring retains entries for them for `canal.instance.cursor.pin.seconds` from"
    " now on.",
)

LAST_SEEN_NOT_WRITTEN = Message(
    name="last-seen-not-written",
    level=WARNING,
    text="%s; after the next start, disconnected clients count as just seen",
    meaning="The time of the last contact with each client cannot be stored during the"
    " shutdown. Nothing is lost.",
)

POSITION_STORED_IN_SECONDARY = Message(
    name="position-stored-in-secondary",
    level=WARNING,
    text="position %s of %s is stored in the secondary store, as the primary failed:"
    " %s",
    meaning="The first of two stores of positions does not accept writes.",
    remedy="Fix the cause given in the text.",
)

WRITES_FAIL = Message(
    name="writes-fail",
    level=ERROR,
    text="cannot write the %s, retrying: %s",
    meaning="The disk is full or cannot be written to, or ZooKeeper does not answer."
    " Until writing works, more changes are delivered again after a crash. `… this"
    " server may no longer run the destination`: the lease was lost, and clients"
    " receive their last acked changes again.",
    remedy="Free space, or restore ZooKeeper. [writes-resumed](#writes-resumed) is"
    " logged when it works again.",
)

WRITES_RESUMED = Message(
    name="writes-resumed",
    level=WARNING,
    text="resumed writing the %s",
    meaning="The end of [writes-fail](#writes-fail).",
)

ZOOKEEPER_READ_RETRIED = Message(
    name="zookeeper-read-retried",
    level=WARNING,
    text="%s, retrying",
    meaning="The cursors of a destination cannot be read from ZooKeeper. The"
    " destination starts when they can.",
    remedy="Restore ZooKeeper or the network to it.",
)
