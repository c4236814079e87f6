"""Messages of the Python client; they are in the log of the program that uses it."""

from __future__ import annotations

from logging import WARNING

from canal_server.messages.message import Message

CLIENT_RECONNECTS = Message(
    name="client-reconnects",
    level=WARNING,
    text="destination %s: no connection to %s: %s; next attempt in %.1f s",
    meaning="A Python client lost its connection, or could not connect. Once connected,"
    " it resumes after its last ack; what it had not acked is delivered again.",
    remedy="Nothing, unless it persists: then check the server, and the address that"
    " the client uses.",
)

TRANSACTION_WAITS = Message(
    name="transaction-waits",
    level=WARNING,
    text="destination %s: nothing arrived for %.1f s, after %d bytes of a transaction;"
    " the client waits for its end",
    meaning="A Python client with whole_transactions has a part of a transaction, and"
    " the server is not waiting for the client: the source, or its connection to the"
    " server, is slow or interrupted. Or the server leaves out the begins and ends of"
    " transactions.",
    remedy="Check the destination with `canal-server status`, and that"
    " canal.instance.filter.transaction.entry is not true.",
)

HANDLER_RETRIES = Message(
    name="handler-retries",
    level=WARNING,
    text="handler failed: %s; next attempt in %.1f s",
    meaning="The handler of `canal-server consume` raised an error, and is called again"
    " with the changes that are not flushed. Nothing is acked in the meantime, so"
    " the server retains these changes.",
    remedy="Check the target of the handler if the message repeats"
    " ([retries](../howto/consume.md#when-a-change-fails)).",
)

DEAD_LETTER = Message(
    name="dead-letter",
    level=WARNING,
    text="dead letter: %s, failed %d times: %s",
    meaning="A change failed for good. It is in the file of `--dead-letter`, with the"
    " reason; the consumer continues with the next one.",
    remedy="Fix the cause, and process the change by hand ([dead"
    " letters](../howto/consume.md#dead-letters)).",
)

ROTATION_FAILS = Message(
    name="rotation-fails",
    level=WARNING,
    text="%s was not rotated: %s; next attempt in %.1f s",
    meaning="The handler json-lines of `canal-server consume` could not rename its"
    " file, or could not create the next one. It continues with the file that it has;"
    " nothing is lost.",
    remedy="Check the disk, and the rights of the folder.",
)
