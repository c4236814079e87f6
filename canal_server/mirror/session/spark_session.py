"""The Spark session of a mirror, and its stream of all tables' changes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import CanalError, ConfigError
from canal_server.messages.mirror import mirror_run_messages
from canal_server.mirror.session.idle import INTERVAL, INTERVAL_MS
from canal_server.mirror.session.spark_errors import reason
from canal_server.mirror.session.spark_log import quieten
from canal_server.spark.options.source_options import quoted, read_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.spark.options.source_options import SourceOptions

log = logging.getLogger(__name__)

# The options of a session unless they are set elsewhere.
DEFAULTS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    # Spark only passes rows on: in hours of running, the second compiler saves less
    # than it costs on the two cores while the mirror starts.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    INTERVAL: str(INTERVAL_MS),
    # How long a process may take for its first message, on a machine that is busy with
    # copying; the ten seconds to connect are fixed in Spark.
    "spark.python.authenticate.socketTimeout": "120s",
}
# Translates messages of Spark's source and of canal-server into the names of the
# mirror's settings and rights.
_WORDS: Final = {
    "retryTimeoutMs": "stream.retry_timeout",
    "option servers": "canal.servers",
    "password of the instance": "password of source",
    "SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.*": "SELECT ON *.*",
}
_UNKNOWN: Final = "can't find destination"  # in the server's words
_KNOWN_BY: Final = "; see canal.destination, and canal.destinations of the server"
END_S: Final = 20.0  # for the JVM, and for the threads that use it
RETRIES: Final = 4  # of a task; in local mode this is part of the master's URL
# Options of the JVM's start, with their names in spark-submit.
OF_THE_JVM: Final = {
    "spark.driver.memory": "--driver-memory",
    "spark.driver.extraJavaOptions": "--driver-java-options",
    "spark.driver.extraClassPath": "--driver-class-path",
    "spark.driver.extraLibraryPath": "--driver-library-path",
}
SCHEDULER: Final = "org.apache.spark.scheduler.TaskSchedulerImpl"
PYTHON: Final = "PYSPARK_PYTHON"
# Spark starts its Python processes as modules. They first search the folder in which
# the mirror was started, which may hold a `canal_server` that is not installed: that
# of a checkout has no compiled modules. Not set through `spark.executorEnv`, as
# processes with another environment than the source's would not share its caches.
SAFE_PATH: Final = "PYTHONSAFEPATH"
_ENDED: Final = "a stopped SparkContext"
CONNECT: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")  # in the environment


def open_session(settings: MirrorSettings) -> Any:
    """Return the session: that of spark-submit, else one on this machine.

    Raises ConfigError under Spark Connect, whose driver is in another process, and
    CanalError if no master answers.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  # heavy

    _refuse_connect(settings)
    conf = dict(settings.spark)
    if _is_submitted():
        conf = _for_submitted(conf)
    else:
        conf = DEFAULTS | {"spark.master": f"local[*,{RETRIES}]"} | conf
        # By default executors run `python3` of their PATH, which may lack the package.
        if "spark.pyspark.python" in conf:
            os.environ[PYTHON] = conf["spark.pyspark.python"]
        os.environ.setdefault(PYTHON, sys.executable)
        os.environ.setdefault(SAFE_PATH, "1")
        _start_jvm(conf)
    builder = SparkSession.builder.appName(f"canal-server mirror {settings.name}")
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        if _ENDED in str(error):
            raise _no_master(conf) from error
        raise
    # The timestamps of Delta and of the source are in UTC.
    session.conf.set("spark.sql.session.timeZone", "UTC")
    _register_source(session)
    quieten(session)
    return session


