"""Tables whose columns change under load, and what topics in Avro make of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from avro_messages import AvroReader
    from servers import Server

IDS: Final = 40  # small, so that changes meet
ALTER_EVERY: Final = 12  # transactions
EXTRA_COLUMNS: Final = 3  # that exist at a time
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # a DATETIME has no zone
TABLES: Final = ("orders", "log")


class ChangingTables:
    """Writes random transactions, and changes a table's columns meanwhile.

    Each change leads to a schema that was not there before. Each transaction inserts a
    row into `log`, as nothing repairs its loss there.
    """

    def __init__(self, server: Server, schema: str, rng: random.Random) -> None:
        self._server = server
        self._schema = schema
        self._rng = rng
        self._extra = 0  # columns that were added so far
        self.written = 0
        server.execute(
            f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY, name VARCHAR(40),"
            " amount INT, price DECIMAL(12,2), seen DATETIME(6), raw VARBINARY(20),"
            " state ENUM('new','paid'))",
            f"CREATE TABLE {schema}.log (id INT PRIMARY KEY)",
        )

    def write(self, transactions: int) -> None:
        """Execute so many transactions, and now and then a change of columns."""
        with self._server.connect(autocommit=False) as connection:
            for _ in range(transactions):
                if self.written % ALTER_EVERY == ALTER_EVERY - 1:
                    for statement in self._alterations():
                        with connection.cursor() as cursor:
                            cursor.execute(statement)
                with connection.cursor() as cursor:
                    for _ in range(self._rng.randint(1, 4)):
                        cursor.execute(*self._statement())
                    self.written += 1
                    cursor.execute(
                        f"INSERT INTO {self._schema}.log VALUES ({self.written})"
                    )
                connection.commit()

    def _alterations(self) -> Iterator[str]:
        self._extra += 1
        table, kind = f"{self._schema}.orders", ("INT", "CHAR(9)")[self._extra % 2]
        yield f"ALTER TABLE {table} ADD COLUMN extra{self._extra} {kind}"
        kind = ("INT", "BIGINT", "VARCHAR(30)", "BIGINT")[self._extra % 4]
        yield f"ALTER TABLE {table} MODIFY amount {kind}"
        if self._extra > EXTRA_COLUMNS:
            old = self._extra - EXTRA_COLUMNS
            yield f"ALTER TABLE {table} DROP COLUMN extra{old}"

    def _statement(self) -> tuple[str, tuple[object, ...]]:
        rng, table = self._rng, f"{self._schema}.orders"
        first, second = rng.randrange(IDS), rng.randrange(IDS)
        values: dict[str, object] = {
            "id": first,
            "name": rng.choice((f"näme{rng.random()}", "", None)),
            "amount": rng.randint(-(10**6), 10**6),
            "price": rng.randint(-(10**9), 10**9) / 100,
            "seen": f"2026-01-{rng.randint(1, 28)} 01:02:03.{rng.randrange(10**6):06}",
            "raw": rng.randbytes(rng.randint(0, 20)),
            "state": rng.choice(("new", "paid", None)),
        }
        if self._extra:
            values[f"extra{self._extra}"] = rng.choice((None, 7))
        what = rng.random()
        if what < 0.5:
            marks = ", ".join(["%s"] * len(values))
            return (
                f"REPLACE INTO {table} ({', '.join(values)}) VALUES ({marks})",
                tuple(values.values()),
            )
        if what < 0.7:
            text = f"UPDATE {table} SET name = %s, amount = amount + 1 WHERE id > %s"
            return text, (values["name"], first)
        if what < 0.8:
            return f"UPDATE IGNORE {table} SET id = %s WHERE id = %s", (first, second)
        return f"DELETE FROM {table} WHERE id = %s", (first,)

    def rows(self, table: str) -> dict[int, dict[str, Any]]:
        """Return the rows of a table by their ids, as `shown`."""
        with self._server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self._schema}.{table}")
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {row["id"]: shown(row) for row in rows}


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table or of a message in a form that both share."""
    found = dict(row)
    if isinstance(seen := found.get("seen"), datetime):
        found["seen"] = (seen - EPOCH) // timedelta(microseconds=1)
    for name, value in row.items():
        # Whose type changes: a message has the type of its time.
        is_other = name == "amount" or name.startswith("extra")
        if is_other and value is not None:
            found[name] = str(value)
    return found


class AvroTable:
    """The rows to which the messages of a table's partitions lead.

    Each message has to fit the row that was there before it: one that is lost, comes
    twice or in another order is noticed.
    """

    def __init__(
        self, partitions: list[Callable[[], Iterator[Any]]], read: AvroReader
    ) -> None:
        """Each of `partitions` returns the messages that came since the last call."""
        self._partitions = partitions
        self._read = read
        self._deleted: dict[int, int | None] = {}  # the last message was its deletion
        self._partition_of: dict[int, int] = {}
        self.rows: dict[int, dict[str, Any]] = {}
        self.changes: set[tuple[Any, ...]] = set()
        self.schemas: set[bytes] = set()  # of values, by their ids
        self.tombstones = 0

    def update(self) -> None:
        """Apply what has arrived."""
        for number, partition in enumerate(self._partitions):
            for message in partition():
                self._apply(number, message.key(), message.value())

    def _apply(self, number: int, raw_key: bytes, raw_value: bytes | None) -> None:
        (key,) = self._read(raw_key).values()
        assert self._partition_of.setdefault(key, number) == number
        deleted = self._deleted.get(number)
        if raw_value is None:
            assert deleted == key, "a tombstone without a deletion before it"
            self._deleted[number] = None
            self.tombstones += 1
            return
        assert deleted is None, "a deletion without a tombstone after it"
        self.schemas.add(raw_value[:5])
        value = self._read(raw_value)
        self._note(value)
        before, after = value["before"], value["after"]
        assert (before is None, after is None) == {
            "c": (True, False), "u": (False, False), "d": (False, True),
        }[value["op"]]  # fmt: skip
        assert (after or before)["id"] == key
        row = self.rows.pop(key, None)
        if before is None:
            assert row is None, f"inserted twice: {value}"
        else:
            assert row is not None, f"not inserted before: {value}"
            expected = {name: row.get(name) for name in before}
            assert shown(before) == expected, f"before {value}: {row}"
        if after is None:
            self._deleted[number] = key
        else:
            self.rows[key] = shown(after)

    def _note(self, value: dict[str, Any]) -> None:
        source = value["source"]
        position = (source["file"], source["pos"], source["row"], value["op"])
        assert position not in self.changes, f"comes twice: {value}"
        self.changes.add(position)

    def has(self, rows: dict[int, dict[str, Any]]) -> bool:
        """Return whether the rows are those of the source, so far."""
        self.update()
        # Which columns are missing in a message that is older than they are.
        return {
            key: {name: row.get(name) for name in rows.get(key, ())}
            for key, row in self.rows.items()
        } == rows and not any(each is not None for each in self._deleted.values())
