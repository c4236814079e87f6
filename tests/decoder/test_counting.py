"""Rows that are only counted: entries have the same headers, without the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog
from golden_form import DATA, decode_fields, load_workload, raw_entries_of
from reader_driver import Reading

from canal_server.errors import DecodeError
from canal_server.protocol.entry_messages import EventType, decode_entry

if TYPE_CHECKING:
    from pathlib import Path

    from canal_server.protocol.entry_messages import Entry

WORKLOADS = sorted(path.name.partition(".")[0] for path in DATA.glob("*.tar.xz"))
ROW_TYPES = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)


def emptied(entry: Entry) -> Entry:
    """Return an entry of rows without the rows."""
    if entry.header.event_type not in ROW_TYPES or entry.row_change().sql:
        return entry
    return replace(entry, store_value=b"")


@pytest.mark.parametrize("name", WORKLOADS)
def test_recordings(name: str, tmp_path: Path) -> None:
    """Of every recording the entries say the same, and those of rows have no rows."""
    workload = load_workload(name)
    whole = raw_entries_of(decode_fields(workload, tmp_path))
    counted = raw_entries_of(decode_fields(workload, tmp_path, counts=True))
    expected = [emptied(decode_entry(each)) for each in whole]
    assert [decode_entry(each) for each in counted] == expected


def test_rows_that_end_early() -> None:
    """An event whose last row is cut off is refused, as it is by who renders it."""
    log = Binlog()
    log.start()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([(b.LONG, b"")]))
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(1) + b.int_row(2)[:-1]))
    log.xid()
    refusals = []
    for counts in (False, True):
        with pytest.raises(DecodeError) as caught:
            Reading(counts=counts).run(log.as_stream())
        refusals.append(str(caught.value))
    assert refusals[0] == refusals[1]
