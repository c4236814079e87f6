"""Which unexpected errors concern one table only.

A bug that affects a table would occur again and again. It ends the mirroring of that
table, not of the others; an error of what all tables need (the lake, the machine,
Spark, a requested stop) does not concern one table.
"""

from __future__ import annotations

import traceback
from concurrent.futures import BrokenExecutor, CancelledError
from typing import Final

import pyarrow as pa

from canal_server.errors import CanalError
from canal_server.mirror.follow.leaving import (
    TableStoppedError,
)

_OURS: Final = "/canal_server/"
# Raised on purpose, caused from outside, or concerning the whole process.
_OF_ALL: Final = (
    CanalError,
    OSError,
    MemoryError,
    ImportError,
    SystemError,
    BrokenExecutor,
    CancelledError,
    pa.lib.ArrowCancelled,
)
_SPARK: Final = ("py4j", "pyspark")
# Python's messages, without a class of their own, when the machine or the process runs
# out of resources or ends.
_OF_PROCESS: Final = ("can't start new thread", "cannot schedule new futures")
# The same in a panic: out of threads or files.
_OF_MACHINE: Final = ("failed to spawn thread", "os error 11", "os error 24")
# What Rust libraries raise for a bug; it is not an Exception.
_PANIC: Final = "PanicException"


class TableFaultError(TableStoppedError):
    """A bug affected a table; the cause is the raised error."""


def fault_of(error: BaseException) -> TableFaultError | None:
    """Return the error that stops a table; None for one that concerns all tables."""
    kind = type(error)
    if not isinstance(error, Exception) and kind.__name__ != _PANIC:
        return None  # a requested stop
    if isinstance(error, _OF_ALL) or kind.__module__.partition(".")[0] in _SPARK:
        return None
    if kind is RuntimeError and any(each in str(error) for each in _OF_PROCESS):
        return None
    if kind.__name__ == _PANIC and any(each in str(error) for each in _OF_MACHINE):
        return None
    # Without its message, which may have a value that a mask hides from the lake.
    fault = TableFaultError(
        f"internal error: {kind.__name__}{_where(error)}; please report "
        "it, with the traceback in the log"
    )
    fault.__cause__ = error
    return fault


def _where(error: BaseException) -> str:
    """Return the innermost line of our code."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _OURS in frame.filename:
            return f" at {frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return ""
