"""Messages of reading a source: sessions, checks, switches, events."""

from __future__ import annotations

from logging import ERROR, WARNING

from canal_server.messages.message import Message

BINLOG_EVENTS_MISSING = Message(
    name="binlog-events-missing",
    level=ERROR,
    text="the source reports at %s that events may be missing from its binlog"
    " (incident %s): compare the tables with their copies",
    meaning="The source logged an incident: its own binlog has a gap.",
    remedy="Compare the tables with their copies.",
)

BOUNDARY_INDEX_UNUSABLE = Message(
    name="boundary-index-unusable",
    level=WARNING,
    text="continuing without the index of transaction boundaries: %s",
    meaning="Its file cannot be used, for the reason in the text. Nothing is lost, but"
    " searches read more of the binlog.",
    remedy="Fix the cause given in the text.",
)

GTID_SET_REFUSED = Message(
    name="gtid-set-refused",
    level=WARNING,
    text="destination %s: resuming by time, as the source refuses the GTID set of the"
    " stored position: %s",
    meaning="The server that took over has purged transactions after the set, or has a"
    " different GTID history.",
    remedy="Nothing: some changes may be delivered again.",
)

PASSWORD_WITHOUT_TLS = Message(
    name="password-without-tls",
    level=WARNING,
    text="the password of %s is sent to %s without TLS, encrypted with a key that the"
    " other side sent, so an attacker in between can read it; set sslMode=REQUIRED,"
    " set serverPublicKey to the server's key, or accept the risk with"
    " allowPublicKeyRetrieval=true",
    meaning="The account uses SHA-256 authentication, the connection has no TLS, and"
    " `allowPublicKeyRetrieval` is not set.",
    remedy="Set `canal.instance.master.sslMode = REQUIRED`, or [a"
    " key](../howto/security.md); or set `allowPublicKeyRetrieval` to true where no"
    " attacker can be in between.",
)

REDELIVERY_COUNTED = Message(
    name="redelivery-counted",
    level=WARNING,
    text="destination %s: at most %d transactions with %d rows were delivered again:"
    " they are not newer than the last position before the switch",
    meaning="The end of [redelivery-started](#redelivery-started).",
)

REDELIVERY_STARTED = Message(
    name="redelivery-started",
    level=WARNING,
    text="destination %s: reading resumes by time, %.0f s before %s, so changes since"
    " then are delivered again",
    meaning="A switch to another server without GTIDs. Reading goes back by"
    " `canal.instance.fallbackIntervalInSeconds`.",
    remedy="Nothing. With `gtid_mode = ON` on both servers it resumes [by"
    " GTID](data-files.md#gtid-sets-with-cursors).",
)

ROWS_LEFT_OUT = Message(
    name="rows-left-out",
    level=WARNING,
    text="rows of %s at %s are left out: %s",
    meaning="The columns of the table at that position are not known, and"
    " `canal.instance.filter.table.error` is true. The text says why they are not"
    " known.",
    remedy="GRANT SELECT on the table, or leave it out with"
    " `canal.instance.filter.black.regex`.",
)

SOURCE_CHECK_FAILED = Message(
    name="source-check-failed",
    level=ERROR,
    text="destination %s: the check of the source failed because of an internal error,"
    " retrying",
    meaning="Without the check (`canal.instance.detecting.enable`), a failure of the"
    " source is noticed later.",
    remedy="Report the traceback that follows the line.",
)

SOURCE_CHECK_WARNING = Message(
    name="source-check-warning",
    level=WARNING,
    text="destination %s: %s",
    meaning="A check of the source (`canal.instance.detecting.enable`) failed, or no"
    " switch to the other server is possible, and the text says why: `checking …"
    " failed`: the source does not answer; `… failed more than … times: not"
    " switching`: there is no standby, or switching is off; `… cannot take over:"
    " …`: the other server is not fit.",
    remedy="Restore the source, or do what the text says; see [when the source"
    " fails](../howto/standby.md).",
)

SOURCE_DIVERGED = Message(
    name="source-diverged",
    level=WARNING,
    text="%s lacks transactions that were delivered, and is not a replica: reading"
    " resumes after GTID %s instead of %s; the transactions in between were lost"
    " with the other server, or are delivered again",
    meaning="The previous source failed before its replica had received them.",
    remedy="Compare the clients' copies with the source. Semi-synchronous replication"
    " prevents it.",
)

SOURCE_FAILED = Message(
    name="source-failed",
    level=ERROR,
    text="destination %s: %s; %s",
    meaning="Reading the source failed; the text says what happened and when it is"
    " retried. The class of the error precedes its text.",
    remedy="See the [errors](#errors) by their class and text.",
)

SOURCE_READING_FAILED = Message(
    name="source-reading-failed",
    level=ERROR,
    text="destination %s: reading the source failed because of an internal error,"
    " retrying",
    meaning="The server met an error that it does not expect. It retries every 30 s.",
    remedy="Report the traceback with the lines above it.",
)

SOURCE_STARTS_AFTER_LOSS = Message(
    name="source-starts-after-loss",
    level=WARNING,
    text="destination %s starts at %s, and the changes before that are lost: %s",
    meaning="The stored position is no longer in the binlog, and"
    " `canal.auto.reset.latest.pos.mode` is true.",
    remedy="Reload the tables. Keep binlogs for longer (`binlog_expire_logs_seconds`).",
)

SOURCE_SWITCHED = Message(
    name="source-switched",
    level=WARNING,
    text="destination %s: %s failed %d times, more than the limit of %d"
    " (canal.instance.detecting.retry.threshold): switching to %s; the last"
    " failure: %s",
    meaning="The destination reads the other server from now on.",
    remedy="Repair the server that failed; see [when the source"
    " fails](../howto/standby.md).",
)

SOURCE_WARNING = Message(
    name="source-warning",
    level=WARNING,
    text="destination %s: %s",
    meaning="The check of the source before reading found a problem; see [warnings of a"
    " source](#warnings-of-a-source). It is also in `warnings` of `status`.",
    remedy="Do what the text says.",
)

UNREADABLE_EVENT_NOT_MET = Message(
    name="unreadable-event-not-met",
    level=WARNING,
    text="%s: %s names %s:%d, but no unreadable event starts there; remove it from the"
    " setting",
    meaning="The event was read without an error, or the position is not that of the"
    " error.",
    remedy="Remove it from `canal.instance.master.unreadable.events`.",
)

UNREADABLE_EVENT_PASSED = Message(
    name="unreadable-event-passed",
    level=WARNING,
    text="%s: event %s:%d (type %d%s) cannot be read and is %s: %s",
    meaning="`canal.instance.master.unreadable.events` names the event, so it is left"
    " out or delivered as raw bytes.",
    remedy="See [what is missing then](../howto/unreadable-events.md).",
)
