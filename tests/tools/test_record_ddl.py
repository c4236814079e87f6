"""Scripts become corpora: what is in the binlog, with the server's own answer."""

from __future__ import annotations

import json
import lzma

import pytest
import record_ddl
from server_data import template_of
from server_folders import Unavailable
from server_packages import find_programs

FLAVOURS = [
    pytest.param("mysql", marks=pytest.mark.mysql),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]
READ_ONLY = """
CREATE DATABASE d;
CREATE TABLE d.t (a INT PRIMARY KEY);
ALTER DATABASE d READ ONLY = 1;
"""
SCRIPT = """
CREATE TABLE t1 (a INT PRIMARY KEY, b VARCHAR(5) CHARACTER SET latin1);
INSERT INTO t1 VALUES (1, 'x');
--error 1
CREATE TABLE t1 (never INT);
SET sql_mode = 'ANSI_QUOTES';
ALTER TABLE "t1" DROP b;
CREATE USER x;
CREATE VIEW v1 AS SELECT * FROM t1;
DROP TABLE t1;
"""


def recorded(flavour, tmp_path, *scripts):
    """Record scripts; returns the lines."""
    try:
        template_of(find_programs(flavour))
    except Unavailable as error:
        pytest.skip(f"no {flavour}: {error}")
    out = tmp_path / "out.jsonl.xz"
    options = ["--lines", "30", "--root", str(tmp_path)]
    assert record_ddl.main([flavour, str(out), *scripts, *options]) == 0
    with lzma.open(out, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_script_is_recorded(flavour, tmp_path):
    """Proves texts, contexts and answers, and that rows and accounts are left out."""
    (tmp_path / "s.sql").write_text(SCRIPT)
    lines = recorded(flavour, tmp_path, str(tmp_path / "s.sql"))
    assert [line["seq"] for line in lines] == list(range(5))
    first, created, altered, view, dropped = lines
    assert first["sql"] == "create database test"
    assert {line["file"] for line in lines} == {"s.sql"}
    assert {line["schema"] for line in lines} == {"test"}
    table = created["tables_changed"]["test"]["t1"]
    assert [column[0] for column in table["columns"]] == ["a", "b"]
    assert table["columns"][0][2:] == [0, 1, None, ""]
    assert table["columns"][1][1:] == ["varchar(5)", 1, 0, "latin1", ""]
    assert table["create"].startswith("CREATE TABLE `t1` (")
    assert altered["sql"] == 'ALTER TABLE "t1" DROP b'
    assert altered["sql_mode"] & 4
    assert not created["sql_mode"] & 4
    left = altered["tables_changed"]["test"]["t1"]["columns"]
    assert [column[0] for column in left] == ["a"]
    assert view["tables_changed"] == {}
    assert dropped["tables_changed"] == {"test": {"t1": None}}


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_each_script_begins_with_an_empty_server(flavour, tmp_path):
    """Settings and tables of one script do not exist for the next."""
    (tmp_path / "a.sql").write_text(
        "SET GLOBAL sql_mode = 'ANSI'; CREATE DATABASE other; CREATE TABLE t (a INT);"
    )
    (tmp_path / "b.sql").write_text("CREATE TABLE t (a INT);")
    lines = recorded(flavour, tmp_path, *(str(tmp_path / f"{n}.sql") for n in "ab"))
    last = lines[-1]
    assert last["file"] == "b.sql"
    assert list(last["tables_changed"]) == ["test"]
    assert last["sql_mode"] == lines[0]["sql_mode"]


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_statements_can_be_made_up(flavour, tmp_path, rng):
    """Proves that random DDL is accepted often enough to fill a stream."""
    lines = recorded(flavour, tmp_path, f"random:{rng.randrange(1 << 30)}")
    assert len(lines) >= 30  # the last statement may be several in the binlog
    assert any(line["tables_changed"] for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_forms_are_recorded(flavour, tmp_path):
    """Proves that a list of forms is run, and is what its sample was made of."""
    first, *lines = recorded(flavour, tmp_path, "forms:databases")
    assert first["file"] == "forms:databases"
    assert {"CREATE SCHEMA s", "DROP SCHEMA s"} <= {line["sql"] for line in lines}


@pytest.mark.slow
@pytest.mark.mysql
def test_a_database_that_was_left_read_only(tmp_path):
    """Proves that the next script finds no database of the one before."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.sql").write_text(READ_ONLY)
    lines = recorded("mysql", tmp_path, *(str(tmp_path / f"{n}.sql") for n in "ab"))
    assert [line["file"] for line in lines] == ["a.sql"] * 4 + ["b.sql"] * 4
