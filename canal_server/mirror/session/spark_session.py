"""The Spark session of a mirror, and its stream of all tables' changes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import CanalError, ConfigError
from canal_server.messages import mirror_run_messages
from canal_server.mirror.session.idle import INTERVAL, INTERVAL_MS
from canal_server.mirror.session.spark_log import quieten
from canal_server.spark.options.source_options import quoted, read_options

if TYPE_CHECKING:
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.spark.options.source_options import SourceOptions

log = logging.getLogger(__name__)

# What a session gets unless somebody says otherwise.
DEFAULTS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    # It hands rows on that others made: what the second compiler saves there in hours
    # is less than it takes from the two cores while the mirror starts.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    INTERVAL: str(INTERVAL_MS),
    # For what a process says first, on a machine that is busy copying; the ten seconds
    # in which it has to connect are Spark's own, and cannot be set.
    "spark.python.authenticate.socketTimeout": "120s",
}
# What messages of others say, in the words of the mirror's settings: options of Spark's
# source, and what canal-server itself would need of a database.
_WORDS: Final = {
    "retryTimeoutMs": "stream.retry_timeout",
    "option servers": "canal.servers",
    "password of the instance": "password of source",
    "SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.*": "SELECT ON *.*",
}
_UNKNOWN: Final = "can't find destination"  # as canal's server says it
_KNOWN_BY: Final = "; see canal.destination, and canal.destinations of the server"
END_S: Final = 20.0  # for a JVM, and threads that deal with it
RETRIES: Final = 4  # of a task; in local mode it has to be said with the master
# What a JVM is begun with, and how spark-submit is told.
OF_THE_JVM: Final = {
    "spark.driver.memory": "--driver-memory",
    "spark.driver.extraJavaOptions": "--driver-java-options",
    "spark.driver.extraClassPath": "--driver-class-path",
    "spark.driver.extraLibraryPath": "--driver-library-path",
}
SCHEDULER: Final = "org.apache.spark.scheduler.TaskSchedulerImpl"
PYTHON: Final = "PYSPARK_PYTHON"
# Spark begins its Python processes as modules. Those look first into the folder where
# the mirror was started, which may have a `canal_server` that is not installed: that
# of a checkout has no compiled parts. Not told by `spark.executorEnv`, as processes
# with another environment than those of the source would share nothing with them.
SAFE_PATH: Final = "PYTHONSAFEPATH"
_ENDED: Final = "a stopped SparkContext"
CONNECT: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")  # in the environment


def open_session(settings: MirrorSettings) -> Any:
    """Return the session: that of spark-submit, else one on this machine.

    Raises ConfigError under Spark Connect, where the driver's process is another, and
    CanalError when no master answers.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  # heavy

    _refuse_connect(settings)
    wanted = dict(settings.spark)
    if _is_submitted():
        wanted = _for_submitted(wanted)
    else:
        wanted = DEFAULTS | {"spark.master": f"local[*,{RETRIES}]"} | wanted
        # Else executors run the `python3` of their PATH, which may lack the package.
        if "spark.pyspark.python" in wanted:
            os.environ[PYTHON] = wanted["spark.pyspark.python"]
        os.environ.setdefault(PYTHON, sys.executable)
        os.environ.setdefault(SAFE_PATH, "1")
    builder = SparkSession.builder.appName(f"canal-server mirror {settings.name}")
    for name, value in wanted.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        if _ENDED in str(error):
            raise _no_master(wanted) from error
        raise
    # Delta's timestamps are in UTC, and so are those of the source.
    session.conf.set("spark.sql.session.timeZone", "UTC")
    _register_source(session)
    quieten(session)
    return session


def end_session(session: Any) -> None:
    """End a session, and its JVM with it where this process has begun that.

    Before the interpreter ends: a thread that comes back to it afterwards, as that in
    which py4j lets go of objects, is ended amid whatever native code it is in.
    """
    from pyspark import SparkContext  # noqa: PLC0415  # heavy

    session.stop()
    gateway = SparkContext._gateway  # noqa: SLF001  # nothing else has it
    process = getattr(gateway, "proc", None)  # None: spark-submit's JVM began us
    if gateway is None or process is None:
        return
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # it is gone
    gateway.shutdown()
    for thread in threading.enumerate():
        if type(thread).__module__.partition(".")[0] == "py4j":
            thread.join(END_S)
    process.stdin.close()  # at whose end it ends
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        mirror_run_messages.MIRROR_SPARK_LEFT.log(log, process.pid)


