"""Lines of JSON from bytes: those that the entries give, byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from client_entries import row, statement, transaction
from fix_random import longer
from golden_form import DATA, decode_fields, entries_of, load_workload

from canal_server.client.entry_format import changes, json_line
from canal_server.client.json_changes import json_lines
from canal_server.errors import ProtocolError
from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    EntryType,
    Header,
    RowChange,
    RowData,
)
from canal_server.protocol.protobuf import encode, varint

if TYPE_CHECKING:
    import random

WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))


@pytest.fixture(scope="module", params=WORKLOADS)
def recorded(request, tmp_path_factory) -> bytes:
    """Give the body of a recorded workload."""
    workload = load_workload(request.param)
    return decode_fields(workload, tmp_path_factory.mktemp("binlog"))


def body_of(*entries: bytes) -> bytes:
    """Return a body with these entries."""
    return b"".join(b"\x12" + varint(len(each)) + each for each in entries)


def by_entries(body: bytes, *, marks: bool) -> str:
    """Return the lines that the decoded entries give."""
    return "".join(
        json_line(change) + "\n"
        for entry in entries_of(body)
        for change in changes(entry, marks=marks)
    )


@pytest.mark.parametrize("marks", [False, True])
def test_recorded_workloads(recorded: bytes, marks: bool) -> None:
    """Every line of every recorded workload is the same, with marks and without."""
    found = json_lines(recorded, marks=marks)
    assert found.text.decode() == by_entries(recorded, marks=marks)
    assert found.whole
    if not marks:
        assert found.changes == found.text.count(b"\n")


TEXTS = ["", '"', "\\", "\x00\x1f\n\r\t\b\f\x7f", "ü€😀", "a" * 5000, "\u2028\ufffd"]


@pytest.mark.parametrize("text", TEXTS)
def test_strings(text: str) -> None:
    """Strings are escaped as `json` escapes them, everywhere in a line."""
    column = Column(name=text, is_key=True, is_null=False, value=text, updated=True)
    null = Column(name="n", is_null=True, value=text)
    for kind in (None, 0, 1, 7, 99):
        change = RowChange(
            event_type=kind,
            row_datas=(
                RowData(before_columns=(column, null), after_columns=(null, column)),
                RowData(before_columns=(column,)),
                RowData(after_columns=(column,)),
                RowData(),
            ),
        )
        for content in (change, RowChange(event_type=kind, sql=text)):
            entry = Entry(
                header=Header(
                    logfile_name=text,
                    logfile_offset=2**40,
                    execute_time=-5,
                    schema_name=text,
                    table_name=text,
                    gtid=text,
                ),
                entry_type=EntryType.ROWDATA,
                store_value=encode(content),
            )
            body = body_of(encode(entry))
            assert json_lines(body).text.decode() == by_entries(body, marks=False)


def test_limit() -> None:
    """After a number of changes the others are left out, and that is returned."""
    body = body_of(*transaction(1, 3), statement(9, "DROP TABLE x"))
    for limit, whole in ((0, False), (2, False), (3, False), (4, True), (-1, True)):
        found = json_lines(body, limit=limit)
        assert (found.changes, found.whole) == (4 if limit < 0 else limit, whole)
        assert found.text.count(b"\n") == found.changes


def test_other_than_utf8() -> None:
    """Bytes that are no text are refused, as lines have to be UTF-8."""
    broken = row(1).replace(b"orders", b"\xff\xfeders")
    with pytest.raises(ProtocolError):
        json_lines(body_of(broken))


def test_damaged_bodies(recorded: bytes, rng: random.Random) -> None:
    """Whatever the bytes are, they are written or refused with ProtocolError."""
    for _ in range(longer(30)):
        damaged = bytearray(recorded[: rng.randint(1, len(recorded))])
        for _ in range(rng.randint(1, 20)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            found = json_lines(bytes(damaged), marks=True)
        except ProtocolError:
            continue
        found.text.decode()
