"""The shop of `make demo-spark`: tables of several kinds, load on them, and DDL.

Leaves out who keeps a copy of them.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pymysql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servers import Server

SCHEMA = "shop"
CUSTOMERS = 2_000
ORDERS = 100_000
FILL_ROWS = 1000  # of one INSERT
LOAD_PER_SECOND = 400  # transactions
SEED = 7
JOIN_SECONDS_MAX = 30.0

TABLES = {
    "customers": """CREATE TABLE customers (
        id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(60) NOT NULL,
        email VARCHAR(120), phone VARCHAR(30), born DATE,
        joined TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)""",
    "orders": """CREATE TABLE orders (
        id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, customer INT UNSIGNED NOT NULL,
        state ENUM('new','paid','sent','lost') NOT NULL DEFAULT 'new',
        total DECIMAL(10,2) NOT NULL, placed DATETIME(3) NOT NULL, note JSON)""",
    "order_items": """CREATE TABLE order_items (
        `order` BIGINT UNSIGNED, line SMALLINT, sku VARCHAR(20) NOT NULL,
        pieces INT NOT NULL, PRIMARY KEY (`order`, line))""",
    "visits": "CREATE TABLE visits (at DATETIME(3), page VARCHAR(80), spent_s FLOAT)",
}
NUMBERS = f"""(SELECT a.n + 10 * b.n + 100 * c.n AS n FROM digits a, digits b, digits c
    WHERE a.n + 10 * b.n + 100 * c.n < {FILL_ROWS})"""
FILLS = {
    "customers": """INSERT INTO customers (name, email, phone, born)
        SELECT CONCAT('customer ', %s + n), CONCAT('c', %s + n, '@example.org'),
            CONCAT('+49 30 ', 100000 + n), '1960-01-01' + INTERVAL n DAY
        FROM {numbers} t""",
    "orders": """INSERT INTO orders (customer, total, placed, note)
        SELECT 1 + (%s + n * 7) %% {customers}, n * 1.25,
            '2026-01-01' + INTERVAL (%s + n) SECOND, JSON_OBJECT('n', n)
        FROM {numbers} t""",
    "order_items": """INSERT INTO order_items
        SELECT 1 + %s + n, 1 + %s %% 1, CONCAT('sku-', n), 1 + n %% 3
        FROM {numbers} t""",
    "visits": """INSERT INTO visits
        SELECT '2026-01-01' + INTERVAL (%s + n) SECOND, CONCAT('/page/', n + %s %% 1),
            n / 7 FROM {numbers} t""",
}
VISIT = "INSERT INTO visits"
# What becomes of the tables while they are followed: table, statement, what it shows.
DDL = (
    ("orders", "ALTER TABLE orders ADD COLUMN coupon VARCHAR(20)", "a column more"),
    ("customers", "ALTER TABLE customers RENAME COLUMN born TO birthday", "a new name"),
    (
        "order_items",
        "ALTER TABLE order_items MODIFY pieces BIGINT NOT NULL",
        "a wider type",
    ),
    ("visits", "TRUNCATE TABLE visits", "a table emptied"),
    ("returns", "CREATE TABLE returns (id INT PRIMARY KEY, why TEXT)", "a new table"),
    ("returns", "INSERT INTO returns VALUES (1, 'too small'), (2, NULL)", "its rows"),
)


class Orders:
    """The shop's database, and a thread that works in it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ending = threading.Event()
        self._is_unvisited = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self.transactions = 0

    def fill(self) -> dict[str, int]:
        """Make the tables; returns how many rows each has."""
        self._server.execute(
            f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4",
            # For the copy of `visits`, which has no key and is written to.
            f"GRANT LOCK TABLES ON {SCHEMA}.* TO '{self._server.user}'@'%'",
        )
        rows = {"customers": CUSTOMERS, "orders": ORDERS}
        rows |= {"order_items": ORDERS, "visits": FILL_ROWS}
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE digits (n INT PRIMARY KEY)")
            cursor.executemany(
                "INSERT INTO digits VALUES (%s)", [(n,) for n in range(10)]
            )
            for name, create in TABLES.items():
                cursor.execute(create)
                sql = FILLS[name].format(numbers=NUMBERS, customers=CUSTOMERS)
                for begin in range(0, rows[name], FILL_ROWS):
                    cursor.execute(sql, (begin, begin))
            cursor.execute("DROP TABLE digits")
        return rows

    def begin(self) -> None:
        """Let the shop work, until `end`."""
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)
        self._thread.start()

    def end_visits(self) -> None:
        """Change the table that has no key no more, while the others go on."""
        self._is_unvisited.set()

    def end(self) -> None:
        """Let it stop; raises what went wrong."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS_MAX)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Let it stop whatever went wrong, and drop the schema."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS_MAX)
        with contextlib.suppress(pymysql.err.Error):  # the server may be gone
            self._server.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")

    def execute(self, sql: str) -> None:
        """Run a statement beside the load."""
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute(sql)

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {table}")
            return int(cursor.fetchone()[0])

    def _connection(self) -> pymysql.Connection[Any]:
        return self._server.connect(database=SCHEMA)

    def _run(self) -> None:
        chance = random.Random(SEED)
        begun = time.monotonic()
        try:
            with self._connection() as connection, connection.cursor() as cursor:
                while not self._ending.is_set():
                    for sql, values in _work(chance):
                        if VISIT not in sql or not self._is_unvisited.is_set():
                            cursor.execute(sql, values)
                    connection.commit()
                    self.transactions += 1
                    due = begun + self.transactions / LOAD_PER_SECOND
                    self._ending.wait(max(0.0, due - time.monotonic()))
        except pymysql.err.Error as error:
            self._error = error


def _work(chance: random.Random) -> Sequence[tuple[str, tuple[object, ...]]]:
    """Return the statements of one transaction."""
    order = chance.randint(1, ORDERS)
    kind = chance.random()
    if kind < 0.5:
        new = (
            "INSERT INTO orders (customer, total, placed) VALUES (%s, %s, NOW(3))",
            (chance.randint(1, CUSTOMERS), chance.randint(1, 99_999) / 100),
        )
        item = "INSERT INTO order_items VALUES (LAST_INSERT_ID(), %s, %s, %s)"
        lines = [(item, (n, f"sku-{order}", n)) for n in range(1, chance.randint(2, 4))]
        return [new, *lines]
    if kind < 0.8:
        state = chance.choice(("paid", "sent", "lost"))
        return [("UPDATE orders SET state = %s WHERE id = %s", (state, order))]
    if kind < 0.9:
        phone = f"+49 30 {order}"
        who = chance.randint(1, CUSTOMERS)
        return [("UPDATE customers SET phone = %s WHERE id = %s", (phone, who))]
    if kind < 0.95:
        page = f"/page/{order}"
        return [(f"{VISIT} VALUES (NOW(3), %s, %s)", (page, kind))]
    return [
        ("DELETE FROM order_items WHERE `order` = %s", (order,)),
        ("DELETE FROM orders WHERE id = %s", (order,)),
    ]