def _no_master(wanted: dict[str, str]) -> CanalError:
    """Return what tells that Spark was ended while it began: why, its log alone has."""
    from pyspark import SparkConf  # noqa: PLC0415  # heavy

    master = wanted.get("spark.master") or SparkConf().get("spark.master")
    return CanalError(
        "Spark was ended while it began, as it is when all masters are unresponsive "
        f"(see above); spark.master is {master}"
    )


def _register_source(session: Any) -> None:
    """Have Spark know the source, also where it does not find it by itself.

    It looks for packages in the folders of Python's path, and an editable install has
    none there. What it has found is not to be replaced: it warns of that.
    """
    from canal_server.spark.data_source import CanalDataSource  # noqa: PLC0415  # heavy

    known = session._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001
    if not known.dataSourceExists(CanalDataSource.name()):
        session.dataSource.register(CanalDataSource)


def cores_of(spark: Any) -> int:
    """Return how many tasks run at a time; 0 where there are more when they wait."""
    context = spark.sparkContext
    conf = context.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return 0
    cores: int = context.defaultParallelism
    return max(1, cores // int(conf.get("spark.task.cpus", "1")))


def hush(spark: Any) -> None:
    """Have Spark tell errors alone, and that it waits for executors."""
    spark.sparkContext.setLogLevel("ERROR")
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # noqa: SLF001
    log4j.core.config.Configurator.setLevel(SCHEDULER, log4j.Level.WARN)


def _refuse_connect(settings: MirrorSettings) -> None:
    found = [name for name in CONNECT if name in os.environ]
    if "spark.remote" in settings.spark:
        found.append("spark.remote")
    if settings.spark.get("spark.api.mode") == "connect":
        found.append("spark.api.mode")
    if found:
        problem = (
            f"{found[0]}: the mirror writes from Spark's driver, which is in another "
            "process with Spark Connect; use spark.master, or spark-submit"
        )
        raise ConfigError([problem])


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _for_submitted(wanted: dict[str, str]) -> dict[str, str]:
    """Return what is set beside what spark-submit and its files have set."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  # heavy

    SparkContext._ensure_initialized()  # noqa: SLF001  # else the JVM's are not seen
    given = SparkConf()
    for name in sorted(wanted.keys() & set(OF_THE_JVM)):
        if given.get(name) != wanted[name]:
            mirror_run_messages.MIRROR_SPARK_SETTING_LATE.log(
                log, name, OF_THE_JVM[name]
            )
    missing = {n: v for n, v in DEFAULTS.items() if not given.contains(n)}
    return missing | wanted


def stream_options(settings: MirrorSettings, subscription: str) -> dict[str, str]:
    """Return the options of the stream of all tables' changes."""
    stream = settings.stream
    return source_options(settings) | {
        "subscription": subscription,
        "filter": settings.wire_filter,
        "maxRowsPerTrigger": str(stream.max_rows),
        "maxBytesPerTrigger": str(stream.max_bytes),
        "maxPartitions": str(stream.max_partitions),
        "minPartitionRows": str(stream.min_partition_rows),
    }


def table_options(settings: MirrorSettings, name: TableName) -> SourceOptions:
    """Return the options by which one table's changes are read beside the stream."""
    return read_options(
        source_options(settings)
        | {"filter": rf"{quoted(name.schema)}\.{quoted(name.table)}"}
    )


def in_settings(text: str) -> str:
    """Return what others tell, with the names of our settings; more than once, too."""
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    if _UNKNOWN in text and not text.endswith(_KNOWN_BY):
        text += _KNOWN_BY
    return text


def source_options(settings: MirrorSettings) -> dict[str, str]:
    """Return where the source of Spark finds the server."""
    canal = settings.canal
    options = {
        "servers": canal.servers,
        "destination": canal.destination,
        "payload": "arrow",
        "retryTimeoutMs": str(round(settings.stream.retry_timeout_s * 1000)),
    }
    if canal.user:
        options["username"] = canal.user
    if canal.password:
        options["password"] = canal.password
    return options
