"""Unexpected errors: which of them concern one table only."""

from __future__ import annotations

import pyarrow as pa
import pytest

from canal_server.errors import LakeError
from canal_server.mirror.follow.leaving import (
    CopyNeededError,
)
from canal_server.mirror.follow.table_faults import fault_of


class PanicException(BaseException):  # by this name they know it
    """What libraries in Rust raise when they meet a fault of theirs."""


class Py4JError(Exception):
    """What py4j raises when Spark's JVM has ended."""

    __module__ = "py4j.protocol"


@pytest.mark.parametrize(
    "error",
    [
        KeyError("id"),
        pa.lib.ArrowInvalid("a value\n  does not fit"),
        AssertionError(),
        RuntimeError("a dictionary changed"),
        PanicException("index out of bounds"),
    ],
)
def test_of_one_table(error: BaseException) -> None:
    """The message has the error's class, without values; the cause is kept."""
    fault = fault_of(error)
    assert fault is not None
    assert fault.__cause__ is error
    assert str(fault) == (
        f"internal error: {type(error).__name__}; please report it, with "
        "the traceback in the log"
    )


@pytest.mark.parametrize(
    "error",
    [
        LakeError("the disk is full"),
        CopyNeededError("it has another key"),
        OSError("the disk is full"),
        MemoryError(),
        pa.lib.ArrowMemoryError("none left"),
        pa.lib.ArrowCancelled("a signal"),
        Py4JError("the JVM is gone"),
        RuntimeError("can't start new thread"),
        RuntimeError("cannot schedule new futures after interpreter shutdown"),
        KeyboardInterrupt(),
        SystemExit(1),
    ],
)
def test_of_all_tables(error: BaseException) -> None:
    """The lake, the machine, Spark, an end that is asked for: no table is stopped."""
    assert fault_of(error) is None
