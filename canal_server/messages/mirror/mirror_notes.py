"""Notes on errors of a mirror: why it ends, why a table waits, stops or is copied."""

from __future__ import annotations

from typing import Final

from canal_server.messages.note import Note

MIRROR_ENDS: Final = (
    Note(
        fragments=("is not installed: pip install",),
        meaning="The extra is missing.",
        remedy="`pip install 'canal-server[mirror]'`",
    ),
    Note(
        fragments=("mirror.yml:…",),
        meaning="A setting cannot be used. The text names the line and the reason.",
        remedy="Do what the text says.",
        is_foreign=True,
    ),
    Note(
        fragments=("JAVA_GATEWAY",),
        meaning="Java is missing or too old.",
        remedy="Install Java 17 or 21, in `PATH` or `JAVA_HOME`.",
        is_foreign=True,
    ),
    Note(
        fragments=("all masters are unresponsive",),
        meaning="No master has answered at `spark.master` for a minute.",
        remedy="Start the master, or set another `spark.master`.",
        is_foreign=True,
    ),
    Note(
        fragments=("No module named 'canal_server'",),
        meaning="The Python that executors run does not have the package.",
        remedy="`pip install 'canal-server[mirror]'` there, or another"
        " `spark.pyspark.python`: see [clusters](../howto/mirror-cluster.md).",
        is_foreign=True,
    ),
    Note(
        fragments=("the JVM of Spark no longer answers",),
        meaning="The JVM was killed or ran out of memory; the lines before say more.",
        remedy="Start the mirror again: it resumes. See `spark.driver.memory`.",
    ),
    Note(
        fragments=("Initial job has not accepted any resources",),
        meaning="The cluster has no cores or memory left. `status` shows `Spark has"
        " granted no executor yet`.",
        remedy="Wait, or see [clusters](../howto/mirror-cluster.md):"
        " `spark.cores.max`, `spark.executor.memory`.",
        is_foreign=True,
    ),
    Note(
        fragments=("this mirror is already running",),
        meaning="Another process runs the mirror on the machine that the text names.",
        remedy="Stop that process, or give this mirror another name.",
    ),
    Note(
        fragments=("no server runs destination",),
        meaning="canal-server did not answer for `stream.retry_timeout`, or could not"
        " reach its source, its table history or its cursors; the last answers are"
        " in the text. The mirror ends only if this happens at its start; later it"
        " retries.",
        remedy="Start canal-server, check `canal.servers`, or fix what the answers"
        " name. Nothing has to be copied again.",
    ),
    Note(
        fragments=("can't find destination:",),
        meaning="The server has no such destination.",
        remedy="Correct `canal.destination`, or `canal.destinations` of the server.",
    ),
    Note(
        fragments=("no table matches, or the account may not see it",),
        meaning="A rule has no effect.",
        remedy="Correct `match`, or `GRANT SELECT`.",
    ),
    Note(
        fragments=("belongs to the primary key",),
        meaning="Rows are found by their primary key, so it cannot be left out or"
        " masked in this way.",
        remedy="Keep the column; `hash` hides its values.",
    ),
    Note(
        fragments=("has a name that the stream of changes adds",),
        meaning="Changes of the table cannot be read, whether the column is mirrored"
        " or not.",
        remedy="Rename the column in the source, or `exclude` the table.",
    ),
    Note(
        fragments=("tables … and … both use folder",),
        meaning="The copy of one would replace the copy of the other.",
        remedy="Put `{schema}` and `{table}` in `to`, then start again, and run"
        " `mirror copy` for a table that is stopped.",
    ),
    Note(
        fragments=("does not see …; have an administrator run",),
        meaning="The account has privileges on some columns only.",
        remedy="Run the GRANT of the text.",
    ),
    Note(
        fragments=("binlog_format is …, which logs statements, not row changes",),
        meaning="Such changes would be missing in the copies.",
        remedy="`SET GLOBAL binlog_format = ROW`",
    ),
    Note(
        fragments=("canal-server mirror copy --all` with these settings",),
        meaning="The mirror was down for longer than binlogs are kept; or canal-server"
        " lost its data while the source was replaced or its binlog reset; or"
        " files of the lake are missing.",
        remedy="Do what the text says: all tables are copied again.",
    ),
    Note(
        fragments=("canal.destination is …, but the tables in the lake are of",),
        meaning="The settings name a different destination than before.",
        remedy="Set it back, or run `mirror copy --all`.",
    ),
)