def _start_jvm(conf: dict[str, str]) -> None:
    """Start Spark's JVM, unless this process has one, in a process group of its own.

    A signal to the mirror's group, as `timeout` sends it, would end Spark before the
    mirror has stopped, with tracebacks. The JVM ends when its standard input does.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  # heavy
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    if SparkContext._gateway is None:  # noqa: SLF001  # no public access
        given = SparkConf().setAll([*conf.items()])
        gateway = launch_gateway(given, {"process_group": 0})
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001


def end_session(session: Any) -> None:
    """End a session, and its JVM if this process has started it.

    To be called before the interpreter ends: a thread that returns to the interpreter
    later, such as the one that releases py4j's objects, is killed inside native code.
    """
    from pyspark import SparkContext  # noqa: PLC0415  # heavy

    session.stop()
    gateway = SparkContext._gateway  # noqa: SLF001  # no public access
    process = getattr(
        gateway, "proc", None
    )  # None: spark-submit's JVM started this process
    if gateway is None or process is None:
        return
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # it has ended
    gateway.shutdown()
    for thread in threading.enumerate():
        if type(thread).__module__.partition(".")[0] == "py4j":
            thread.join(END_S)
    process.stdin.close()  # its end of file ends the JVM
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        mirror_run_messages.MIRROR_SPARK_LEFT.log(log, process.pid)


def stop_and_log(part: str, stop: Callable[[], object]) -> None:
    """Stop a part of Spark; a failure is logged, as an earlier error matters more."""
    try:
        stop()
    except Exception as error:  # noqa: BLE001  # of many kinds, when its JVM has died
        mirror_run_messages.MIRROR_STAGE_STOP_FAILED.log(log, part, reason(error))


def _no_master(conf: dict[str, str]) -> CanalError:
    """Return the message for a Spark that ended at its start; its log has the cause."""
    from pyspark import SparkConf  # noqa: PLC0415  # heavy

    master = conf.get("spark.master") or SparkConf().get("spark.master")
    return CanalError(
        "Spark ended while it started, as it does when no master responds (see its log "
        f"above); spark.master is {master}"
    )


def _register_source(session: Any) -> None:
    """Register the source with Spark, even if Spark does not find it by itself.

    Spark searches the folders of Python's path, where an editable install has nothing.
    A source that it has found is not replaced, as that makes Spark log a warning.
    """
    from canal_server.spark.data_source import CanalDataSource  # noqa: PLC0415  # heavy

    known = session._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001
    if not known.dataSourceExists(CanalDataSource.name()):
        session.dataSource.register(CanalDataSource)


def cores_of(spark: Any) -> int:
    """Return how many tasks run at a time; 0 if Spark adds cores on demand."""
    context = spark.sparkContext
    conf = context.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return 0
    cores: int = context.defaultParallelism
    return max(1, cores // int(conf.get("spark.task.cpus", "1")))


def hush(spark: Any) -> None:
    """Make Spark log only errors, and that it waits for executors."""
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
            f"{found[0]}: the mirror writes from Spark's driver, which runs in another "
            "process with Spark Connect; use spark.master, or spark-submit"
        )
        raise ConfigError([problem])


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _for_submitted(conf: dict[str, str]) -> dict[str, str]:
    """Return the settings that spark-submit and its files do not set."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  # heavy

    SparkContext._ensure_initialized()  # noqa: SLF001  # loads the JVM's settings
    given = SparkConf()
    for name in sorted(conf.keys() & set(OF_THE_JVM)):
        if given.get(name) != conf[name]:
            mirror_run_messages.MIRROR_SPARK_SETTING_LATE.log(
                log, name, OF_THE_JVM[name]
            )
    missing = {n: v for n, v in DEFAULTS.items() if not given.contains(n)}
    return missing | conf


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
    """Return the options to read one table's changes outside the stream."""
    return read_options(
        source_options(settings)
        | {"filter": rf"{quoted(name.schema)}\.{quoted(name.table)}"}
    )


def in_settings(text: str) -> str:
    """Translate a message into the names of the mirror's settings; idempotent."""
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    if _UNKNOWN in text and not text.endswith(_KNOWN_BY):
        text += _KNOWN_BY
    return text


def source_options(settings: MirrorSettings) -> dict[str, str]:
    """Return the options by which Spark's source finds the server."""
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
    if canal.tls:
        files = {
            "tlsCaFile": canal.tls_ca_file,
            "tlsCertFile": canal.tls_cert_file,
            "tlsKeyFile": canal.tls_key_file,
        }
        options["tls"] = "true"
        options |= {name: file for name, file in files.items() if file}
    return options
