"""The loads: a table of ten columns, and what is done to it, put into the binlog.

Each load ends with one row in another table, by which a reader knows that it has seen
all of it; nothing is written after that row until the load has been measured. Leaves
out the server that they are written to and everything that reads them.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from servers import Server

SCHEMA = "canal_bench"
TABLE = "items"
END_TABLE = "finish_line"  # its name occurs in no other entry
BATCH_ROWS = 1000  # per statement: a dozen row events of 8 KB each
OTHER_TABLES = 1000  # which the table history has to know, too
DIRTY_PAGES_MAX = 100  # some are written again and again

# What the private server gets, so that writing takes a short time.
SERVER_OPTIONS = (
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=384M",
    "--innodb-redo-log-capacity=1G",
    "--max-binlog-size=1G",
)

COLUMNS = """
    id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    k INT NOT NULL,
    name VARCHAR(64),
    email VARCHAR(128),
    amount DECIMAL(12,2),
    status TINYINT,
    created DATETIME,
    updated TIMESTAMP NULL,
    note VARCHAR(255),
    flag BIT(1)
"""

# About 97 bytes in a row event; {id} stands for the row's key.
VALUES = """
    {id}, {id} * 7919 % 1000003, CONCAT('name-', {id}),
    CONCAT('user', {id}, '@example.org'), {id} % 1000000 / 100, {id} % 5,
    '2024-01-01' + INTERVAL {id} SECOND, '2024-03-01' + INTERVAL {id} SECOND,
    CONCAT('a note on item number ', {id}), {id} % 2
