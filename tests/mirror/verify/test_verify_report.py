"""The output of `verify`: a line for each table, the rows that differ, and JSON."""

from __future__ import annotations

import json

from canal_server.mirror.verify.verify_report import (
    DIFFERENT,
    DROPPED,
    EQUAL,
    FAILED,
    Cell,
    RowDifference,
    TableReport,
    Totals,
    as_json,
    as_text,
    exit_status,
)

SAME = TableReport(
    table="shop.book",
    target="shop/book",
    outcome=EQUAL,
    position="binlog.000002:700",
    source=Totals(1_234, "00000000000000ff"),
    copy=Totals(1_234, "00000000000000ff"),
    seconds=1.25,
)
OTHER = TableReport(
    table="shop.sale",
    target="shop/sale",
    outcome=DIFFERENT,
    position="binlog.000002:700",
    source=Totals(2, "1" * 16),
    copy=Totals(1, "2" * 16),
    left_out=1,
    differing=3,
    first=(
        RowDifference("id=1", "differs", (Cell("price", "9.95", "NULL"),)),
        RowDifference("id=2", "is in the source only"),
    ),
)
FAILURE = TableReport(
    table="shop.gone", target="shop/gone", outcome=FAILED, problem="has no copy yet"
)


TEXT = """\
table      outcome        rows  in the copy  checksum          of the copy         s
shop.book  equal         1,234        1,234  00000000000000ff  00000000000000ff  1.2
shop.sale  different         2            1  1111111111111111  2222222222222222  0.0
shop.gone  not compared      -            -  -                 -                 0.0
shop.sale: 1 key is left out, changed after binlog.000002:700 (the position of the \
copy)
shop.sale: 3 rows are different
  id=1: differs
    price: 9.95 in the source, NULL in the copy
  id=2: is in the source only
  … 1 more
shop.gone: has no copy yet"""


def test_text() -> None:
    """A person sees counts, checksums, and of differences key, column and values."""
    assert as_text([SAME, OTHER, FAILURE]) == TEXT


def test_json() -> None:
    """A program sees the same."""
    found = json.loads(as_json([SAME, OTHER]))
    assert found["equal"] is False
    assert found["tables"][0]["source"] == {
        "rows": 1234,
        "checksum": "00000000000000ff",
    }
    cell = found["tables"][1]["first"][0]["cells"][0]
    assert cell == {"column": "price", "source": "9.95", "copy": "NULL"}
    assert json.loads(as_json([SAME]))["equal"] is True


def test_exit_status() -> None:
    """Only what was compared and is equal is well."""
    assert exit_status([SAME]) == 0
    assert exit_status([]) == 0
    assert exit_status([SAME, OTHER]) == 1
    assert exit_status([SAME, FAILURE]) == 1


def test_a_table_that_the_source_dropped() -> None:
    """A dropped table is reported, and is not a difference."""
    dropped = TableReport(
        table="shop.old", target="shop/old", outcome=DROPPED, problem="it was dropped"
    )
    assert exit_status([SAME, dropped]) == 0
    assert exit_status([OTHER, dropped]) == 1
    assert as_text([dropped]).splitlines()[1:] == [
        "shop.old  gone        -            -  -         -            0.0",
        "shop.old: it was dropped",
    ]
    assert json.loads(as_json([SAME, dropped]))["equal"] is True
