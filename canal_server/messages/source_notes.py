"""Notes on errors and warnings of a source."""

from __future__ import annotations

from typing import Final

from canal_server.messages.note import Note

SOURCE_ERRORS: Final = (
    Note(
        error="ConnectionLost",
        fragments=(
            "cannot connect to",
            "the server closed the connection",
            "has sent nothing for",
        ),
        meaning="The source, or the network to it, is down.",
        remedy="Nothing if it recovers: reading resumes where it stopped.",
    ),
    Note(
        error="ConnectionLost",
        fragments=("two replicas use one id",),
        meaning="Another replica has the same server id.",
        remedy="Leave `canal.instance.mysql.slaveId` at 0, or give each instance its"
        " own.",
    ),
    Note(
        error="SourceRefused",
        fragments=("Access denied … (error 1045)",),
        meaning="The name or the password is wrong.",
        remedy="Correct `canal.instance.dbUsername` and `canal.instance.dbPassword`,"
        " and press Retry on [the page](../howto/page.md#start-and-retry), or [restart"
        " the server](../howto/start-and-stop.md#change-settings). A password in [a"
        " file](../howto/secrets.md) is read again by itself.",
        is_foreign=True,
    ),
    Note(
        error="SourceRefused",
        fragments=("… (error 1227)",),
        meaning="The account lacks a privilege. Other errors whose text shows a GRANT"
        " mean the same.",
        remedy="Run the GRANT that the text shows. It names the account with the host"
        " for which it was created.",
        is_foreign=True,
    ),
    Note(
        error="SourceRefused",
        fragments=("the server requires TLS",),
        meaning="The server accepts no connections without TLS (error 3159).",
        remedy="Set `canal.instance.master.sslMode = REQUIRED`.",
    ),
    Note(
        error="SourceRefused",
        fragments=("the server's certificate was rejected",),
        meaning="No trusted authority has signed the certificate of the server.",
        remedy="Set `canal.instance.master.sslCa`, or another `sslMode`.",
    ),
    Note(
        error="SourceRefused",
        fragments=("no version of TLS that both sides allow",),
        meaning="The server knows no TLS 1.2, as MySQL 5.6 and 5.7 before 5.7.28, or"
        " not what `canal.instance.master.tlsVersions` allows.",
        remedy="Upgrade the server, or allow another version. In a network that you"
        " trust, set `canal.instance.master.sslMode = DISABLED`.",
    ),
    Note(
        error="SourceRefused",
        fragments=("the server's TLS has no secure renegotiation",),
        meaning="The server was built with a TLS library that does not protect"
        " connections from RFC 5746's attack, as MariaDB's own binaries of 10.4 were"
        " with WolfSSL.",
        remedy="Use a build with OpenSSL, as those of distributions are. In a network"
        " that you trust, set `canal.instance.master.sslMode = DISABLED`.",
    ),
    Note(
        error="SourceRefused",
        fragments=(
            "the server requests the password encrypted with a key that it sends",
        ),
        meaning="The account uses SHA-256 authentication, and the connection has no"
        " TLS.",
        remedy="Set `canal.instance.master.sslMode = REQUIRED`, or [a"
        " key](../howto/security.md).",
    ),
    Note(
        error="SourceRefused",
        fragments=("binary logging is off", "server_id is 0"),
        meaning="The server keeps no binlog for replicas.",
        remedy="Set `log_bin` and `server_id`, and restart the server.",
    ),
    Note(
        error="SourceRefused",
        fragments=("binlog_storage_engine is …",),
        meaning="A MariaDB since 12.3 that keeps its binlog in InnoDB sends events"
        " without files and offsets, so that no position can be stored.",
        remedy="Remove `binlog_storage_engine` from the configuration of the server,"
        " and restart it. The binlog in files begins empty then: reload the tables, or"
        " change the setting while nothing is written and everything is delivered.",
    ),
    Note(
        error="SourceRefused",
        fragments=("binlog_format is … allowed by", "binlog_row_image is … allowed by"),
        meaning="`canal.instance.binlog.format` or `canal.instance.binlog.image` does"
        " not allow the value of the server.",
        remedy="Run the SET GLOBAL of the text (open sessions keep the old value), or"
        " allow the value.",
    ),
    Note(
        error="SourceRefused",
        fragments=("account … lacks …",),
        meaning="The account has no right to read the binlog. The text also has"
        " everything else that prevents the source from being read.",
        remedy="Run the GRANT of the text. [`canal-server check`](../howto/check.md)"
        " shows whether all is well then.",
    ),
    Note(
        error="SourceRefused",
        fragments=("max_allowed_packet",),
        meaning="A row is larger than the server may send, or the start position is"
        " not the beginning of an event.",
        remedy="Raise `max_allowed_packet` on the source if rows are that large;"
        " otherwise [start elsewhere](../howto/start-elsewhere.md).",
    ),
    Note(
        error="ArchiveError",
        fragments=("replace it with an intact copy",),
        meaning="An [archived binlog file](../howto/archived-binlogs.md) is truncated,"
        " damaged or encrypted, or no binlog. The text has the file and the offset.",
        remedy="Replace the file; reading resumes by itself.",
    ),
    Note(
        error="ArchiveError",
        fragments=("without the event that closes a file",),
        meaning="An archived binlog file was copied before the server had finished it,"
        " or the server crashed at its end.",
        remedy="[Replace the file, or confirm that it is"
        " complete](../howto/archived-binlogs.md#when-a-file-cannot-be-read).",
    ),
    Note(
        error="ArchiveError",
        fragments=("is not the one before",),
        meaning="The last archived file and the next file are not of one binlog: the"
        " binlog was reset, or the archive is of another server.",
        remedy="Remove the files that are not of this binlog from the archive.",
    ),
    Note(
        error="ArchiveError",
        fragments=("has files of several binlogs",),
        meaning="The directory of archived binlog files has files with different base"
        " names.",
        remedy="Use one directory for each server.",
    ),
    Note(
        error="BinlogPurged",
        fragments=("and so has the archive", "comes before what can be read"),
        meaning="Neither the source nor its archive has what is needed.",
        remedy="Add the missing files to the [archive](../howto/archived-binlogs.md).",
    ),
    Note(
        error="BinlogPurged",
        fragments=("Could not find first log file name",),
        meaning="The binlog file was purged: canal-server was down, or clients were"
        " slow, for longer than `binlog_expire_logs_seconds`. Or no file with the"
        " configured name ever existed.",
        remedy="`canal-server position show` shows what is missing and what to do:"
        " restore the files, or reload the tables and [move the"
        " clients](../howto/move-a-cursor.md), in a group [only in the source that"
        " is named](../howto/group.md). Correct a wrong configured name. With"
        " `canal.auto.reset.latest.pos.mode = true` reading resumes automatically,"
        " and the changes in between are lost.",
        is_foreign=True,
    ),
    Note(
        error="BinlogPurged",
        fragments=(
            "position > file size",
            "impossible position",
            "more gtids than the",
        ),
        meaning="The source no longer has that position, for instance after it was"
        " restored.",
        remedy="[Start elsewhere](../howto/start-elsewhere.md).",
    ),
    Note(
        error="BinlogPurged",
        fragments=("is not in the binlog, which has", "but there the binlog has"),
        meaning="The source does not have the stored position: its binlog was reset,"
        " or another server with the same server id has its address.",
        remedy="[Start elsewhere](../howto/start-elsewhere.md).",
    ),
    Note(
        error="BinlogPurged",
        fragments=("of another server: can't find start position for time",),
        meaning="Another server took over, and its binlog does not reach back to the"
        " stored time.",
        remedy="Reload the tables and [start elsewhere](../howto/start-elsewhere.md).",
        is_foreign=True,
    ),
    Note(
        error="SourceError",
        fragments=("truncated in the middle of event", "bogus data in log event"),
        meaning="The position is not the beginning of an event, or the file is"
        " damaged.",
        remedy="[Start elsewhere](../howto/start-elsewhere.md)."
        " `canal.auto.reset.latest.pos.mode` has no effect here.",
    ),
    Note(
        error="SourceError",
        fragments=(
            "the server's answer about … cannot be read",
            "does not speak the MySQL protocol",
            "a reply of more than … bytes",
            "a reply of more than … columns",
        ),
        meaning="The server at the address of the source is not MySQL, is damaged, or"
        " is hostile.",
        remedy="Check the address and which program listens there. Nothing is lost.",
    ),
    Note(
        error="PositionError",
        fragments=("can't find start position for time",),
        meaning="The binlog starts later than the configured time. The year 1970 in"
        " the text means that the time was given in seconds.",
        remedy="Configure a later time, in milliseconds, or `oldest` as the file.",
    ),
    Note(
        error="PositionError",
        fragments=("GTID set",),
        meaning="The configured GTID set is invalid, or is in the format of the other"
        " kind of server (MySQL or MariaDB).",
        remedy="Correct `canal.instance.master.gtid`.",
    ),
    Note(
        error="InsideTransaction",
        fragments=("rows of a transaction that began before the start position",),
        meaning="The configured position lies inside a transaction.",
        remedy="Nothing: reading goes back to the beginning of the transaction. If the"
        " error is repeated, the file is damaged: [start"
        " elsewhere](../howto/start-elsewhere.md).",
    ),
    Note(
        error="DecodeError",
        fragments=("above canal.instance.event.bytes.max",),
        meaning="An event, or its decompressed content, is larger than allowed. Servers"
        " write no event larger than 1 GiB.",
        remedy="Raise the key if it was lowered; otherwise the source, its binlog or"
        " the network is damaged or hostile.",
    ),
    Note(
        error="DecodeError",
        fragments=("a fragment of rows",),
        meaning="A MariaDB since 12.3 has split the rows of a statement into several"
        " events, because they are larger than `binlog_row_event_fragment_threshold`.",
        remedy="Raise that variable on the source above its largest rows, and [skip the"
        " event](../howto/unreadable-events.md), as the text says: its rows are missing"
        " then, so reload the table.",
    ),
    Note(
        error="DecodeError",
        fragments=("(event at …:…)",),
        meaning="An event is damaged, or has an unknown format.",
        remedy="Look at the event and [skip it](../howto/unreadable-events.md), as the"
        " text says. Check the disk of the source. If you suspect a bug in"
        " canal-server, report it with that event.",
    ),
    Note(
        error="EntryTooLarge",
        fragments=("EntryTooLarge",),
        meaning="One row is larger than a message can be (2 GiB).",
        remedy="Leave out the column with `canal.instance.filter.black.field`.",
        is_foreign=True,
    ),
)

