"""Rows that foreign keys change without an event, read again: the lake is right."""

from __future__ import annotations

import json
import threading

import pymysql
import pytest
from fix_random import longer

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]
NATIVE = ("--innodb-native-foreign-keys=ON",)
SERVERS = pytest.mark.parametrize(
    ("flavour", "options"),
    [("mariadb", ()), ("mysql", NATIVE)],
    ids=["mariadb", "mysql-native"],
)
TABLES = (
    "CREATE DATABASE shop CHARACTER SET utf8mb4",
    "CREATE DATABASE other",
    "USE shop",
    "CREATE TABLE a (id INT PRIMARY KEY, k INT UNIQUE)",
    # Two steps down, with the key of the step before in the primary key.
    (
        "CREATE TABLE b (id INT PRIMARY KEY, a INT, v INT, FOREIGN KEY (a) REFERENCES"
        " a (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE c (b INT, n INT, v INT, PRIMARY KEY (b, n), FOREIGN KEY (b)"
        " REFERENCES b (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    # By a key that is not the primary one.
    (
        "CREATE TABLE u (id INT PRIMARY KEY, k INT, FOREIGN KEY (k) REFERENCES a (k)"
        " ON DELETE SET NULL ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE s (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES s (id)"
        " ON DELETE CASCADE)"
    ),
    "CREATE TABLE p (x INT, y VARCHAR(9), PRIMARY KEY (x, y))",
    (
        "CREATE TABLE q (id INT PRIMARY KEY, x INT, y VARCHAR(9), FOREIGN KEY (x, y)"
        " REFERENCES p (x, y) ON DELETE SET NULL ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE other.o (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES"
        " shop.a (id) ON DELETE CASCADE ON UPDATE SET NULL)"
    ),
)
NAMES = ("shop.a", "shop.b", "shop.c", "shop.u", "shop.s", "shop.p", "shop.q",
         "other.o")  # fmt: skip
MOST = 30  # values of a key


class Load:
    """Random changes of all tables on a separate thread; a context manager."""

    def __init__(self, source, rng) -> None:
        self._source = source
        self._rng = rng
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: Exception | None = None
        self.steps = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.01):
                self.step()
        except Exception as error:  # noqa: BLE001  # shown by the test's own thread
            self._error = error

    def step(self) -> None:
        """Commit a transaction of some statements; those that break a key are left."""
        with self._source.connect(database="shop") as connection:
            cursor = connection.cursor()
            for _ in range(self._rng.randrange(1, 6)):
                try:
                    cursor.execute(self._statement())
                except (pymysql.IntegrityError, pymysql.OperationalError) as error:
                    assert error.args[0] in {1062, 1451, 1452, 1213, 1761}, error  # noqa: PT017
            connection.commit()
        self.steps += 1

    def _statement(self) -> str:
        number = self._rng.randrange
        x, y, z = (number(MOST) for _ in range(3))
        text = self._rng.choice(("a", "B", "b"))
        found: str = self._rng.choice(
            (
                f"INSERT INTO a VALUES ({x}, {y})",
                f"DELETE FROM a WHERE id = {x}",
                f"REPLACE INTO a VALUES ({x}, {y})",
                f"UPDATE a SET id = {x} WHERE id = {y}",
                f"UPDATE a SET k = {x} WHERE id = {y}",
                f"INSERT INTO b VALUES ({x}, {y}, {z}) ON DUPLICATE KEY UPDATE a = {z}",
                f"UPDATE b SET v = v + 1 WHERE id = {x}",
                f"UPDATE b SET id = {x} WHERE id = {y}",
                f"INSERT INTO c VALUES ({x}, {y}, {z})",
                f"UPDATE c SET v = v + 1 WHERE b = {x}",
                f"INSERT INTO u VALUES ({x}, {y}) ON DUPLICATE KEY UPDATE k = {z}",
                f"INSERT INTO s VALUES ({x}, {self._rng.choice((y, 'NULL'))})",
                f"UPDATE s SET up = {x} WHERE id = {y}",
                f"DELETE FROM s WHERE id = {x}",
                f"INSERT INTO p VALUES ({x}, '{text}')",
                f"UPDATE p SET x = {x}, y = '{text}' WHERE x = {y}",
                f"DELETE FROM p WHERE x = {x}",
                f"INSERT INTO q VALUES ({x}, {y}, '{text}')",
                f"INSERT INTO other.o VALUES ({x}, {y})",
                f"UPDATE other.o SET a = {x} WHERE id = {y}",
            )
        )
        return found


def verified(mirror) -> dict[str, str]:
    """Return the report of `verify` for each table."""
    done = mirror.command("verify", *NAMES, "--json")
    assert done.stdout, done.stderr
    return {
        str(each["table"]): str(each["outcome"])
        for each in json.loads(done.stdout)["tables"]
    }


@SERVERS
def test_random_changes(flavour, options, own_server, make_mirror, rng) -> None:
    """While tables are copied and followed, and the mirror is killed, none is lost."""
    source = own_server(flavour, options)
    source.execute(*TABLES)
    mirror = make_mirror(source, "shop")
    mirror.settings["tables"] = [
        {"match": r"shop\..*,other\..*", "foreign_keys": "reread"}
    ]
    mirror.settings["stream"] |= {"max_rows": 200, "min_partition_rows": 50}
    load = Load(source, rng)
    for _ in range(100):
        load.step()
    with load:
        for turn in range(longer(1) + 1):
            mirror.start(wait=False)
            enough = load.steps + 150
            mirror.wait_for(lambda n=enough: load.steps >= n, "writing")
            mirror.wait_for(lambda: mirror.phase_of("b")[0] == "following", "following")
            enough = load.steps + 150
            mirror.wait_for(lambda n=enough: load.steps >= n, "writing")
            if turn < longer(1):
                mirror.kill()
    print(f"{load.steps} transactions")
    keys = {name: ("b", "n") if name == "c" else ("id",) for name in "abcusq"}
    mirror.agree(**keys, p=("x", "y"))
    assert verified(mirror) == dict.fromkeys(NAMES, "equal")
    status = json.loads(mirror.command("status", "--json").stdout)["status"]
    assert status["warnings"] == []
    mirror.stop()