"""

PROCEDURES = {
    "fill": f"""
        CREATE PROCEDURE fill(IN first_id INT, IN stop_id INT)
        WHILE first_id < stop_id DO
            INSERT INTO {TABLE} SELECT {VALUES.format(id="(first_id + n)")}
                FROM numbers WHERE first_id + n < stop_id;
            SET first_id = first_id + {BATCH_ROWS};
        END WHILE
    """,
    "insert_singly": f"""
        CREATE PROCEDURE insert_singly(IN first_id INT, IN stop_id INT)
        WHILE first_id < stop_id DO
            INSERT INTO {TABLE} VALUES ({VALUES.format(id="first_id")});
            SET first_id = first_id + 1;
        END WHILE
    """,
    "update_all": f"""
        CREATE PROCEDURE update_all(IN first_id INT, IN stop_id INT)
        WHILE first_id < stop_id DO
            UPDATE {TABLE} SET k = k + 1, name = CONCAT('nome-', id),
                email = CONCAT('used', id, '@example.org'), amount = amount + 1,
                status = status + 1, created = created + INTERVAL 1 DAY,
                updated = updated + INTERVAL 1 DAY,
                note = CONCAT('a line on item number ', id), flag = flag ^ 1
            WHERE id >= first_id AND id < first_id + {BATCH_ROWS} AND id < stop_id;
            SET first_id = first_id + {BATCH_ROWS};
        END WHILE
    """,
}


@dataclass(frozen=True, slots=True)
class Load:
    """What is written: `rows` row changes by a procedure, perhaps in one transaction.

    `quick_rows` are used instead in a short run. The table is filled before, outside
    the measured range, if the procedure changes rows that must be there.
    """

    name: str
    title: str
    rows: int
    quick_rows: int
    procedure: str
    one_transaction: bool = False
    filled_before: bool = False

    def count(self, *, quick: bool) -> int:
        """Return the number of row changes."""
        return self.quick_rows if quick else self.rows


LOADS = (
    Load("inserts", "multi-row inserts", 1_000_000, 100_000, "fill"),
    Load("single", "single-row transactions", 300_000, 30_000, "insert_singly"),
    Load(
        "updates",
        "full-row updates",
        500_000,
        50_000,
        "update_all",
        filled_before=True,
    ),
    Load("big", "one transaction", 300_000, 300_000, "fill", one_transaction=True),
)


@dataclass(frozen=True, slots=True)
class Range:
    """A load in the binlog: from `position` of `file` to `end` of `end_file`.

    `rows` counts row changes without the last row in the other table; `gtids` is the
    set that was executed before, empty without GTIDs.
    """

    load: Load
    rows: int
    file: str
    position: int
    gtids: str
    end_file: str
    end: int

    @property
    def bytes(self) -> int | None:
        """Return how much binlog it is; None when it spans files."""
        return self.end - self.position if self.file == self.end_file else None


class Writer:
    """Puts loads into a server's binlog; a context manager that cleans up.

    A server that is `ours` alone is made to write its pages before measuring begins,
    by a setting that is none of our business elsewhere.
    """

    def __init__(
        self, server: Server, *, ours: bool, other_tables: int = OTHER_TABLES
    ) -> None:
        self._server = server
        self._ours = ours
        self._other_tables = other_tables

    def __enter__(self) -> Self:
        with self._cursor(database=None) as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")
            cursor.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
            cursor.execute(f"USE {SCHEMA}")
            cursor.execute("CREATE TABLE numbers (n INT PRIMARY KEY)")
            cursor.executemany(
                "INSERT INTO numbers VALUES (%s)", [(n,) for n in range(BATCH_ROWS)]
            )
            cursor.execute(f"CREATE TABLE {END_TABLE} (load_name VARCHAR(32))")
            for text in PROCEDURES.values():
                cursor.execute(text)
            for number in range(self._other_tables):
                cursor.execute(f"CREATE TABLE other_{number} ({COLUMNS})")
        return self

    def __exit__(self, *_: object) -> None:
        with self._cursor(database=None) as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")

    def write(self, load: Load, *, quick: bool = False) -> Range:
        """Write a load, in a binlog file of its own where that is allowed."""
        count = load.count(quick=quick)
        with self._cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
            cursor.execute(f"CREATE TABLE {TABLE} ({COLUMNS})")
            if load.filled_before:
                cursor.execute("CALL fill(1, %s)", (count + 1,))
            # Without the privilege the load begins in the middle of a file.
            with contextlib.suppress(pymysql.err.OperationalError):
                cursor.execute("FLUSH BINARY LOGS")
            file, position = self._server.binlog_position()
            gtids = _executed_gtids(cursor)

            if load.one_transaction:
                cursor.execute("BEGIN")
            cursor.execute(f"CALL {load.procedure}(1, %s)", (count + 1,))
            if load.one_transaction:
                cursor.execute("COMMIT")
            cursor.execute(f"INSERT INTO {END_TABLE} VALUES (%s)", (load.name,))
            end_file, end = self._server.binlog_position()
            if self._ours:
                _settle(cursor)
        return Range(load, count, file, position, gtids, end_file, end)

    def recreate_table(self) -> None:
        """Begin with an empty table, for what writes rows by itself."""
        with self._cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
            cursor.execute(f"CREATE TABLE {TABLE} ({COLUMNS})")

    def write_end(self) -> None:
        """Write the row that ends a load."""
        with self._cursor() as cursor:
            cursor.execute(f"INSERT INTO {END_TABLE} VALUES ('end')")

    @contextlib.contextmanager
    def _cursor(
        self, database: str | None = SCHEMA
    ) -> Iterator[pymysql.cursors.Cursor]:
        connection = self._server.connect(database=database, read_timeout=1800)
        with connection, connection.cursor() as cursor:
            # The texts of the rows do not depend on where this runs.
            cursor.execute("SET time_zone = '+00:00'")
            yield cursor


def insert_row(cursor: Any, key: int) -> None:
    """Insert the row of this key."""
    cursor.execute(f"INSERT INTO {TABLE} VALUES ({VALUES.format(id=key)})")


def row_mark(key: int) -> bytes:
    """Return a text that occurs in the entry of the row with this key only."""
    return b"user%d@" % key


def _executed_gtids(cursor: Any) -> str:
    try:
        cursor.execute("SELECT @@GLOBAL.gtid_executed")
    except pymysql.err.OperationalError:
        return ""
    return str(cursor.fetchone()[0]).replace("\n", "")


def _settle(cursor: Any, timeout_s: float = 60.0) -> None:
    """Wait until the server has written its dirty pages, else it competes with us."""
    cursor.execute("SET GLOBAL innodb_max_dirty_pages_pct = 0")
    _wait(lambda: _dirty_pages(cursor) < DIRTY_PAGES_MAX, timeout_s)
    cursor.execute("SET GLOBAL innodb_max_dirty_pages_pct = DEFAULT")


def _dirty_pages(cursor: Any) -> int:
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'")
    return int(cursor.fetchone()[1])


def _wait(done: Callable[[], bool], timeout_s: float) -> None:
    give_up_at = time.monotonic() + timeout_s
    while not done() and time.monotonic() < give_up_at:
        time.sleep(0.1)