HISTORY_ERRORS: Final = (
    Note(
        error="TableMetaError",
        fragments=(
            "column size is not match",
            "column … of table",
            "the server has no table",
        ),
        meaning="A table was altered or dropped after the position that is read, and"
        " its columns at that position are not known; or the account has no SELECT"
        " on the table.",
        remedy="GRANT SELECT. Otherwise start after the statement, leave the table out"
        " with `canal.instance.filter.black.regex`, start the history with an"
        " earlier dump ([`schema"
        " import`](../howto/table-history.md#export-and-import)), or leave out rows"
        " that cannot be decoded with `canal.instance.filter.table.error = true`.",
    ),
    Note(
        error="TableMetaError",
        fragments=(
            "the columns of the rows at … are not known",
            "What tables were at … is not known",
        ),
        meaning="A range starts before the table history; the parentheses say why the"
        " history of the previous source does not help either. Retrying does not"
        " help.",
        remedy="Start a new subscription at the position that the text names, and load"
        " earlier changes from the tables; or leave the table out with"
        " `canal.instance.filter.black.regex`.",
    ),
    Note(
        error="TableMetaStoreError",
        fragments=(
            "is in use by another server",
            "cannot be written by this server now",
        ),
        meaning="The storage of the [table"
        " history](../explanation/table-history.md#where-it-is-stored) cannot be"
        " used; the text says why.",
        remedy="Do what the text says. The server retries, and nothing is lost.",
    ),
)

