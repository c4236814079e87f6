"""Names of files show where their rows begin, and which files a new one replaces."""

from __future__ import annotations

import datetime as dt

import pytest

from canal_server.client.handlers.parquet_names import (
    FileName,
    folder_name,
    predecessor,
    superseded,
)


def name(second=0, offset=100, row=0, binlog="binlog.000007") -> FileName:
    """Return the name of a file."""
    moment = dt.datetime(2026, 2, 28, 1, 2, second, tzinfo=dt.UTC)
    return FileName(moment, binlog, offset, row)


def test_a_name():
    """It can be read back, and is sorted as the binlog is."""
    text = str(name(3, 4711, 2))
    assert text == "20260228T010203Z-binlog.000007-000000004711-0002.parquet"
    assert FileName.parse(text) == name(3, 4711, 2)
    assert str(name(3, 99)) < str(name(3, 100)) < str(name(3, 100, 1)) < str(name(4, 5))


@pytest.mark.parametrize("text", ["x.parquet", ".20260228.part", "_SUCCESS"])
def test_other_names(text):
    """Files of others are none of ours."""
    assert FileName.parse(text) is None


@pytest.mark.parametrize(
    ("schema", "table", "folder"),
    [("shop", "orders", "shop.orders"), ("a", "b/c%", "a.b%2Fc%25"), (".", ".", "...")],
)
def test_folders(schema, table, folder):
    """Names of tables cannot lead out of the folder."""
    assert folder_name(schema, table) == folder


@pytest.mark.parametrize(
    ("other", "is_superseded"),
    [
        (name(1, 150), True),
        (name(1, 100, 1), True),
        (name(2, 200, 5), True),  # begins with the last row
        (name(1, 100), False),  # is the new file
        (name(1, 50), False),  # begins before it
        (name(2, 201), False),  # begins after it
        (name(9, 150), False),  # of another time: positions began again
        (name(0, 150), False),
        (name(1, 150, binlog="other.000007"), False),  # of another source
        (name(1, 150, binlog="binlog.000006"), False),
        (name(1, 150, binlog="strange"), False),
    ],
)
def test_files_that_a_new_one_replaces(tmp_path, other, is_superseded):
    """Those that begin within it, by position and time, and no others."""
    path = tmp_path / str(other)
    path.touch()
    (tmp_path / "other.parquet").touch()
    found = list(superseded(tmp_path, name(1, 100), name(2, 200, 5)))
    assert found == ([path] if is_superseded else [])


def test_the_file_before(tmp_path):
    """It is the last that begins earlier in the same binlogs, and not later in time."""
    for each in (name(1, 50), name(0, 99), name(1, 100), name(9, 20), name(0, 100, 0,
                 "other.000007")):  # fmt: skip
        (tmp_path / str(each)).touch()
    found = predecessor(tmp_path, name(1, 100))
    assert found == tmp_path / str(name(1, 50))
    assert predecessor(tmp_path, name(0, 99)) is None


def test_numbers_of_binlogs_are_no_texts(tmp_path):
    """After binlog.999999 comes binlog.1000000."""
    path = tmp_path / str(name(1, 4, binlog="binlog.1000000"))
    path.touch()
    first, last = (
        name(1, 9, binlog="binlog.999999"),
        name(1, 9, binlog="binlog.1000000"),
    )
    assert list(superseded(tmp_path, first, last)) == [path]
