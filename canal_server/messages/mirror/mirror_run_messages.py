"""Messages of a mirror's process: Spark, the lake, the database, the end."""

from __future__ import annotations

from logging import ERROR, WARNING

from canal_server.messages.message import Message

MIRROR_LAKE_FAILED = Message(
    name="mirror-lake-failed",
    level=WARNING,
    text="%s; retrying in %.0f s",
    meaning="The lake could not be read or written. The text says what failed.",
    remedy="Nothing if the lake becomes available again; otherwise check its disk or"
    " object store.",
)

MIRROR_METRICS_FAILED = Message(
    name="mirror-metrics-failed",
    level=ERROR,
    text="cannot collect metrics because of an internal error",
    meaning="A request for metrics was answered with status 500, or the metrics about"
    " the lake are out of date. The mirror itself is not affected.",
    remedy="Report the traceback that follows the line.",
)

MIRROR_METRICS_PORT_UNAVAILABLE = Message(
    name="mirror-metrics-port-unavailable",
    level=WARNING,
    text="metrics.port: cannot listen on %s for metrics: %s; the mirror continues"
    " without them",
    meaning="Another process uses the port, or the address is not one of this host.",
    remedy="Give each mirror of a host its own `metrics.port`, and restart the mirror.",
)

MIRROR_METRICS_REFUSALS_REPEATED = Message(
    name="mirror-metrics-refusals-repeated",
    level=WARNING,
    text="%d more refusals for %s within %.0f s; the last one: %s",
    meaning="More connections from the same address were refused or closed. Only the"
    " first one in a minute is logged; this line summarizes the others.",
    remedy="As for [mirror-metrics-refused](#mirror-metrics-refused).",
)

MIRROR_METRICS_REFUSED = Message(
    name="mirror-metrics-refused",
    level=WARNING,
    text="%s",
    meaning="There are too many connections at the port for metrics: more than 50, or"
    " more than 25 from one address. The text says which one was refused or closed."
    " Logged once a minute for an address.",
    remedy="Find out what opens so many connections at that address.",
)

MIRROR_PATH_DOUBTFUL = Message(
    name="mirror-path-doubtful",
    level=WARNING,
    text="%s",
    meaning="Some engines cannot read tables below `lake.path`, or below the folder"
    " that `to` of a rule names: it has characters that they decode, or that they take"
    " for wildcards or for the end of a path. The mirror itself writes there. See"
    " [folders of the lake](mirror-tables.md#folders).",
    remedy="If an engine fails there, stop the mirror, move the whole lake to a folder"
    " with the characters A-Z a-z 0-9 `.` `_` `-` `=`, and set `lake.path`. After a"
    " change of `to`, tables are copied again.",
)

MIRROR_PREPARED_XA_UNSEEN = Message(
    name="mirror-prepared-xa-unseen",
    level=WARNING,
    text="server %s: %s, then run `canal-server mirror copy` for tables that XA"
    " transactions change",
    meaning="The account may not see prepared XA transactions, so a copy may lack"
    " their rows. Copies are not started, and the stream continues. See [what is"
    " guaranteed](../explanation/mirror.md#what-is-guaranteed).",
    remedy="`GRANT XA_RECOVER_ADMIN ON *.*` to the account of `source`; then `mirror"
    " copy` for the tables that XA transactions change.",
)

MIRROR_RULE_UNUSED = Message(
    name="mirror-rule-unused",
    level=WARNING,
    text="%s",
    meaning="A rule of the settings has no effect, and the text says which one and"
    " why: `no table matches, or the account may not see it`.",
    remedy="Correct `match`, or GRANT SELECT.",
)

MIRROR_SOURCE_UNAVAILABLE = Message(
    name="mirror-source-unavailable",
    level=WARNING,
    text="cannot start yet: %s; retrying in %.0f s",
    meaning="The source did not answer when the mirror started again. Nothing is lost.",
    remedy="Nothing if the source becomes available again; otherwise check it, and"
    " `source` in the settings.",
)

MIRROR_SPARK_LEFT = Message(
    name="mirror-spark-left",
    level=WARNING,
    text="Spark's JVM, process %d, does not end and is left running",
    meaning="The JVM did not end in time after the mirror had stopped it.",
    remedy="Kill the process if it still exists.",
)

MIRROR_SPARK_SETTING_LATE = Message(
    name="mirror-spark-setting-late",
    level=WARNING,
    text="%s of the settings has no effect, as Spark's JVM is already running: pass it"
    " to spark-submit, by --conf or %s",
    meaning="`spark-submit` starts the driver's JVM before the mirror reads its"
    " settings.",
    remedy="Pass it to `spark-submit`, and remove it from the settings.",
)

MIRROR_STAGE_STOP_FAILED = Message(
    name="mirror-stage-stop-failed",
    level=WARNING,
    text="%s failed during shutdown: %s",
    meaning="Spark had ended before, as it does after a signal to all processes."
    " Nothing is lost.",
    remedy="Nothing. `KillMode=mixed` in the systemd unit prevents it.",
)

MIRROR_STATE_NOT_STORED = Message(
    name="mirror-state-not-stored",
    level=WARNING,
    text="cannot store why a table is retried: %s",
    meaning="The lake cannot be written to. `mirror status` shows an older reason.",
    remedy="As for [mirror-lake-failed](#mirror-lake-failed).",
)

MIRROR_STATUS_NOT_STORED = Message(
    name="mirror-status-not-stored",
    level=WARNING,
    text="cannot store the status: %s",
    meaning="The lake cannot be written to. `mirror status` shows an older status.",
    remedy="As for [mirror-lake-failed](#mirror-lake-failed).",
)

MIRROR_STOP_TIMED_OUT = Message(
    name="mirror-stop-timed-out",
    level=ERROR,
    text="the mirror did not stop in %.0f s, ending the process",
    meaning="A batch or Spark hangs.",
    remedy="Nothing: after the next start the mirror resumes.",
)

MIRROR_VERIFY_NOT_STORED = Message(
    name="mirror-verify-not-stored",
    level=WARNING,
    text="cannot store the results for the metrics of the mirror: %s",
    meaning="The tables were compared, and the output of `mirror verify` is complete,"
    " but the lake cannot be written to.",
    remedy="Run it with an account that may write to the mirror's folder in the lake.",
)
