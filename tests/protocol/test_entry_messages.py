"""The messages of the entry protocol."""

from __future__ import annotations

import pytest

from canal_server.errors import ProtocolError
from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    EntryType,
    EventType,
    Header,
    Pair,
    RowChange,
    RowData,
    SourceType,
    TransactionBegin,
    TransactionEnd,
    decode_entry,
    encode,
)

COLUMN = Column(
    index=1, sql_type=12, name="v", is_key=True, updated=True, is_null=False,
    value="one", mysql_type="varchar(20)",
)  # fmt: skip
NULL = Column(index=2, sql_type=4, name="n", is_null=True, mysql_type="int")
CHANGE = RowChange(
    table_id=258,
    event_type=EventType.UPDATE,
    is_ddl=False,
    row_datas=(RowData(before_columns=(COLUMN,), after_columns=(COLUMN, NULL)),),
    props=(Pair("k", "v"),),
)
HEADER = Header(
    version=1, logfile_name="b.01", logfile_offset=275, server_id=1,
    serveren_code="UTF-8", execute_time=1700000000000, source_type=SourceType.MYSQL,
    schema_name="conv", table_name="t", event_length=122, event_type=EventType.UPDATE,
    props=(Pair("rowsCount", "1"),), gtid="uuid:1-5",
)  # fmt: skip


def test_column_bytes():
    """A column is written in canonical form, its null flag always."""
    assert encode(COLUMN).hex() == (
        "0801100c1a017620012801300042036f6e65520b766172636861722832302 9".replace(
            " ", ""
        )
    )
    assert encode(NULL).hex() == "080210041a016e30015203696e74"


def test_header_bytes():
    """A header is written in canonical form."""
    assert encode(HEADER).hex() == (
        "0801" "1204622e3031" "189302" "2001" "2a055554462d38" "3080d095ffbc31" "3802"
        "4204636f6e76" "4a0174" "507a" "5802" "620e" "0a09726f7773436f756e74" "120131"
        "6a08757569643a312d35"
    )  # fmt: skip


def test_rows():
    """A row entry gives its change back, and rows as values by column name."""
    entry = Entry(HEADER, EntryType.ROWDATA, encode(CHANGE))
    decoded = decode_entry(encode(entry))
    assert decoded == entry
    assert decoded.row_change() == CHANGE
    row = decoded.row_change().row_datas[0]
    assert row.before == {"v": "one"}
    assert row.after == {"v": "one", "n": None}


def test_absent_entry_type_means_rows():
    """An entry without a type is a row entry, as for clients of old."""
    assert Entry(store_value=encode(CHANGE)).row_change() == CHANGE


def test_transaction_marks():
    """BEGIN and END entries give their content, and no other."""
    begin = TransactionBegin(thread_id=166, props=(Pair("XA_TYPE", "XA START"),))
    end = TransactionEnd(transaction_id="12")
    first = Entry(entry_type=EntryType.TRANSACTIONBEGIN, store_value=encode(begin))
    last = Entry(entry_type=EntryType.TRANSACTIONEND, store_value=encode(end))
    assert first.transaction_begin() == begin
    assert last.transaction_end() == end
    for wrong in (first.row_change, first.transaction_end, last.transaction_begin):
        with pytest.raises(ProtocolError, match="an entry of type <EntryType"):
            wrong()


def test_malformed_entry():
    """Bytes that are not an entry raise an error that says so."""
    with pytest.raises(ProtocolError, match="malformed Entry"):
        decode_entry(b"\x0a\xff")
