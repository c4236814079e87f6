"""Recorded binlogs of many kinds of statements, and what is delivered for them."""

from __future__ import annotations

import copy
import functools
import re
import tempfile
from pathlib import Path

import pytest
from golden_compare import brief, compare
from golden_form import (
    DATA,
    Json,
    ReplayedImages,
    Workload,
    decode_fields,
    entries_of,
    load_workload,
    raw_entries_of,
    to_json,
)
from golden_truth import Tables, disagreements

from canal_server.model.entry import EntryType
from canal_server.protocol.entry_messages import decode_entry, encode

NONE: frozenset[int] = frozenset()
WORKLOADS = sorted(path.name.partition(".")[0] for path in DATA.iterdir())


_ALTERED = r"\d+\.(header|rowChange)\.(eventType|schemaName|tableName)"
_COLUMN = r"\d+\.rowChange\.rowDatas\[\d\]\.(before|after)"

# Where we deliver something else than the recording, on purpose: a regular expression
# for each path, and why.
KNOWN = {
    "ev_objects": {
        r"1[89]\.header\.schemaName": "a database is named without its quotes",
    },
    "names_unicode_db": {
        r"0\.header\.schemaName": "a database is named without its quotes",
    },
    "maria_objects": {
        r"5\.header\.schemaName": "CREATE OR REPLACE DATABASE names its database",
    },
    "maria_alter": {_ALTERED: "IF [NOT] EXISTS in an ALTER is understood"},
    "maria_if_exists": {_ALTERED: "IF [NOT] EXISTS in an ALTER is understood"},
    "maria_compressed_columns": {_ALTERED: "COMPRESSED columns are understood"},
    "types_invisible": {_ALTERED: "INVISIBLE columns are understood"},
    "maria_events": {
        r"\d+\.header\.logfileName": "entries after a rotation name the second file",
    },
    "maria_old_temporal": {
        r"3\.rowChange\.rowDatas\[[01]\]\.after\[1\]\.value": (
            "the list of faults names the row before the wrong one"
        ),
    },
    "maria_types": {
        _COLUMN + r"\[22\]\.(sqlType|mysqlType)": "JSON is LONGTEXT in MariaDB",
        _COLUMN
        + r"\[[123]\]\.value": "also of rows that are deleted in the end: UUID, …",
        _ALTERED: "CREATE TABLE with CHECK after its columns is understood",
    },
    "types_charset": {
        _COLUMN + r"\[\d+\]\.mysqlType": "the server shows labels of ENUM in utf8mb3",
        _COLUMN + r"\[1\]\.value": "also of rows that are deleted in the end: charsets",
    },
    "types_str": {
        _COLUMN + r"\[1[345]\]\.(sqlType|mysqlType)": (
            "CHARACTER SET binary makes the binary type of a type"
        ),
        _COLUMN + r"\[9\]\.mysqlType": "the server shows labels of SET in utf8mb3",
    },
}
# Entries that only we deliver, by their number.
EXTRA = {
    # The end of a transaction whose statements were delivered.
    "ev_statement": frozenset({92}),
}

# Workloads whose rows in the end do not follow from the entries, and why.
UNFOLDED = {
    "ev_compressed_mixed": "statements and partial JSON",
    "ev_ddl": "an exchanged partition",
    "ev_gtid": "statements",
    "ev_image": "images without all columns",
    "ev_partial_json": "expressions instead of documents",
    "ev_statement": "statements",
    "ev_txn": "prepared transactions that were rolled back",
    "maria_events": "statements",
    "maria_log_compress_ddl": "a statement",
}
FOLDED = sorted(set(WORKLOADS) - set(UNFOLDED))


@functools.cache
def workload_of(name: str) -> Workload:
    """Return a workload, read once."""
    return load_workload(name)


@functools.cache
def fields_of(name: str) -> bytes:
    """Return what is delivered for a workload, decoded once."""
    with tempfile.TemporaryDirectory() as folder:
        return decode_fields(workload_of(name), Path(folder))


def json_of(name: str) -> list[Json]:
    """Return the entries of a workload in JSON form."""
    return [to_json(n, entry) for n, entry in enumerate(entries_of(fields_of(name)))]