SOURCE_WARNINGS: Final = (
    Note(
        fragments=(
            "changes that the source logs as statements arrive without rows",
            "rows have only the columns that the source logs",
        ),
        meaning="`binlog_format` is not ROW, or `binlog_row_image` is not FULL, and"
        " `canal.instance.binlog.format` or `canal.instance.binlog.image` allows that:"
        " [what clients miss](../howto/check.md#what-clients-miss).",
        remedy="Run the SET GLOBAL of the text. Open sessions keep the old value. To"
        " have the destination refuse such a source instead, allow `ROW` and `FULL`"
        " only.",
    ),
    Note(
        fragments=("gtid_mode is …, but canal.instance.gtidon is true",),
        meaning="The source sends transactions after a GTID set only with `gtid_mode ="
        " ON`. Until then reading starts by file and offset, and cursors have no"
        " GTIDs.",
        remedy="Turn it on at the source, one step after the other (OFF,"
        " OFF_PERMISSIVE, ON_PERMISSIVE, ON), or set `canal.instance.gtidon = false`.",
    ),
    Note(
        fragments=("the server_id of the source itself",),
        meaning="`canal.instance.mysql.slaveId` is the id of the source.",
        remedy="Set it to 0, or to an id that no other server has.",
    ),
    Note(
        fragments=("rows that foreign keys delete or change are not in",),
        meaning="InnoDB applies ON DELETE and ON UPDATE below the level that is"
        " logged.",
        remedy="See [what holds for all clients](clients.md#what-holds-for-all).",
    ),
    Note(
        fragments=("sees no table, so columns cannot be read",),
        meaning="The account has no privilege on any table: it lacks SELECT.",
        remedy="Run the GRANT of the text.",
    ),
    Note(
        fragments=("cannot check the tables that … sees",),
        meaning="The source refused the query, and the text says why.",
        remedy="Do what the text says. The query is retried.",
    ),
    Note(
        fragments=("no table that … sees matches",),
        meaning="Parts of `canal.instance.filter.regex` match no table, or the account"
        " lacks SELECT on the tables.",
        remedy="Correct the filter, or GRANT SELECT. Nothing for tables that do not"
        " exist yet.",
    ),
    Note(
        fragments=("the source does not list its binlog files",),
        meaning="The account may not run SHOW BINARY LOGS, so a stored position cannot"
        " be checked before reading.",
        remedy="Grant REPLICATION CLIENT (BINLOG MONITOR on MariaDB).",
    ),
    Note(
        fragments=("waiting until this replica has",),
        meaning="A replica lags behind what was delivered to clients.",
        remedy="Nothing; run `RESET REPLICA ALL` if it is the source now.",
    ),
    Note(
        fragments=("it is not a replica and lacks transactions that were delivered",),
        meaning="The old source failed before a replica had the transactions.",
        remedy="Compare the clients' copies with the source.",
    ),
)
