"""Messages of one mirrored table: copy, stop, drop, upkeep."""

from __future__ import annotations

from logging import ERROR, WARNING

from canal_server.messages.message import Message

MIRROR_TABLE_COPIED_AGAIN = Message(
    name="mirror-table-copied-again",
    level=WARNING,
    text="%s is copied again: %s",
    meaning="The table changed in a way that the stream cannot follow, or its copy is"
    " not what the mirror wrote, and `drift` is `copy`. The text says why; see"
    " [reasons](#a-table-is-copied-again).",
    remedy="Nothing. A table that has to be copied several times in a row waits longer"
    " each time; once the cause is fixed, `mirror copy` ends the wait.",
)

MIRROR_TABLE_DIFFERS = Message(
    name="mirror-table-differs",
    level=WARNING,
    text="%s: its copy differs from the source: %s at %s",
    meaning="The comparison that `verify.every` asks for has found rows that differ."
    " `mirror status` shows it until the table is compared again.",
    remedy="`canal-server mirror verify` with the name of the table shows the rows. If"
    " [foreign keys](../howto/mirror-foreign-keys.md) or statements without their rows"
    " do not explain it, report it; `mirror copy` makes a new copy.",
)

MIRROR_TABLE_ENDS_STREAMS = Message(
    name="mirror-table-ends-streams",
    level=WARNING,
    text="%s: streams that read it in the lake end: %s",
    meaning="The table gets other columns, and Delta cannot continue a stream over"
    " such a change: over another type, or a column that disappears. If it is copied"
    " again, this happens when the copy is done.",
    remedy="Start these streams again with new checkpoints. Queries are not affected.",
)

MIRROR_TABLE_DROPPED = Message(
    name="mirror-table-dropped",
    level=WARNING,
    text="%s: dropped: %s",
    meaning="The source no longer has the table. Its copy stays in the lake.",
    remedy="Delete the copy if nobody needs it.",
)

MIRROR_TABLE_GRANT_MISSING = Message(
    name="mirror-table-grant-missing",
    level=WARNING,
    text="%s: account %s no longer sees it, so it cannot be copied: have an"
    " administrator run: GRANT SELECT ON %s TO %s",
    meaning="Privileges were revoked. The stream still follows the table.",
    remedy="Run the GRANT of the message: without it the table cannot be copied again.",
)

MIRROR_TABLE_LEFTOVER = Message(
    name="mirror-table-leftover",
    level=WARNING,
    text="%s: cannot delete the working files of its copy: %s",
    meaning="Files of a copy that is finished or abandoned stay in the folder of the"
    " mirror. Nothing reads them.",
    remedy="Delete them if they need too much space.",
)

MIRROR_TABLE_NOT_COMPARED = Message(
    name="mirror-table-not-compared",
    level=WARNING,
    text="%s: cannot compare its copy with the source: %s; retrying in %s",
    meaning="A comparison that `verify.every` asks for has failed. The stream is not"
    " affected.",
    remedy="Nothing if a later one succeeds; otherwise do what the text says. A table"
    " without a key can be compared only while nobody writes to it.",
)

MIRROR_TABLE_RETRIED = Message(
    name="mirror-table-retried",
    level=WARNING,
    text="%s: %s; retrying in %.0f s",
    meaning="The copy of the table failed, as the database, canal-server or the lake"
    " did not answer or was not ready. The text says which; see"
    " [reasons](#a-copy-waits).",
    remedy="Nothing if it recovers; otherwise do what the text says.",
)

MIRROR_TABLE_PARTITIONED = Message(
    name="mirror-table-partitioned",
    level=WARNING,
    text="%s: its copy has %d partitions, each with files of its own: changes and"
    " queries of the table are slower for it",
    meaning="`partition_by` of the rule gives the table more partitions than are useful"
    " in a lake. The text is logged once until the mirror is started again.",
    remedy="Choose a column with fewer values, or month(column) instead of"
    " day(column), or bucket(16, column); the table is copied again then.",
)

MIRROR_TABLE_STOPPED = Message(
    name="mirror-table-stopped",
    level=ERROR,
    text="%s: stopped: %s",
    meaning="The mirror does not follow the table until an operator decides. The other"
    " tables continue. The text says why; see [reasons](#a-table-is-stopped).",
    remedy="Do what the text says, usually `canal-server mirror copy`.",
)

MIRROR_TABLE_STOPPED_BEFORE = Message(
    name="mirror-table-stopped-before",
    level=WARNING,
    text="%s is still stopped: %s",
    meaning="The table was stopped before the mirror was started, for the reason in"
    " the text.",
    remedy="As for [mirror-table-stopped](#mirror-table-stopped).",
)

MIRROR_TABLE_UNWANTED = Message(
    name="mirror-table-unwanted",
    level=WARNING,
    text="%s: %s; its copy stays in the lake",
    meaning="The settings or the source no longer include the table.",
    remedy="Delete the copy if nobody needs it.",
)

MIRROR_UPKEEP_CRASHED = Message(
    name="mirror-upkeep-crashed",
    level=ERROR,
    text="%s: the upkeep of its copy failed: %s",
    meaning="Compaction or vacuum met an unexpected error. It is retried after its"
    " interval.",
    remedy="Report the traceback that follows the line.",
)

MIRROR_UPKEEP_FAILED = Message(
    name="mirror-upkeep-failed",
    level=WARNING,
    text="%s: the upkeep of its copy failed: %s",
    meaning="Compaction or vacuum of the table failed. It is retried after its"
    " interval.",
    remedy="Nothing, unless it persists.",
)
