"""Messages of the table history and of statements that change tables."""

from __future__ import annotations

from logging import WARNING

from canal_server.messages.message import Message

BINLOG_RESET = Message(
    name="binlog-reset",
    level=WARNING,
    text="destination %s: binlog file %s is another one than the table history knows,"
    " so the binlog was reset",
    meaning="The source was restored, or its binlog was deleted (`RESET BINARY LOGS"
    " AND GTIDS`). A new table history starts.",
    remedy="Nothing, unless a `BinlogPurged` or `TableMetaError` follows.",
)

DDL_NOT_PARSED = Message(
    name="ddl-not-parsed",
    level=WARNING,
    text="the statement %.60r in schema %r cannot be parsed (%s), and clients receive"
    " it as QUERY without a table",
    meaning="The statement has a form that the parser does not know. Only its"
    " beginning is shown, as it may contain a password. Tables that it may change"
    " are compared with the source.",
    remedy="Report the form of the statement.",
)

DDL_NOT_UNDERSTOOD = Message(
    name="ddl-not-understood",
    level=WARNING,
    text="%s: the table history cannot follow the statement at %s: %s",
    meaning="The effect of the statement on tables is not known. Tables that it may"
    " change are [uncertain](../explanation/table-history.md#uncertain-tables)"
    " until they are read from the source.",
    remedy="Nothing, unless a `TableMetaError` follows; report the statement.",
)

HISTORY_CONTRADICTED = Message(
    name="history-contradicted",
    level=WARNING,
    text="destination %s: the binlog at %s contradicts the history of table %s.%s: the"
    " table was altered or created without a statement in the binlog (sql_log_bin"
    " = 0, a physical copy), or a statement was not understood; the table is read"
    " as the server has it now, and earlier rows may have been read with other"
    " columns",
    meaning="The columns in the binlog are not those that the history has for the"
    " table.",
    remedy="See with [`schema"
    " verify`](../howto/table-history.md#does-it-match-the-source) whether more"
    " differs. Report a statement that was not understood.",
)

HISTORY_END_NOT_WRITTEN = Message(
    name="history-end-not-written",
    level=WARNING,
    text="%s: cannot write the end of the table history: %s",
    meaning="The history cannot be stored during the shutdown. Nothing is lost: that"
    " part of the binlog is read again after the next start.",
    remedy="What the reason asks for.",
)

HISTORY_NOT_LOCKED = Message(
    name="history-not-locked",
    level=WARNING,
    text="destination %s: nothing keeps a second server from writing the same table"
    " history on %s, as that server has no named locks: %s",
    meaning="The MySQL of `canal.instance.tsdb.url` refuses `GET_LOCK`, as a Galera"
    " cluster in strict mode does.",
    remedy="See that only one server runs the destination.",
)

HISTORY_NOT_TRANSFERRED = Message(
    name="history-not-transferred",
    level=WARNING,
    text="destination %s: the table history of server %s cannot be transferred to %s"
    " of server %s: %s; all tables are read from the source",
    meaning="Another server became the source, and the table schemas on it are not"
    " known for the reason in the text. Until the statements in between have"
    " passed, tables are"
    " [uncertain](../explanation/table-history.md#uncertain-tables).",
    remedy="Nothing, unless a `TableMetaError` follows. Keep binlogs for longer on"
    " both servers if they were purged (`binlog_expire_logs_seconds`).",
)

HISTORY_PURGED = Message(
    name="history-purged",
    level=WARNING,
    text="destination %s: the table history covers %s to %s, and the binlog between it"
    " and %s is purged, so a new history starts",
    meaning="Statements in the purged part may have changed tables. They are read from"
    " the source as they are now.",
    remedy="Nothing, unless a `TableMetaError` follows. Keep binlogs for longer"
    " (`binlog_expire_logs_seconds`).",
)

HISTORY_SNAPSHOT_DELETED = Message(
    name="history-snapshot-deleted",
    level=WARNING,
    text="destination %s: the snapshot at the start of the table history from %s to %s"
    " was deleted from meta_snapshot in %s: %s",
    meaning="A Java server that shares the database deletes snapshots by their age."
    " The text says what is left of the history.",
    remedy="Give each server its own database if ranges of before are still to be"
    " read.",
)

HISTORY_STARTS_LATE = Message(
    name="history-starts-late",
    level=WARNING,
    text="destination %s: the table history starts at %s, after %s, where reading"
    " starts, and %d statements on tables are in between; until they have passed,"
    " tables that they name may have had other columns, and are checked against"
    " the binlog",
    meaning="The destination was started in the past, before its first dump of the"
    " tables. See [uncertain"
    " tables](../explanation/table-history.md#uncertain-tables).",
    remedy="Nothing, unless a `TableMetaError` follows.",
)

JAVA_HISTORY_IGNORED = Message(
    name="java-history-ignored",
    level=WARNING,
    text="destination %s: %s is the table history of a Java server, which cannot be"
    " read: the history starts now, and earlier events are read with the columns"
    " of now, checked against the binlog where it names them",
    meaning="The Java server kept its history in an H2 file.",
    remedy="Nothing, unless a `TableMetaError` follows. See"
    " [migrating](../howto/migrate-from-java.md).",
)

JAVA_SNAPSHOT_UNREADABLE = Message(
    name="java-snapshot-unreadable",
    level=WARNING,
    text="destination %s: cannot read a snapshot of the Java server at %s in %s (%s)",
    meaning="A table in it is not what a Java server writes. The next snapshot is"
    " tried.",
    remedy="Nothing, unless a `TableMetaError` follows.",
)

TABLE_LEFT_OUT_OF_HISTORY = Message(
    name="table-left-out-of-history",
    level=WARNING,
    text="not in the table history: %s",
    meaning="The source did not show the definition of the table, for the reason in"
    " the text.",
    remedy="What the reason asks for, for instance repair or drop a view or table that"
    " is broken.",
)

TABLE_NOT_IN_HISTORY = Message(
    name="table-not-in-history",
    level=WARNING,
    text="destination %s: table %s.%s, which the binlog at %s changes, was not in the"
    " history: the account had no SELECT on it when the history started, or the"
    " table was created without a statement in the binlog (sql_log_bin = 0, a"
    " physical copy); it is in the history from now on, as the server has it now",
    meaning="The history adds the table as the source has it now.",
)

TABLE_SCHEMA_UNCERTAIN = Message(
    name="table-schema-uncertain",
    level=WARNING,
    text="destination %s: the columns of table %s.%s at this position are not certain;"
    " rows are read with the known ones as long as the binlog does not contradict"
    " them",
    meaning="Reading started before the history did, or a statement does not say its"
    " result.",
    remedy="Nothing, unless a `TableMetaError` follows; see [uncertain"
    " tables](../explanation/table-history.md#uncertain-tables).",
)

TABLE_UNREADABLE = Message(
    name="table-unreadable",
    level=WARNING,
    text="cannot read the definition of table %s.%s from the source: %s",
    meaning="The source refuses SHOW CREATE TABLE, for the reason in the text.",
    remedy="GRANT SELECT on the table, or what the reason asks for.",
)

TABLES_LEFT_OUT_OF_HISTORY = Message(
    name="tables-left-out-of-history",
    level=WARNING,
    text="%d more tables are not in the table history",
    meaning="More tables as in"
    " [table-left-out-of-history](#table-left-out-of-history), which are not"
    " listed.",
    remedy="As there.",
)
