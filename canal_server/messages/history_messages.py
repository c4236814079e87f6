"""Messages of the table history and of statements that change tables."""

from __future__ import annotations

from logging import WARNING

from canal_server.messages.message import Message

BINLOG_RESET = Message(
    name="binlog-reset",
    level=WARNING,
    text="destination %s: binlog file %s is not the one that the table history knows,"
    " so the binlog was reset",
    meaning="The source was restored, or its binlog was deleted (`RESET BINARY LOGS"
    " AND GTIDS`). A new table history starts.",
    remedy="Nothing, unless a `BinlogPurged` or `TableMetaError` follows.",
)

DDL_NOT_PARSED = Message(
    name="ddl-not-parsed",
    level=WARNING,
    text="the statement %.60r in schema %r cannot be parsed (%s); clients receive it as"
    " QUERY without a table",
    meaning="The parser does not know the syntax of the statement. Only its beginning"
    " is shown, as it may contain a password. Tables that it may change are"
    " compared with the source.",
    remedy="Report the syntax of the statement.",
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
    " table was altered or created without a statement in the binlog (sql_log_bin ="
    " 0, a physical copy), or a statement was not understood; from now on it is"
    " read with its current definition on the server, and earlier rows may have"
    " been read with wrong columns",
    meaning="The columns in the binlog are not those that the history has for the"
    " table.",
    remedy="Check with [`schema"
    " verify`](../howto/table-history.md#does-it-match-the-source) whether other"
    " tables differ. Report a statement that was not understood.",
)

HISTORY_END_NOT_WRITTEN = Message(
    name="history-end-not-written",
    level=WARNING,
    text="%s: cannot write the end of the table history: %s",
    meaning="The history cannot be stored during the shutdown. Nothing is lost: that"
    " part of the binlog is read again after the next start.",
    remedy="Fix the cause given in the text.",
)

HISTORY_NOT_LOCKED = Message(
    name="history-not-locked",
    level=WARNING,
    text="destination %s: nothing prevents a second server from writing the same table"
    " history on %s, which has no named locks: %s",
    meaning="The MySQL of `canal.instance.tsdb.url` refuses `GET_LOCK`, as a Galera"
    " cluster in strict mode does.",
    remedy="Make sure that only one server runs the destination.",
)

HISTORY_NOT_TRANSFERRED = Message(
    name="history-not-transferred",
    level=WARNING,
    text="destination %s: the table history of server %s cannot be transferred to %s"
    " of server %s: %s; all tables are read from the source",
    meaning="Another server became the source, and the table schemas on it are not"
    " known for the reason in the text. Until the statements in between have been"
    " read, tables are"
    " [uncertain](../explanation/table-history.md#uncertain-tables).",
    remedy="Nothing, unless a `TableMetaError` follows. Keep binlogs for longer on"
    " both servers if they were purged (`binlog_expire_logs_seconds`).",
)

HISTORY_PURGED = Message(
    name="history-purged",
    level=WARNING,
    text="destination %s: the table history covers %s to %s, and the binlog between it"
    " and %s was purged, so a new history starts",
    meaning="Statements in the purged part may have changed tables. The current"
    " definitions are read from the source.",
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
    remedy="Give each server its own database if older ranges are still to be read.",
)

HISTORY_STARTS_LATE = Message(
    name="history-starts-late",
    level=WARNING,
    text="destination %s: the table history starts at %s, after %s, where reading"
    " starts, and %d statements on tables are in between; until they have been"
    " read, the columns of the tables that they name are uncertain, and are checked"
    " against the binlog",
    meaning="Reading starts at a position before the first dump of the tables. See"
    " [uncertain tables](../explanation/table-history.md#uncertain-tables).",
    remedy="Nothing, unless a `TableMetaError` follows.",
)

JAVA_HISTORY_IGNORED = Message(
    name="java-history-ignored",
    level=WARNING,
    text="destination %s: %s is the table history of a Java server, which cannot be"
    " read: a new history starts now, and earlier events are read with the current"
    " columns, checked against the binlog where it names them",
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
    remedy="Fix the cause given in the text, for instance repair or drop a broken view"
    " or table.",
)

TABLE_NOT_IN_HISTORY = Message(
    name="table-not-in-history",
    level=WARNING,
    text="destination %s: table %s.%s, which the binlog at %s changes, was not in the"
    " history: the account had no SELECT on it when the history started, or the"
    " table was created without a statement in the binlog (sql_log_bin = 0, a"
    " physical copy); from now on its current definition is in the history",
    meaning="The current definition of the table was added to the history.",
)

TABLE_SCHEMA_UNCERTAIN = Message(
    name="table-schema-uncertain",
    level=WARNING,
    text="destination %s: the columns of table %s.%s at this position are not certain;"
    " rows are read with the known ones unless the binlog contradicts them",
    meaning="Reading started before the history did, or the text of a statement does"
    " not determine its result.",
    remedy="Nothing, unless a `TableMetaError` follows; see [uncertain"
    " tables](../explanation/table-history.md#uncertain-tables).",
)

TABLE_UNREADABLE = Message(
    name="table-unreadable",
    level=WARNING,
    text="cannot read the definition of table %s.%s from the source: %s",
    meaning="The source refuses SHOW CREATE TABLE, for the reason in the text.",
    remedy="GRANT SELECT on the table, or fix the cause given in the text.",
)

TABLES_LEFT_OUT_OF_HISTORY = Message(
    name="tables-left-out-of-history",
    level=WARNING,
    text="%d more tables are not in the table history",
    meaning="There are more such tables, which are not listed.",
    remedy="As for [table-left-out-of-history](#table-left-out-of-history).",
)