TABLE_WAITS: Final = (
    Note(
        fragments=("canal-server does not know it: the account of destination",),
        meaning="The account of canal-server cannot see the table, or canal-server"
        " reads another server.",
        remedy="`GRANT SELECT` to `canal.instance.dbUsername`. The mirror checks again"
        " within a minute.",
    ),
    Note(
        fragments=("canal-server leaves out …",),
        meaning="Settings of the destination hide changes of the table from all"
        " readers. It is not mirrored, as the copy would be wrong.",
        remedy="Change the settings that the text names, then restart canal-server; or"
        " `exclude` the table.",
    ),
    Note(
        fragments=("transactions in the binlog are not committed yet",),
        meaning="A copy waits until they are visible, for 2 minutes at a time.",
        remedy="Find what delays them, such as semi-synchronous replication without a"
        " replica that answers.",
    ),
    Note(
        fragments=("no snapshot reaches … in the server's binlog",),
        meaning="On MariaDB, transactions in the binlog are not committed yet; or"
        " `source.host` is not the server from which canal-server reads.",
        remedy="Find what delays the commits, and check `source.host`.",
    ),
    Note(
        fragments=("XA transactions are prepared but not ended",),
        meaning="They are in the binlog, and may be committed at any time.",
        remedy="`XA RECOVER`, then commit or roll back.",
    ),
    Note(
        fragments=("without GTIDs a copy starts",),
        meaning="A copy would be useless, as the table was altered within the last 60"
        " s.",
        remedy="Nothing: it is copied when a minute has passed. `gtid_mode = ON` avoids"
        " the wait.",
    ),
    Note(
        fragments=("it has not executed",),
        meaning="The replica lags, or does not replicate this source.",
        remedy="Check that it replicates.",
    ),
    Note(
        fragments=("cannot report its progress, as its source has no GTIDs",),
        meaning="Copying from a replica needs GTIDs.",
        remedy="`gtid_mode = ON`, or leave `replica` out.",
    ),
    Note(
        fragments=("but its copy needs a moment without changes",),
        meaning="A [table without a"
        " key](../explanation/mirror.md#tables-without-a-key) is copied as of one"
        " moment, and writers leave no such moment.",
        remedy="Set `copy.keyless_lock: true`, or add a primary key.",
    ),
    Note(
        fragments=("chunks were not copied in … runs of Spark's job",),
        meaning="Executors failed, and the text says how.",
        remedy="Fix that; what is already copied is kept.",
    ),
    Note(
        fragments=("its tasks succeeded, but what they wrote is not in … here",),
        meaning="Executors have another folder at `lake.path` than the driver.",
        remedy="Use a path at which all machines see the same folder: see"
        " [clusters](../howto/mirror-cluster.md).",
    ),
    Note(
        fragments=("the server still keeps the old subscription",),
        meaning="The server did not answer during `copy --all`.",
        remedy="Run the command that the text shows.",
    ),
)

TABLE_COPIED_AGAIN: Final = (
    Note(
        fragments=("the copy had to be repeated … times in a row, so it waits for",),
        meaning="The table has to be copied again and again.",
        remedy="Change the table in another way; then `mirror copy` ends the wait.",
    ),
    Note(
        fragments=("changes after …, where its copy began, are no longer available",),
        meaning="The binlog was purged before the table had caught up.",
        remedy="Nothing: it is copied again. Keep binlogs for longer than a copy"
        " takes.",
    ),
    Note(
        fragments=("rolled back rows that were applied when it was prepared",),
        meaning="An XA transaction was rolled back after its rows were applied.",
    ),
    Note(
        fragments=("rows at …:… have other columns than known",),
        meaning="The table history is not certain there.",
        remedy="Nothing with `drift: copy`; check with `canal-server schema verify`.",
    ),
    Note(
        fragments=("while the table was copied",),
        meaning="The definition of the table changed during the copy, and rows may"
        " have been read before and after that.",
    ),
    Note(
        fragments=("the source was replaced after some of its changes were applied",),
        meaning="A table had just joined the stream, or the mirror was killed during a"
        " batch.",
    ),
    Note(
        fragments=(
            "changed or deleted rows are not in it",
            "it lacks column …",
        ),
        meaning="Somebody other than the mirror changed the copy.",
        remedy="Nothing with `drift: copy`: the table is copied again, the others"
        " continue.",
    ),
)

