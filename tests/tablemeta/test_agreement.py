"""Tables made from DDL agree with what real servers said after each statement.

The samples are statements as they stood in binlogs, with the answers of the server's
information_schema, chosen so that all kinds of them occur.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ddl_agreement import Sum, compare, differ, flavour_of, lines_of
from ddl_subject import Subject, context_of

SAMPLES = sorted(Path(__file__).parent.glob("ddl_sample_*.jsonl.xz"))
SUBJECT = Path(__file__).parents[2] / "benchmarks" / "ddl_subject.py"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name.split(".")[0])
def test_samples(sample: Path) -> None:
    """After every statement names, order, types, NULL and keys are the server's."""
    total = Sum()
    subject = Subject(mariadb=flavour_of(sample) == "mariadb")
    disagreements = [str(each) for each in compare(subject, lines_of(sample), total)]
    assert disagreements == []
    assert total.changing > 200


def test_both_servers_have_a_sample() -> None:
    """There is a sample of each server, and the lines name it."""
    assert {flavour_of(sample) for sample in SAMPLES} == {"mysql", "mariadb"}


def test_disagreements_are_found() -> None:
    """A wrong table, column, type, NULL or key is a disagreement."""
    right = {"t": [("a", "int", 1, 0, None), ("b", "text", 1, 0, "latin1")]}
    assert differ(right, right) == []
    for wrong, of_type in (
        ({}, False),
        ({**right, "u": []}, False),
        ({"t": right["t"][::-1]}, False),
        ({"t": [("a", "int", 0, 0, None), right["t"][1]]}, False),
        ({"t": [("a", "int", 1, 1, None), right["t"][1]]}, False),
        ({"t": [("a", "bigint", 1, 0, None), right["t"][1]]}, True),
        ({"t": [right["t"][0], ("b", "text", 1, 0, "utf8mb4")]}, False),
    ):
        ((_, found),) = differ(right, wrong)
        assert found is of_type


def test_truth_is_loaded_after_a_disagreement() -> None:
    """After a disagreement, the comparison resumes from the server's result."""
    create = "CREATE TABLE `t` (`a` bigint)"
    lines = [
        {
            "file": "f",
            "seq": number,
            "schema": "d",
            "sql": sql,
            "charset": {},
            "tables_changed": {
                "d": {"t": {"columns": [["a", kind, 1, 0, None, ""]], "create": create}}
            },
        }
        for number, (sql, kind) in enumerate(
            [("CREATE TABLE t (a INT)", "bigint"), ("ALTER TABLE t FORCE", "bigint")]
        )
    ]
    total = Sum()
    found = list(compare(Subject(mariadb=False), iter(lines), total))
    assert [each.line["seq"] for each in found] == [0]
    assert (total.changing, total.disagreeing, total.letters_disagreeing) == (2, 1, 1)
    assert total.bad_streams == {"f"}


def test_line_protocol() -> None:
    """The program answers `tables`, and only that, one line each."""
    said = [
        {"op": "reset", "more": 1},
        {"op": "apply", "schema": "d", "sql": "CREATE TABLE t (a INT KEY, b CHAR)"},
        {"op": "tables", "schema": "d"},
        {"op": "load", "schema": "d", "create": ["CREATE TABLE `u` (`x` int)"]},
        {"op": "tables", "schema": "d"},
        {"op": "reset"},
        {"op": "tables", "schema": "d"},
    ]
    done = subprocess.run(
        [sys.executable, SUBJECT, "--flavour", "mariadb"],
        input="\n".join(map(json.dumps, said)),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert first == {
        "t": [
            {"name": "a", "type": "int(11)", "nullable": 0, "key": 1, "charset": None},
            {
                "name": "b",
                "type": "char(1)",
                "nullable": 1,
                "key": 0,
                "charset": "latin1",
            },
        ]
    }
    assert list(second) == ["u"]
    assert third == {}


def test_context_of_a_line() -> None:
    """A line's fields become the context of its statement."""
    context = context_of(
        {
            "schema": "d",
            "sql_mode": 4,
            "charset": {"client": "gbk", "connection": "x_ci", "server": "y_ci"},
            "explicit_ts": 0,
            "db_collation": "z_ci",
            "error": 7,
        },
        mariadb=True,
    )
    assert context.schema == "d"
    assert context.dialect.ansi_quotes
    assert context.charset_client == "gbk"
    assert context.collation_server == "y_ci"
    assert context.collation_database == "z_ci"
    assert context.explicit_timestamp is False
    assert context.error == 7
    assert context_of({"schema": "d", "charset": {}}, mariadb=False) == type(context)(
        schema="d"
    )
