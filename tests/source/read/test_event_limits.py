"""Events above the size limit are refused, with little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from fix_daemon import child_environ
from support_paths import PYTHONPATH, program

PROGRAM = program("hostile_events.py")
MIB = 1 << 20


def read(case: str) -> dict[str, Any]:
    """Read a binlog of `hostile_events` in another process."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), case],
        env=child_environ(PYTHONPATH),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("case", "message", "grown_max"),
    [
        (
            "endless_packets",
            "30: 4294967295 bytes, above canal.instance.event.bytes.max = 1073741824",
            8 * MIB,
        ),
        ("endless_continuation", "a length of 41943040, with more", 64 * MIB),
        ("endless_error", "an answer of 16777215 bytes that is not an event", 48 * MIB),
        ("long_event", "9437219 bytes, above canal.instance.event.bytes", 32 * MIB),
        ("payload_with_large_event", "event type 30: 4294967295 bytes, ab", 32 * MIB),
        ("payload_beyond_its_size", "inflates to more than 1048576 bytes", 32 * MIB),
        ("wide_table", "of 1000000 columns for db.t, above the limit of 4", 32 * MIB),
        ("many_names", "more names than its 1 columns", 32 * MIB),
        ("many_tables", "bytes in one statement, above the limit", 400 * MIB),
        (
            "compressed_event_above",
            "event type 165: inflates to 943718416 bytes",
            32 * MIB,
        ),
        ("compressed_values", "bytes, above the limit of 67108864", 300 * MIB),
        ("compressed_value_above", "a value of 629145600 bytes when", 32 * MIB),
        ("long_file_name", "name of 1048576 bytes, limit 512", 32 * MIB),
    ],
)
def test_what_is_too_large_is_refused(case: str, message: str, grown_max: int) -> None:
    """The error names the event, its position and the limit; memory is bounded."""
    found = read(case)
    assert found["error"].startswith("DecodeError: ")
    assert message in found["error"]
    assert "(event at bin.000001:" in found["error"]
    assert found["grown"] < grown_max


@pytest.mark.parametrize("case", ["null_event", "compressed_null_event"])
def test_rows_come_in_pieces(case: str) -> None:
    """10 MiB of rows that are NULL become 1.6 GB of entries, piece by piece."""
    found = read(case)
    assert found["error"] == ""
    assert found["rows"] == 10 * MIB
    assert found["bytes"] > 1500 * 1000 * 1000
    assert 100 < found["entries"] < 1000
    assert found["grown"] < 200 * MIB


@pytest.mark.parametrize(
    ("case", "rows"), [("large_transaction", 300), ("blob_row", 1)]
)
def test_what_is_allowed_is_read(case: str, rows: int) -> None:
    """A compressed transaction of 300 MiB and a BLOB of 200 MiB are delivered whole."""
    found = read(case)
    assert found["error"] == ""
    assert found["rows"] == rows
    assert found["bytes"] > 200 * MIB


def test_compressed_transactions_are_inflated_in_pieces() -> None:
    """300 MiB of a compressed transaction are never in memory together."""
    assert read("large_transaction")["grown"] < 100 * MIB
