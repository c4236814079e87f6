"""Column filters of single tables."""

from __future__ import annotations

import logging

from canal_server.filters.column_filters import ColumnFilter

COLUMNS = ("id", "Name", "secret")


def test_no_lists():
    """Without lists every column is delivered."""
    columns = ColumnFilter("", "")
    assert not columns
    assert columns.emitted("db", "t", COLUMNS) == (True, True, True)


def test_white_list():
    """A table with a white list has those columns only, whatever the case."""
    columns = ColumnFilter("DB.t:ID/name,db.u:x", "")
    assert columns
    assert columns.emitted("db", "T", COLUMNS) == (True, True, False)
    assert columns.emitted("db", "u", COLUMNS) == (False, False, False)
    assert columns.emitted("db", "v", COLUMNS) == (True, True, True)


def test_black_list():
    """Denied columns are omitted if there is no allow list."""
    columns = ColumnFilter("db.t:id/secret", "db.t:secret,db.u:secret")
    assert columns.emitted("db", "t", COLUMNS) == (True, False, True)
    assert columns.emitted("db", "u", COLUMNS) == (True, True, False)


def test_names_are_exact():
    """Table names are not expressions, and blanks are part of a name."""
    columns = ColumnFilter(".*:id, db.t:id,db.u:id/ name", "")
    assert columns.emitted("db", "t", COLUMNS) == (True, True, True)
    assert columns.emitted("db", "u", COLUMNS) == (True, False, False)


def test_malformed_items_are_ignored_with_a_warning(caplog):
    """An item that is not table and columns does nothing but warn."""
    with caplog.at_level(logging.WARNING):
        columns = ColumnFilter("db.t,db.u:a:b,db.v:,,db.w:id:", "")
    assert columns.emitted("db", "t", COLUMNS) == (True, True, True)
    assert columns.emitted("db", "u", COLUMNS) == (True, True, True)
    assert columns.emitted("db", "v", COLUMNS) == (True, True, True)
    assert columns.emitted("db", "w", COLUMNS) == (True, False, False)
    assert len(caplog.records) == 3
