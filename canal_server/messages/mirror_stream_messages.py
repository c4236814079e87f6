"""Messages of a mirror's stream: its start, failures, foreign keys."""

from __future__ import annotations

from logging import WARNING

from canal_server.messages.message import Message

MIRROR_CHECKPOINT_CLEARED = Message(
    name="mirror-checkpoint-cleared",
    level=WARNING,
    text="%s: clearing %s",
    meaning="The checkpoint of the stream and the lake are not of the same time, so"
    " the checkpoint is deleted, and the stream starts again from what the lake"
    " has.",
    remedy="Nothing, unless the mirror ends with it: then `mirror copy --all`.",
)

MIRROR_FOREIGN_KEY = Message(
    name="mirror-foreign-key",
    level=WARNING,
    text="%s",
    meaning="Rows that a foreign key changes are in no event of the binlog, so the"
    " copy of the table keeps rows that the source no longer has.",
    remedy="See [foreign keys](../howto/mirror-foreign-keys.md).",
)

MIRROR_FOREIGN_KEYS_NOT_COMPARED = Message(
    name="mirror-foreign-keys-not-compared",
    level=WARNING,
    text="%s: cannot compare its rows with the source, for its foreign keys: %s;"
    " trying again in %.0f s",
    meaning="The database does not answer, or commits are delayed there.",
    remedy="Nothing if it comes back.",
)

MIRROR_FOREIGN_KEYS_NOT_LISTED = Message(
    name="mirror-foreign-keys-not-listed",
    level=WARNING,
    text="cannot list the foreign keys of the source: %s; trying again in %.0f s",
    meaning="The database does not answer. The foreign keys that are known still"
    " count.",
    remedy="Nothing if it comes back.",
)

MIRROR_ROWS_NOT_READ_AGAIN = Message(
    name="mirror-rows-not-read-again",
    level=WARNING,
    text="cannot read again the rows that foreign keys changed: %s; trying again in"
    " %.0f s",
    meaning="The database does not answer, or commits are delayed there.",
    remedy="Nothing if it comes back.",
)

MIRROR_STREAM_FAILED = Message(
    name="mirror-stream-failed",
    level=WARNING,
    text="the stream failed: %s; starting it again in %.0f s",
    meaning="A batch of the stream failed, and the text says why. Nothing is"
    " half-applied. `Python worker failed to connect back`: a process of Spark did"
    " not start within ten seconds, as the machine is too busy. `mirror status`"
    " shows since when the stream fails.",
    remedy="Nothing if it was once; the mirror tries again without end. For a busy"
    " machine, more cores or fewer `copy.connections`.",
)

MIRROR_STREAM_NOT_STARTED = Message(
    name="mirror-stream-not-started",
    level=WARNING,
    text="cannot start the stream: %s",
    meaning="Spark or canal-server refuses the start, and the text says why. It is"
    " tried again without end.",
    remedy="As for [mirror-stream-failed](#mirror-stream-failed).",
)

MIRROR_SUBSCRIPTION_BEHIND = Message(
    name="mirror-subscription-behind",
    level=WARNING,
    text="subscription %s is at %s, and the lake is at %s: it is created again",
    meaning="The subscription was created again by somebody else, or canal-server lost"
    " its data.",
    remedy="Nothing: it is created again [where the lake"
    " is](../explanation/mirror.md#the-life-of-a-table).",
)

MIRROR_SUBSCRIPTION_MISSING = Message(
    name="mirror-subscription-missing",
    level=WARNING,
    text="subscription %s no longer exists, as somebody removed it or canal-server"
    " lost its data: it is created again",
    meaning="canal-server does not have the subscription of the mirror.",
    remedy="Nothing: it is created again [where the lake"
    " is](../explanation/mirror.md#the-life-of-a-table).",
)

MIRROR_TABLES_NOT_LISTED = Message(
    name="mirror-tables-not-listed",
    level=WARNING,
    text="cannot list the tables of the source: %s; trying again in %.0f s",
    meaning="The database does not answer. The mirror asks which tables were dropped.",
    remedy="Nothing if it comes back.",
)
