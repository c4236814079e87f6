"""Messages of the Spark source; they are in the log of Spark's driver or executors."""

from __future__ import annotations

from logging import WARNING

from canal_server.messages.message import Message

SPARK_ACK_FAILED = Message(
    name="spark-ack-failed",
    level=WARNING,
    text="%s: subscription %s cannot be acked at %s: %s; the next ack includes it",
    meaning="canal-server did not answer when Spark committed a batch. Nothing is"
    " lost.",
    remedy="Nothing, unless it persists: then check canal-server.",
)

SPARK_CHANGES_LOST = Message(
    name="spark-changes-lost",
    level=WARNING,
    text="%s",
    meaning="Changes that the query needs are no longer in the binlog, and the query"
    " continues without them, as `failOnDataLoss` is false. The text names the"
    " positions and the reason.",
    remedy="Reload the tables if the changes matter. Keep binlogs for longer"
    " (`binlog_expire_logs_seconds`).",
)

SPARK_ROWS_CHANGED_BY_STATEMENT = Message(
    name="spark-rows-changed-by-statement",
    level=WARNING,
    text="%s: %s",
    meaning="A statement such as TRUNCATE TABLE changed rows, and the binlog has no"
    " change for each row. `truncates` is not `fail`, so the query continues.",
    remedy="Do the same in the target of the query, as the text says.",
)

SPARK_START_PURGED = Message(
    name="spark-start-purged",
    level=WARNING,
    text="%s: %s; the stream begins at `earliest`, without the earlier changes, as"
    " failOnDataLoss is false",
    meaning="`startingPosition` is no longer in the binlog.",
    remedy="Reload the tables if the changes matter, or set another"
    " `startingPosition`.",
)
