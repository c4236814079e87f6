"""Tables of a shop with random changes, and what a topic of messages makes of them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Protocol

from fix_pipeline import UNIT_S
from fix_random import longer

from canal_server.model.entry import EntryType, EventType
from canal_server.protocol.entry_messages import decode_entry
from canal_server.protocol.packets import Messages, Packet
from canal_server.protocol.protobuf import decode

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from fix_pipeline import Pipeline, Process

COLUMNS = "id, name, price, seen, raw, state"
TABLE = """(id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(12,2),
    seen DATETIME(6), raw VARBINARY(20), state ENUM('new','paid'))"""
IDS = 40  # small, so that changes meet
STATES = {None: None, "new": "1", "paid": "2"}  # as entries have an ENUM


class Shop:
    """Writes random transactions to tables of the source.

    Two have changes of all kinds. Whatever is lost of them may be repaired by a later
    change, so each transaction also inserts a row into a third one.
    """

    def __init__(
        self, pipeline: Pipeline, rng: random.Random, *, moves_keys: bool = True
    ) -> None:
        """Create the tables; without `moves_keys`, no row gets another key."""
        self._moves_keys = moves_keys
        self._pipeline = pipeline
        self._rng = rng
        self.tables = tuple(
            f"{pipeline.schema}.{each}" for each in ("orders", "parts", "log")
        )
        self._next = 0
        for each in self.tables:
            pipeline.source.execute(f"CREATE TABLE {each} {TABLE}")

    def write(self, transactions: int) -> None:
        """Execute so many transactions."""
        with self._pipeline.source.connect(autocommit=False) as connection:
            for _ in range(transactions):
                with connection.cursor() as cursor:
                    for _ in range(self._rng.randint(1, 6)):
                        cursor.execute(*self._statement())
                    self._next += 1
                    log = f"INSERT INTO {self.tables[2]} (id) VALUES ({self._next})"
                    cursor.execute(log)
                connection.commit()

    def rows(self, table: str) -> Sequence[tuple[Any, ...]]:
        """Return all rows of a table."""
        return tuple(
            self._pipeline.source.execute(f"SELECT {COLUMNS} FROM {table} ORDER BY id")
        )

    def _statement(self) -> tuple[str, tuple[object, ...]]:
        rng, table = self._rng, self._rng.choice(self.tables[:2])
        values = (
            f"näme{rng.random()}",
            rng.randint(-(10**9), 10**9) / 100,
            f"2026-01-{rng.randint(1, 28)} 01:02:03.{rng.randint(0, 999999):06}",
            rng.randbytes(rng.randint(0, 20)),
            rng.choice(("new", "paid", None)),
        )
        first, second = rng.randrange(IDS), rng.randrange(IDS)
        what = rng.random()
        if what < 0.5:
            return f"REPLACE INTO {table} VALUES (%s,%s,%s,%s,%s,%s)", (first, *values)
        if what < 0.7:
            return f"UPDATE {table} SET name = %s WHERE id > %s", (values[0], first)
        if what < 0.8 and self._moves_keys:
            return f"UPDATE IGNORE {table} SET id = %s WHERE id = %s", (first, second)
        if what < 0.99:
            return f"DELETE FROM {table} WHERE id = %s", (first,)
        return f"DELETE FROM {table} WHERE id > %s", (first,)


class Topic:
    """The rows to which the messages of partitions lead, in their order."""

    def __init__(self, *partitions: Callable[[], Iterator[bytes]]) -> None:
        """Each of `partitions` returns what came since the last call."""
        self._partitions = partitions
        self.tables: dict[str, dict[str, dict[str, str | None]]] = {}
        self.log: list[str] = []  # ids of the table `log`, as they came

    def read(self) -> None:
        """Apply what has arrived."""
        for partition in self._partitions:
            for value in partition():
                for message in changes_of(value):
                    self._apply(message)

    def _apply(self, message: dict[str, Any]) -> None:
        rows = self.tables.setdefault(message["table"], {})
        if message["table"] == "log":
            self.log += [row["id"] for row in message["data"] or ()]
        for number, row in enumerate(message["data"] or ()):
            old = message["old"][number] if message["old"] else {}
            rows.pop(old.get("id", row["id"]), None)
            if message["type"] != "DELETE":
                rows[row["id"]] = row

    def count(self, table: str) -> int:
        """Return how many rows a table has by what has arrived."""
        self.read()
        return len(self.tables.get(table, ()))

    def has_all(self, shop: Shop) -> bool:
        """Return whether the tables have the keys of the source's."""
        self.read()
        return all(
            sorted(int(id_) for id_ in self.tables.get(table.partition(".")[2], ()))
            == [row[0] for row in shop.rows(table)]
            for table in shop.tables
        )

    def check(self, shop: Shop) -> None:
        """Check that the rows are those of the source."""
        for table in shop.tables:
            found = self.tables[table.partition(".")[2]]
            for id_, name, _, _, _, state in shop.rows(table):
                row = found[str(id_)]
                assert (row["name"], row["state"]) == (name, STATES[state])


