"""The Spark session of a mirror, and its stream of all tables' changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import ConfigError
from canal_server.mirror.spark_log import quieten
from canal_server.spark.options import quoted, read_options

if TYPE_CHECKING:
    from canal_server.mirror.model import TableName
    from canal_server.mirror.settings import MirrorSettings
    from canal_server.spark.options import SourceOptions

# What a session gets that is begun here, and not by spark-submit.
DEFAULTS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    # It hands rows on that others made: what the second compiler saves there in hours
    # is less than it takes from the two cores while the mirror starts.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # Else a process that does not begin within ten seconds, as on a machine that is
    # busy copying, ends the stream.
    "spark.python.authenticate.socketTimeout": "120s",
}
_IS_FOUND: Final = "DATA_SOURCE_ALREADY_EXISTS"  # by Spark itself
# What messages of others say, in the words of the mirror's settings: options of Spark's
# source, and what canal-server itself would need of a database.
_WORDS: Final = {
    "retryTimeoutMs": "stream.retry_timeout",
    "option servers": "canal.servers",
    "password of the instance": "password of source",
    "SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.*": "SELECT ON the table",
}
RETRIES: Final = 4  # of a task; in local mode it has to be said with the master


def open_session(settings: MirrorSettings) -> Any:
    """Return the session: that of spark-submit, else one on this machine.

    Raises ConfigError under Spark Connect, where the driver's process is another.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  # heavy

    builder = SparkSession.builder.appName(f"canal-server mirror {settings.name}")
    if "spark.remote" in settings.spark:
        problem = (
            "spark.remote: the mirror writes from Spark's driver, which is in another "
            "process with Spark Connect; use spark.master, or spark-submit"
        )
        raise ConfigError([problem])
    for name, value in (DEFAULTS | settings.spark).items():
        builder = builder.config(name, value)
    if SparkSession.getActiveSession() is None and not _is_submitted():
        master = settings.spark.get("spark.master", f"local[*,{RETRIES}]")
        builder = builder.master(master)
    session = builder.getOrCreate()
    # Delta's timestamps are in UTC, and so are those of the source.
    session.conf.set("spark.sql.session.timeZone", "UTC")
    _register_source(session)
    quieten(session)
    return session


def _register_source(session: Any) -> None:
    """Have Spark know the source, also where it does not find it by itself.

    It looks for packages in the folders of Python's path, and an editable install has
    none there.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415  # heavy

    from canal_server.spark.source import CanalDataSource  # noqa: PLC0415  # heavy

    try:
        session.dataSource.register(CanalDataSource)
    except AnalysisException as error:
        if _IS_FOUND not in str(error):
            raise


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


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
    """Return what others tell, with the names of our settings."""
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
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
