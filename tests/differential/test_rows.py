"""Random rows through a real server's binlog: decoded, compared, held against it."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest
from fix_random import longer
from fix_servers import needs
from fix_source_access import access_of
from random_schema import Fold, RandomLoad

from canal_server.decoder.text.time_zone import read_zone
from canal_server.errors import SourceError
from canal_server.filters.table_filters import TableFilter
from canal_server.mysql.cached_columns import CachedColumns
from canal_server.mysql.control_connection import ControlConnection
from canal_server.runtime.lifecycle import Stop
from canal_server.source.read.binlog_compare import Comparison
from canal_server.source.read.binlog_part import FilePosition, Part

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from servers import Server

# The library uses names of PyMySQL and functions of Python that are going away.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# Settings that only a server of the test's own may have.
OWN = {
    "mysql": ["--loose-binlog-row-metadata=FULL"],
    "mariadb": ["--loose-binlog-row-metadata=FULL", "--loose-log-bin-compress=ON",
                "--loose-log-bin-compress-min-len=200"],
}  # fmt: skip
# Keys that the server makes by itself come along.
COMPRESSED = (
    "binlog_transaction_compression = ON",
    "sql_generate_invisible_primary_key = ON",
)
ZONES = ("UTC0", "EST5EDT,M3.2.0,M11.1.0", "IST-5:30", "NST3:30NDT,M3.2.0,M11.1.0")


@pytest.fixture(autouse=True)
def _zone(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in one of several time zones: timestamps are in that of the process."""
    zone = rng.choice(ZONES)
    print("time zone:", zone)
    monkeypatch.setenv("TZ", zone)
    _take_zone()
    yield
    monkeypatch.undo()
    _take_zone()


def _take_zone() -> None:
    time.tzset()
    read_zone()


@contextlib.contextmanager
def event_positions(server: Server) -> Iterator[None]:
    """Have events say where they end: the library needs it, and MariaDB 11.4 does not.

    Other servers always do.
    """
    setting = "binlog_legacy_event_pos"
    found = server.execute(f"SHOW GLOBAL VARIABLES LIKE '{setting}'")
    if not found:
        yield
        return
    server.execute(f"SET GLOBAL {setting} = ON")
    try:
        yield
    finally:
        server.execute(f"SET GLOBAL {setting} = {found[0][1]}")


def check_load(
    server: Server,
    schema: str,
    rng: random.Random,
    *,
    tables: int = 4,
    steps: int = 30,
    settings: Iterable[str] = (),
) -> tuple[int, Comparison]:
    """Run a random load; fail on any difference from the truth or the library.

    Returns the number of changes decoded and the finished comparison.
    """
    start = FilePosition(*server.binlog_position())
    load = RandomLoad(server, schema, rng)
    with event_positions(server):
        load.run(tables=tables, steps=steps, settings=settings)
    print(*[table.create()[:1500] for table in load.tables], sep="\n")
    until = FilePosition(*server.binlog_position())
    accepts = TableFilter(rf"{schema}\..*", "").accepts
    access = access_of(server)
    fold = Fold(load.tables)
    images = CachedColumns(ControlConnection(access))
    try:
        Part(
            images=images, take=fold.take, table_filter=accepts, until=until
        ).read_server(access, start, Stop())
        wrong = fold.differences(load.truth())
        assert not wrong, "\n".join(wrong)
        comparison = Comparison(images, accepts)
        found = comparison.run(access, start, until)
        assert not found, "\n".join(map(str, found[:20]))
    finally:
        images.close()
    print(fold.changes, "changes;", comparison.counts)
    return fold.changes, comparison


def test_random_rows(source_server: Server, database: str, rng: random.Random) -> None:
    """Decoded changes, folded into tables, are what SELECT and the library say."""
    changes, comparison = check_load(source_server, database, rng)
    assert changes > 20
    assert comparison.counts.values > 0


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_random_rows_with_full_metadata(
    flavour: str, own_server, rng: random.Random
) -> None:
    """The same with all metadata in the table maps, and MariaDB's compressed events."""
    server = own_server(flavour, OWN[flavour])
    server.execute("CREATE DATABASE random_rows")
    changes, _ = check_load(server, "random_rows", rng)
    assert changes > 20


def test_random_rows_in_compressed_transactions(
    mysql_server: Server, database: str, rng: random.Random
) -> None:
    """Compressed transactions hold what SELECT says; the library skips them."""
    needs(mysql_server, "binlog_transaction_compression")
    needs(mysql_server, "sql_generate_invisible_primary_key")
    _, comparison = check_load(mysql_server, database, rng, settings=COMPRESSED)
    assert comparison.counts.known["compressed"] > 0
    assert comparison.counts.rows == 0


def test_events_without_positions(
    mariadb_server: Server, database: str, rng: random.Random
) -> None:
    """MariaDB from 11.4 on is not compared without the setting, but decoded."""
    setting = "binlog_legacy_event_pos"
    if not mariadb_server.execute(f"SHOW GLOBAL VARIABLES LIKE '{setting}'"):
        pytest.skip("this MariaDB always has positions")
    start = FilePosition(*mariadb_server.binlog_position())
    load = RandomLoad(mariadb_server, database, rng)
    load.run(tables=2, steps=10)
    until = FilePosition(*mariadb_server.binlog_position())
    accepts = TableFilter(rf"{database}\..*", "").accepts
    access = access_of(mariadb_server)
    fold = Fold(load.tables)
    with contextlib.closing(CachedColumns(ControlConnection(access))) as images:
        Part(
            images=images, take=fold.take, table_filter=accepts, until=until
        ).read_server(access, start, Stop())
        assert not fold.differences(load.truth())
        with pytest.raises(SourceError, match=f"SET GLOBAL {setting} = ON"):
            Comparison(images, accepts).run(access, start, until)


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
@pytest.mark.parametrize("round_number", range(longer(1)))
def test_many_random_rows(
    flavour: str, round_number: int, own_server, rng: random.Random
) -> None:
    """The same with more tables and rows, in all three amounts of metadata."""
    metadata = rng.choice(["MINIMAL", "FULL"])
    server = own_server(flavour, [f"--loose-binlog-row-metadata={metadata}"])
    server.execute("CREATE DATABASE random_rows")
    for _ in range(3):
        check_load(server, "random_rows", rng, tables=8, steps=60)
        server.execute("DROP DATABASE random_rows", "CREATE DATABASE random_rows")