def changes_of(value: bytes) -> Iterator[dict[str, Any]]:
    """Yield what a message has, whatever its form, as messages of canal-json."""
    if value.startswith(b"{"):
        message = json.loads(value)
        if "op" in message:
            yield from _of_debezium(message)
        elif message["type"].islower():
            yield from _of_maxwell(message)
        else:
            yield message
        return
    body = decode(Messages, decode(Packet, value).body)
    for entry in map(decode_entry, body.messages):
        if entry.entry_type is not EntryType.ROWDATA:
            continue
        change = entry.row_change()
        rows = change.row_datas
        kind = change.event_type
        is_delete, is_update = kind is EventType.DELETE, kind is EventType.UPDATE
        yield {
            "table": entry.header.table_name,
            "type": kind.name if isinstance(kind, EventType) else "",
            "data": [each.before if is_delete else each.after for each in rows],
            "old": [each.before for each in rows] if is_update else None,
        }


def _of_debezium(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row; what else such a topic has is without `op`."""
    before, after = message["before"], message["after"]
    yield {
        "table": message["source"]["table"],
        "type": {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[message["op"]],
        "data": [_as_texts(after or before)],
        "old": [_as_texts(before)] if before and after else None,
    }


def _of_maxwell(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row; statements have none."""
    if message["type"] in ("insert", "update", "delete"):
        old = message.get("old")
        yield {
            "table": message["table"],
            "type": message["type"].upper(),
            "data": [_as_texts(message["data"])],
            "old": None if old is None else [_as_texts(old)],
        }


def _as_texts(row: dict[str, Any]) -> dict[str, str | None]:
    """Return what `Topic` looks at as canal-json has it."""
    found = {key: None if value is None else str(value) for key, value in row.items()}
    if "state" in found:
        found["state"] = STATES[found["state"]]
    return found


def wait_until(condition: Callable[[], bool], process: Process) -> None:
    """Wait until something is the case; shows the log of a process if it never is."""
    give_up_at = time.monotonic() + 6 * UNIT_S
    while not condition():
        assert time.monotonic() < give_up_at, "".join(process.log)
        time.sleep(0.005)


class Broker(Protocol):
    """What can be killed and started again."""

    def kill(self) -> None:
        """End it at once."""

    def start(self) -> object:
        """Start it."""


def write_under_kills(
    pipeline: Pipeline, broker: Broker, shop: Shop, topic: Topic, rng: random.Random
) -> None:
    """Write while the server, and every second time the broker, is killed.

    Returns when all has arrived and equals the source.
    """
    for number in range(longer(4)):
        before = topic.count("log")
        shop.write(rng.randint(50, 200))
        wait_until(lambda: topic.count("log") > before, pipeline.process)  # noqa: B023
        if number % 2:
            broker.kill()
            shop.write(20)
            broker.start()
        pipeline.kill()
        shop.write(20)
        pipeline.start()
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    topic.check(shop)
    pipeline.wait_for_status(lambda status: status["delivery"]["in_flight"] == 0)
    found = pipeline.status()["delivery"]
    assert (found["state"], found["reason"]) == ("delivering", "")
    assert list(found["topics"]) == ["shop"]


def stop_and_go_on(pipeline: Pipeline, shop: Shop, topic: Topic) -> None:
    """Stop the server cleanly and start it: only what is new arrives."""
    seen = list(topic.log)
    pipeline.stop()
    pipeline.start()
    shop.write(1)
    wait_until(lambda: topic.has_all(shop), pipeline.process)
    assert len(topic.log) == len(seen) + 1, "something came again after a clean stop"
