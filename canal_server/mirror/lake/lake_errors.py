"""Errors of the lake: their messages, and whether they concern one table only.

A store that is full, slow or unavailable fails for all tables and recovers. A table
with a broken log, broken files or foreign constraints keeps failing, while the others
work. delta-rs uses one class for both, so the text decides; in doubt it is the store.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from canal_server.errors import LakeError
from canal_server.mirror.lake.lake_table import UnusableTableError
from canal_server.mirror.lake.stores.store_errors import meaning, without_request

# A file that the log names is missing, or shorter than the log says.
_LOST: Final = re.compile(
    r"Object at location \S+ not found(?!.*NoSuchBucket)|Requested range was invalid",
    re.DOTALL,
)
# From the store or the operating system: `Generic S3 error`, `(os error 28)`.
_OF_STORE: Final = re.compile(r"Generic (?!DeltaTable\b)\w+ error|\(os error \d+\)")
_BROKEN: Final = re.compile(
    r"failed validation check|append-only|Schema error|Cast error|Unsupported"
    r"|[Jj]son error|No table metadata|Parquet argument error|Invalid Parquet|Corrupt"
    r"|invalid utf-8|EOF: "
)
_OF_MACHINE: Final = (OSError, pa.lib.ArrowCancelled, pa.lib.ArrowMemoryError)
# The end of the causes: stack frames, and rows, whose data must not be logged.
_END: Final = re.compile(r"\s*\d+: <?\w|Preview of|\+-")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def lake_error(what: str, error: Exception) -> LakeError:
    """Return the error for a failure of `what`: `cannot … the lake's table …`.

    It is an UnusableTableError if the table itself is the cause, and keeps the class of
    an error of ours.
    """
    kind = LakeError
    if isinstance(error, LakeError):
        kind = type(error)
    elif _is_of_table(error):
        kind = UnusableTableError
    return kind(f"{what}: {_causes(error)}")


def unusable(what: str, error: Exception) -> UnusableTableError:
    """Return the error for a failure whose cause certainly is the table itself."""
    return UnusableTableError(f"{what}: {_causes(error)}")


def _is_of_table(error: Exception) -> bool:
    if isinstance(error, _OF_MACHINE):
        return False
    if not isinstance(error, DeltaError):
        return isinstance(error, pa.ArrowException)  # raised by our reading and casting
    text = str(error)
    if _LOST.search(text):
        return True
    return _OF_STORE.search(text) is None and _BROKEN.search(text) is not None


def _causes(error: Exception) -> str:
    """Return an error's causes in one line; first what to do, if that is known."""
    text = without_request(_COLOUR.sub("", str(error)))
    found = "" if isinstance(error, LakeError) else meaning(text)
    lines: list[str] = [found] if found else []
    for line in text.splitlines():
        if lines and _END.match(line):
            break
        if text := line.strip().removeprefix("↳").strip():
            lines.append(text)
    return ": ".join(lines)
