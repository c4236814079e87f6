"""Messages of the delivery to message queues."""

from __future__ import annotations

from logging import ERROR, WARNING

from canal_server.messages.message import Message

DELIVERY_BLOCKED = Message(
    name="delivery-blocked",
    level=WARNING,
    text="destination %s: %s confirms nothing: %s",
    meaning="Messages were sent, but the broker has not confirmed them for 10 s. They"
    " are sent until it does; the ring fills meanwhile, and reading stops when it is"
    " full. Nothing is lost.",
    remedy="Start the broker, or restore the connection to it; delivery continues by"
    " itself.",
)

DELIVERY_CRASHED = Message(
    name="delivery-crashed",
    level=ERROR,
    text="destination %s: delivery failed with an internal error",
    meaning="The delivery met an error that it does not expect. It begins again after"
    " the last acked batch.",
    remedy="Report the traceback that follows the line.",
)

DELIVERY_FAILED = Message(
    name="delivery-failed",
    level=WARNING,
    text="destination %s: delivery to %s failed: %s",
    meaning="The broker is not available, or cannot take messages of this kind now; or"
    " no message can be made of a change; or the destination cannot serve the delivery,"
    " for the reason in the text. Messages are sent again, at growing intervals of up"
    " to 30 s, and in the same order. With Kafka, those that it has confirmed are left"
    " out, unless the destination is the cause: then all since the last ack are sent."
    " What comes after them waits, also of other topics, though some of it may have"
    " arrived. The line is repeated every ten minutes.",
    remedy="Fix the cause given in the text; delivery continues by itself.",
)

DELIVERY_STOPPED = Message(
    name="delivery-stopped",
    level=ERROR,
    text="destination %s: delivery stopped, nothing is acked any more: %s",
    meaning="The broker refuses a message for good, so sending it again would not help."
    " The message and what comes after it are not acked, so they stay in the binlog."
    " The broker may have messages of other partitions already that come after it:"
    " they are sent again when delivery starts. No further ones are sent. The"
    " key of the row is in this line only, not in the status.",
    remedy="Raise the limits that the text names, and restart canal-server; if it was"
    " only that of the topic, press Retry on the [page](../howto/page.md), or"
    " [start the destination](rest.md#stop-and-start) by REST. Or set"
    " [`canal.mq.tooLargeTopic`](configuration.md#canalmqtoolargetopic). Or [move the"
    " client](../howto/move-a-cursor.md) 1001 to a position after the message, which is"
    " left out then; delivery continues by itself.",
)

MESSAGE_TOO_LARGE = Message(
    name="message-too-large",
    level=WARNING,
    text="destination %s: left out a message and sent a note: %s; the note is in topic"
    " %s",
    meaning="A message is larger than the broker accepts, and"
    " [`canal.mq.tooLargeTopic`](configuration.md#canalmqtoolargetopic) is set.",
    remedy="Read the rows that the note names from the database, and raise the limits"
    " that the text names.",
)

KAFKA_ANSWER_UNCLEAR = Message(
    name="kafka-answer-unclear",
    level=ERROR,
    text="topic %s: cannot determine what an answer of Kafka means: %s",
    meaning="Kafka did not accept a message, and the delivery met an error that it does"
    " not expect when it looked for the reason. The message is sent again.",
    remedy="Report the traceback that follows the line.",
)

SCHEMA_REFUSED = Message(
    name="schema-refused",
    level=ERROR,
    text="destination %s: delivery stopped, the registry refuses a schema: %s",
    meaning="The columns of a table have changed in a way that the registry does not"
    " accept for this subject, as its compatibility level says; tables that share a"
    " subject may differ; or the registry lacks the schema and may not be given any."
    " Nothing is acked since. The registry is asked again every 30 s.",
    remedy="Set the compatibility of the subject in the registry, for example to"
    " `NONE`, or register the schema; delivery continues by itself. If tables share a"
    " topic, give each its own, or set"
    " [`canal.mq.schema.registry.subject.name.strategy`]"
    "(configuration.md#canalmqschemaregistrysubjectnamestrategy).",
)

NO_POSITION_AFTER_WAIT = Message(
    name="no-position-after-wait",
    level=WARNING,
    text="destination %s: the brokers could not be asked for its position since %s, and"
    " have none; %s, so it begins at the end of the binlog now; to deliver what the"
    " binlog has of the time before, run `canal-server position seek %s--destination %s"
    " --client-id %s --to %s`",
    meaning="A destination that has never delivered anything, and has no"
    " [start position](configuration.md#canalinstancemasterjournalname), begins at the"
    " end of the binlog. With"
    " [`canal.mq.exactlyOnce`](configuration.md#canalmqexactlyonce), whether it has"
    " delivered something is known only when the brokers answer. It begins where the"
    " binlog ended when it started, unless the source could not be asked for that, or"
    " has purged what follows.",
    remedy="Run the command in the text, or configure where it starts.",
)

POSITION_NOT_READ = Message(
    name="position-not-read",
    level=WARNING,
    text="destination %s waits for its position in the message queue: %s",
    meaning="With [`canal.mq.exactlyOnce`](configuration.md#canalmqexactlyonce), the"
    " message queue has the position at which the destination begins, and cannot be"
    " asked now. The destination does not run until it can. One that has delivered"
    " nothing before begins then where the binlog ended at this start: leave the server"
    " running until the brokers answer.",
    remedy="Start the brokers, or fix the cause given in the text; the destination"
    " starts by itself.",
)