TABLE_STOPS: Final = (
    Note(
        fragments=("makes a new copy",),
        meaning="The table changed in a way that the stream cannot follow, and `drift`"
        " is `stop`.",
        remedy="Run `canal-server mirror copy` when the table has its final form.",
    ),
    Note(
        fragments=("please report it, with the traceback in the log",),
        meaning="The mirror met something unexpected in the changes or the copy of one"
        " table. None of it is in the lake, and the other tables continue.",
        remedy="Report it, with the traceback in the log; `mirror copy` makes a new"
        " copy.",
    ),
    Note(
        fragments=(
            "column …, which is left out, is now",
            "column …, which is masked, is now",
        ),
        meaning="A hidden column was renamed to a name that is not hidden.",
        remedy="Add the line to the settings that the text names, then start again and"
        " run `mirror copy`: see [masks](../howto/mirror-masks.md).",
    ),
    Note(
        fragments=("(masked or left out)", "masked or left out there"),
        meaning="A hidden column may have been renamed to a name that is not hidden"
        " before the table was copied. The copy is not started.",
        remedy="Add the new name to the settings, with a mask or `show`, then start"
        " again and run `mirror copy`: see [masks](../howto/mirror-masks.md).",
    ),
    Note(
        fragments=("each of … copies in a row had to be made again",),
        meaning="DDL or rollbacks of prepared XA transactions on the table do not stop;"
        " the text ends with the last reason.",
        remedy="`mirror copy` when they are done.",
    ),
    Note(
        fragments=("is written by the mirror …, which has the same lake",),
        meaning="Another mirror of this lake has a table with the same folder, for"
        " example of a source that has the same schema name.",
        remedy="Set another `to`. If that mirror is not used any more, delete its"
        " folder below `_mirror`. Then `mirror copy`.",
    ),
    Note(
        fragments=("was not made by a mirror",),
        meaning="The folder of the table in the lake has a Delta or Iceberg table of"
        " somebody else, which is not replaced.",
        remedy="Move it away, or set another `to`; then `mirror copy`.",
    ),
    Note(
        fragments=("but format is … now",),
        meaning="The format of the rule was changed, and the folder contains the table"
        " in the old format.",
        remedy="Move it away, or set another `to`; then `mirror copy`.",
    ),
    Note(
        fragments=("ends at _seq …, but new changes would start at",),
        meaning="canal-server lost its data folder and counts from the beginning again."
        " Readers of the log would take new changes for older ones.",
        remedy="Move the log away, or set another `to`; then `mirror copy`.",
    ),
    Note(
        fragments=("of its primary key has an invalid date",),
        meaning="Rows of the copy could not be identified.",
        remedy="Use another date, or `format: parquet`; then run `mirror copy`.",
    ),
    Note(
        fragments=("check whether another mirror writes it",),
        meaning="Somebody else writes the table, or restored an old lake. The other"
        " tables continue.",
        remedy="Use one mirror for each table; otherwise run `mirror copy`.",
    ),
    Note(
        fragments=("if that fails in the same way, move the lake's table away first",),
        meaning="The table in the lake prevents it: somebody deleted files that its"
        " log names, damaged the log, or gave it a constraint or"
        " `delta.appendOnly`.",
        remedy="`mirror copy`, which replaces files and constraints. If the log cannot"
        " be read, move the folder of the table away first.",
    ),
    Note(
        fragments=(
            "was started with other columns or at another position",
            "is not a valid manifest",
        ),
        meaning="Somebody changed files of an unfinished copy.",
        remedy="`mirror copy`",
    ),
)
