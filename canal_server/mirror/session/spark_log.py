"""What Spark's driver logs beside what the mirror tells: less of it.

A batch or a task that fails is told by the mirror, with what is to be done. Spark would
tell the same before, in some hundred lines of stack traces. What else goes wrong in it
is logged as ever. With `--log-level debug` nothing is left out.
"""

from __future__ import annotations

import logging
from typing import Any, Final

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_TOLD_BY_PYTHON: Final = "py4j.clientserver"  # of what is raised in a batch
# What py4j logs, with a traceback, by no name of its own when a JVM goes away, as when
# it gets the signal that ends the mirror; what comes of that is raised, too.
_UNNAMED: Final = "Exception while sending command"
_TOLD: Final = (
    f"{_STREAMING}.runtime.MicroBatchExecution",
    f"{_STREAMING}.MicroBatchExecution",  # of before Spark 4.1
    f"{_STREAMING}.runtime.ResolveWriteToStream",  # of a setting without effect
    "org.apache.spark.api.python.PythonRunner",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)


def quieten(session: Any) -> None:
    """Have Spark not log what the mirror tells itself."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        return
    logging.getLogger(_TOLD_BY_PYTHON).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_ours)  # of what has no name
    log4j = session.sparkContext._jvm.org.apache.logging.log4j  # noqa: SLF001  # the way
    for name in _TOLD:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _is_ours(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_UNNAMED)