@pytest.mark.parametrize("name", WORKLOADS)
def test_delivers_the_recorded_entries(name: str) -> None:
    """Each entry equals the recording, but for differences that are on purpose."""
    known = KNOWN.get(name, {})
    found = compare(workload_of(name), json_of(name), extra=EXTRA.get(name, NONE))
    unexplained = [
        f"{path}: expected {brief(expected)}, got {brief(got)}"
        for path, expected, got in found
        if not any(re.fullmatch(pattern, path) for pattern in known)
    ]
    assert not unexplained, "\n".join(unexplained[:20])


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_known_differences_are_still_there(name: str) -> None:
    """The table of differences holds none that no longer occurs."""
    found = compare(workload_of(name), json_of(name))
    for pattern, reason in KNOWN[name].items():
        assert any(re.fullmatch(pattern, path) for path, _, _ in found), reason


@pytest.mark.parametrize("name", sorted(EXTRA))
def test_extra_entries_are_still_there(name: str) -> None:
    """Without what only we deliver, the entries are those of the recording."""
    assert compare(workload_of(name), json_of(name))
    assert not compare(workload_of(name), json_of(name), extra=EXTRA[name])


@pytest.mark.parametrize("name", FOLDED)
def test_rows_make_the_tables_that_the_server_had(name: str) -> None:
    """Applying every delivered row gives exactly what SELECT returned in the end."""
    workload = workload_of(name)
    skip = frozenset(workload.faults.get("truth_not_for", ())) - {"*"}
    tables = Tables()
    for entry in entries_of(fields_of(name)):
        if entry.entry_type == EntryType.ROWDATA:
            tables.apply(entry)
    columns = workload.last_columns()
    assert not disagreements(tables, workload.truth, columns, skip)


# Of CREATE TABLE … SELECT in statement format only the server knows the columns.
@pytest.mark.parametrize("name", sorted(set(WORKLOADS) - {"ev_statement"}))
def test_statements_alone_give_the_columns(name: str) -> None:
    """With columns from the DDL of the recording the same bytes are delivered."""
    workload = workload_of(name)
    images = ReplayedImages(mariadb=workload.settings.get("server") == "mariadb")
    with tempfile.TemporaryDirectory() as folder:
        found = decode_fields(workload, Path(folder), images)
    assert found == fields_of(name)


@pytest.mark.parametrize("name", WORKLOADS)
def test_entries_are_canonical(name: str) -> None:
    """The compiled writer's bytes are those that the protocol's encoder gives."""
    count = 0
    for raw in raw_entries_of(fields_of(name)):
        count += 1
        entry = decode_entry(raw)
        assert encode(entry) == raw
        if entry.entry_type == EntryType.TRANSACTIONBEGIN:
            content = encode(entry.transaction_begin())
        elif entry.entry_type == EntryType.TRANSACTIONEND:
            content = encode(entry.transaction_end())
        else:
            content = encode(entry.row_change())
        assert content == entry.store_value
    assert count


def test_comparison_notices_every_field() -> None:
    """A change of any value of an entry is found, so equality means something."""
    workload, right = workload_of("types_num"), json_of("types_num")
    wrong = copy.deepcopy(right)
    row = wrong[3]["rowChange"]["rowDatas"][0]["after"][0]
    for key, other in (("value", "x"), ("updated", False), ("mysqlType", "date")):
        before, row[key] = row[key], other
        found = compare(workload, wrong)
        assert [path.rpartition(".")[2] for path, _, _ in found] == [key]
        row[key] = before
    assert compare(workload, wrong[:-1])
    assert compare(workload, wrong) == compare(workload, right) == []


def test_truth_notices_a_wrong_row() -> None:
    """A row too many, too few or with another value is found."""
    workload = workload_of("ev_dml")
    tables = Tables()
    for entry in entries_of(fields_of("ev_dml")):
        if entry.entry_type == EntryType.ROWDATA:
            tables.apply(entry)
    columns = workload.last_columns()
    none: frozenset[str] = frozenset()
    assert not disagreements(tables, workload.truth, columns, none)
    rows = max(tables.rows.values(), key=len)
    row = rows.pop()
    assert len(disagreements(tables, workload.truth, columns, none)) == 1
    rows += [row, row.copy()]
    assert len(disagreements(tables, workload.truth, columns, none)) == 1
    rows.pop()
    row[next(iter(row))] = "12345"
    assert len(disagreements(tables, workload.truth, columns, none)) == 2
