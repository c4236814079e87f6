"""Entries of statements that begin and end transactions."""

from __future__ import annotations

import binlog_bytes as b
import pytest
from binlog_bytes import Binlog
from binlog_driver import Driven

from canal_server.errors import DecodeError
from canal_server.model.entry import EntryType, EventType


@pytest.mark.parametrize(
    ("sql", "kinds"),
    [
        (b"BEGIN", [EntryType.TRANSACTIONBEGIN]),
        (b"COMMIT", [EntryType.TRANSACTIONEND]),
        (b"SAVEPOINT `a`", []),
        (b"XA START X'31',X'',1", [EntryType.TRANSACTIONBEGIN]),
        (b"XA END X'31',X'',1", [EntryType.TRANSACTIONEND]),
        (b"XA COMMIT X'31',X'',1", [EntryType.ROWDATA]),
        (b"XA ROLLBACK X'31',X'',1", [EntryType.ROWDATA]),
    ],
)
def test_transaction_control(sql: bytes, kinds: list[EntryType]) -> None:
    """Statements that delimit transactions never reach Python."""
    log = Binlog()
    log.start()
    log.add(b.QUERY, b.query_body(sql, thread=300))
    driven = Driven()
    driven.feed(log.as_stream())
    assert [entry.entry_type for entry in driven.entries] == kinds
    assert driven.halts == []


def test_content_of_begin_and_end() -> None:
    """BEGIN has its thread, END its XID; that of COMMIT is 0."""
    log = Binlog()
    log.start()
    log.add(b.QUERY, b.query_body(b"BEGIN", thread=300))
    log.xid((1 << 64) - 1)
    log.add(b.QUERY, b.query_body(b"BEGIN", thread=0))
    log.add(b.QUERY, b.query_body(b"COMMIT"))
    driven = Driven()
    driven.feed(log.as_stream())
    first, last, anonymous, commit = driven.entries
    assert first.transaction_begin().thread_id == 300
    assert last.transaction_end().transaction_id == str((1 << 64) - 1)
    assert anonymous.store_value == b""
    assert commit.transaction_end().transaction_id == "0"


def test_content_of_xa() -> None:
    """XA entries have the kind and the xid in the statement's form."""
    log = Binlog()
    log.start()
    words = ("XA START", "XA END", "XA COMMIT", "XA ROLLBACK")
    for word in words:
        log.add(b.QUERY, b.query_body(f"{word} X'31',X'',1".encode()))
    log.add(b.QUERY, b.query_body(b"xa start 'low'"))
    driven = Driven()
    driven.feed(log.as_stream())
    start, end, commit, rollback, lower = driven.entries
    props = [
        start.transaction_begin().props,
        end.transaction_end().props,
        commit.row_change().props,
        rollback.row_change().props,
    ]
    for word, pairs in zip(words, props, strict=True):
        assert [(pair.key, pair.value) for pair in pairs] == [
            ("XA_TYPE", word),
            ("XA_XID", " X'31',X'',1"),
        ]
    assert commit.row_change().event_type == EventType.XACOMMIT
    assert rollback.header.event_type == EventType.XAROLLBACK
    assert rollback.row_change().sql == "XA ROLLBACK X'31',X'',1"
    assert [pair.value for pair in lower.transaction_begin().props] == ["XA START", ""]


def test_overlong_xa() -> None:
    """An XA statement longer than any xid is refused."""
    log = Binlog()
    log.add(b.QUERY, b.query_body(b"XA START '" + b"x" * 600 + b"'"))
    with pytest.raises(DecodeError, match="an XA statement of 611 bytes"):
        Driven().feed(log.as_stream())
