"""Which errors are one table's alone, though nobody expected them.

A fault of the program's that meets a table would meet it again and again. It ends that
table's mirroring, and not that of the others; what everybody's work needs (the lake,
the machine, Spark, an end that was asked for) is not a matter of one table.
"""

from __future__ import annotations

import traceback
from concurrent.futures import BrokenExecutor, CancelledError
from typing import Final

import pyarrow as pa

from canal_server.errors import CanalError
from canal_server.mirror.follow.follower import TableStoppedError

_OURS: Final = "/canal_server/"
# These are raised on purpose, come from outside, or are about the process as a whole.
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
# What Python says, with no kind of its own, when the machine or the process is at its
# end.
_OF_PROCESS: Final = ("can't start new thread", "cannot schedule new futures")
# The same in a panic: no more threads, no more files.
_OF_MACHINE: Final = ("failed to spawn thread", "os error 11", "os error 24")
# What libraries in Rust raise for a fault of theirs; it is no Exception.
_PANIC: Final = "PanicException"


class TableFaultError(TableStoppedError):
    """A fault of the program's met a table; its cause is what was raised."""


def fault_of(error: BaseException) -> TableFaultError | None:
    """Return what stops a table for an error; None for one that concerns all."""
    kind = type(error)
    if not isinstance(error, Exception) and kind.__name__ != _PANIC:
        return None  # an end that was asked for
    if isinstance(error, _OF_ALL) or kind.__module__.partition(".")[0] in _SPARK:
        return None
    if kind is RuntimeError and any(each in str(error) for each in _OF_PROCESS):
        return None
    if kind.__name__ == _PANIC and any(each in str(error) for each in _OF_MACHINE):
        return None
    # Not what it says: that may be a value which a mask hides, and goes into the lake.
    fault = TableFaultError(
        f"a fault of the mirror's own: {kind.__name__}{_where(error)}; please report "
        "it, with the traceback in the log"
    )
    fault.__cause__ = error
    return fault


def _where(error: BaseException) -> str:
    """Return the innermost place of ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _OURS in frame.filename:
            return f" at {frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return ""
