"""Tests of the loads and of the upper bound, on a real MySQL."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from limit import Limit
from loads import Load, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler: cc")


@pytest.fixture(scope="module")
def writer(mysql_server: Server) -> Iterator[Writer]:
    """Give a writer of loads, with few other tables, that is made once."""
    with Writer(mysql_server, ours=False, other_tables=3) as made:
        yield made


@pytest.mark.parametrize(
    ("load", "transactions"),
    [
        (Load("a", "inserts", 2500, 0, "fill"), 3),
        (Load("b", "one transaction", 2500, 0, "fill", one_transaction=True), 1),
        (Load("c", "single rows", 50, 0, "insert_singly"), 50),
        (Load("d", "updates", 1500, 0, "update_all", filled_before=True), 2),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_limit_reads_a_load(
    mysql_server: Server, writer: Writer, load: Load, transactions
) -> None:
    """The upper bound finds all rows of a load, which are as large as intended."""
    with Limit() as limit:
        written = writer.write(load)
        run = limit.run(mysql_server, written)
    assert run.rows == written.rows == load.rows
    assert run.transactions == transactions
    assert run.bytes > 400 * load.rows
    if load.name == "a":
        assert written.bytes is not None
        assert 90 < written.bytes / load.rows < 100
