"""Messages of a mirror's stream: its start, failures, foreign keys."""

from __future__ import annotations

from logging import WARNING

from canal_server.messages.message import Message

MIRROR_CHECKPOINT_CLEARED = Message(
    name="mirror-checkpoint-cleared",
    level=WARNING,
    text="%s: clearing %s",
    meaning="The checkpoint of the stream does not match the lake, so the checkpoint is"
    " deleted, and the stream restarts at the lake's position.",
    remedy="Nothing, unless the mirror then ends: run `mirror copy --all`.",
)

MIRROR_FOREIGN_KEY = Message(
    name="mirror-foreign-key",
    level=WARNING,
    text="%s",
    meaning="Rows that a foreign key changes are not in the binlog, so the"
    " copy of the table keeps rows that the source no longer has.",
    remedy="See [foreign keys](../howto/mirror-foreign-keys.md).",
)

MIRROR_FOREIGN_KEYS_NOT_COMPARED = Message(
    name="mirror-foreign-keys-not-compared",
    level=WARNING,
    text="%s: cannot compare its rows with the source: %s; retrying in %.0f s",
    meaning="The mirror compares a table with foreign keys to find the rows that these"
    " changed. The database does not answer, or commits are delayed there.",
    remedy="Nothing if it recovers.",
)

MIRROR_FOREIGN_KEYS_NOT_LISTED = Message(
    name="mirror-foreign-keys-not-listed",
    level=WARNING,
    text="cannot list the foreign keys of the source: %s; retrying in %.0f s",
    meaning="The database does not answer. The known foreign keys remain in effect.",
    remedy="Nothing if it recovers.",
)

MIRROR_PARTITIONS_NOT_LISTED = Message(
    name="mirror-partitions-not-listed",
    level=WARNING,
    text="cannot list the partitions of the source's tables: %s; retrying in %.0f s",
    meaning=(
        "The database or canal-server does not answer. Until they are known, a table "
        "whose partitions are dropped or emptied is copied again or stopped."
    ),
    remedy="Nothing if it recovers.",
)

MIRROR_ROWS_NOT_READ_AGAIN = Message(
    name="mirror-rows-not-read-again",
    level=WARNING,
    text="cannot reread the rows that foreign keys changed: %s; retrying in %.0f s",
    meaning="The database does not answer, or commits are delayed there.",
    remedy="Nothing if it recovers.",
)

MIRROR_STREAM_FAILED = Message(
    name="mirror-stream-failed",
    level=WARNING,
    text="the stream failed: %s; restarting it in %.0f s",
    meaning="A batch of the stream failed, and the text says why. Nothing is"
    " half-applied. `Python worker failed to connect back`: a process of Spark did"
    " not start within ten seconds, as the machine is too busy. `mirror status`"
    " shows since when the stream has been failing.",
    remedy="Nothing if it happened once; the mirror retries indefinitely. On a busy"
    " machine, use more cores or fewer `copy.connections`.",
)

MIRROR_STREAM_NOT_STARTED = Message(
    name="mirror-stream-not-started",
    level=WARNING,
    text="cannot start the stream: %s",
    meaning="Spark or canal-server refused the start, and the text says why. The start"
    " is retried indefinitely.",
    remedy="As for [mirror-stream-failed](#mirror-stream-failed).",
)

MIRROR_SUBSCRIPTION_BEHIND = Message(
    name="mirror-subscription-behind",
    level=WARNING,
    text="subscription %s is at %s, and the lake is at %s: recreating it",
    meaning="Somebody else recreated the subscription, or canal-server lost its data.",
    remedy="Nothing: it is recreated [at the lake's"
    " position](../explanation/mirror.md#the-life-of-a-table).",
)

MIRROR_SUBSCRIPTION_MISSING = Message(
    name="mirror-subscription-missing",
    level=WARNING,
    text="canal-server does not have subscription %s (any more): it was removed, the"
    " server has lost its data, or canal.servers names another one: creating it",
    meaning="canal-server does not have the subscription of the mirror.",
    remedy="Nothing: it is recreated [at the lake's"
    " position](../explanation/mirror.md#the-life-of-a-table).",
)

MIRROR_TABLES_NOT_LISTED = Message(
    name="mirror-tables-not-listed",
    level=WARNING,
    text="cannot list the tables of the source: %s; retrying in %.0f s",
    meaning="The database does not answer. Until it does, dropped tables are not"
    " noticed.",
    remedy="Nothing if it recovers.",
)
