"""Reduces what Spark's driver logs in addition to the mirror.

The mirror itself logs a batch or task that fails, with a remedy. Spark would log the
same before, in some hundred lines of stack traces. Spark's other errors are logged as
usual. With `--log-level debug` nothing is left out.
"""

from __future__ import annotations

import logging
from typing import Any, Final

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_LOGGED_BY_PYTHON: Final = "py4j.clientserver"  # errors raised in a batch
# What py4j logs with a traceback, without a logger's name, when a JVM exits, as on the
# signal that stops the mirror; the error that follows is raised, too.
_UNNAMED: Final = "Exception while sending command"
_LOGGED: Final = (
    f"{_STREAMING}.runtime.MicroBatchExecution",
    f"{_STREAMING}.MicroBatchExecution",  # before Spark 4.1
    f"{_STREAMING}.runtime.ResolveWriteToStream",  # about a setting without effect
    "org.apache.spark.api.python.PythonRunner",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)


def quieten(session: Any) -> None:
    """Keep Spark from logging what the mirror logs itself."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        return
    logging.getLogger(_LOGGED_BY_PYTHON).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_ours)  # for records without a name
    log4j = session.sparkContext._jvm.org.apache.logging.log4j  # noqa: SLF001
    for name in _LOGGED:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _is_ours(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_UNNAMED)
