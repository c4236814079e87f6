"""Tables that change while rows are written, and what clients must see of them.

A `Chronicle` runs DDL and inserts rows. Of each row it knows the columns that its
table had then, as the server reported them, so that what arrives later, at any time and
in whatever way, can be compared with the truth.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fix_pipeline import UNIT_S

from canal_server.client import EntryType, EventType

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from fix_pipeline import Pipeline
    from servers import Server

    from canal_server.client import CanalClient, Entry

COLUMNS_MAX = 10  # of a table: a value identifies its row and its column

Cell = tuple[str, str, str]  # name, type, value

AS_SELECT = "CREATE TABLE s AS SELECT r AS one, q AS two FROM t LIMIT 0"
AS_COLUMNS = "CREATE TABLE s (one BIGINT, two INT UNSIGNED)"


@dataclass(frozen=True)
class Row:
    """One row as its table's columns were when it was written."""

    table: str
    cells: tuple[Cell, ...]


class Chronicle:
    """Writes to the tables of a schema over one connection, and remembers.

    Every value is a number from which the row's own number follows.
    """

    def __init__(self, server: Server, schema: str) -> None:
        self.server = server
        self.schema = schema
        self.rows: list[Row] = []
        self.connection = server.connect(database=schema)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def go_to(self, server: Server) -> None:
        """Write to another server from now on, which has the same tables."""
        self.close()
        self.server = server
        self.connection = server.connect(database=self.schema)

    def run(self, *statements: str) -> None:
        """Run statements with the schema as the default one.

        In other words where the server is older than they are.
        """
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(self._understood(statement))

    def _understood(self, statement: str) -> str:
        if not self.server.can("CREATE TABLE … SELECT with GTIDs"):
            statement = statement.replace(AS_SELECT, AS_COLUMNS)
        if self.server.can("ALTER TABLE … RENAME COLUMN"):
            return statement
        table = next(iter(re.findall(r"ALTER TABLE (\w+)", statement)), "")
        types = dict(self.columns(table)) if table else {}
        return re.sub(
            r"RENAME COLUMN (\w+) TO (\w+)",
            lambda found: f"CHANGE {found[1]} {found[2]} {types[found[1]]}",
            statement,
        )

    def ask(self, statement: str, *values: object) -> tuple[tuple[Any, ...], ...]:
        """Return the rows of a statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values)
            return tuple(cursor.fetchall())

    def write(self, *tables: str, count: int = 1) -> None:
        """Insert rows into each of these tables, one a transaction."""
        for table in tables * count:
            columns = self.columns(table)
            number = len(self.rows)
            cells = tuple(
                (name, kind, str(number * COLUMNS_MAX + at))
                for at, (name, kind) in enumerate(columns)
            )
            # First: it may arrive before the commit returns.
            self.rows.append(Row(table, cells))
            values = ", ".join(value for _, _, value in cells)
            self.run(f"INSERT INTO `{table}` VALUES ({values})")

    def columns(self, table: str) -> tuple[tuple[str, str], ...]:
        """Return names and types of a table's columns as they are now."""
        found = self.ask(
            "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS"
            " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            self.schema,
            table,
        )
        assert 0 < len(found) <= COLUMNS_MAX
        return tuple(found)

    def tables(self) -> list[str]:
        """Return the names of the tables as they are now."""
        found = self.ask(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
            " ORDER BY TABLE_NAME",
            self.schema,
        )
        return [name for (name,) in found]


class Follower:
    """Compares what a client receives with a chronicle, row by row."""

    def __init__(self, chronicle: Chronicle, begin: int = 0) -> None:
        self._chronicle = chronicle
        self.next = begin  # number of the row that must come
        self.may_repeat = False  # the stream begins again, at or before `next`
        self.repeated = 0  # rows that arrived again

    def take(self, entries: Iterable[Entry]) -> None:
        """Check the rows of a message."""
        for entry in entries:
            if entry.entry_type != EntryType.ROWDATA:
                continue
            if entry.header.event_type != EventType.INSERT:
                continue
            for row in entry.row_change().row_datas:
                cells = tuple(
                    (cell.name, cell.mysql_type, cell.value)
                    for cell in row.after_columns
                )
                self._take_row(Row(entry.header.table_name, cells))

    def _take_row(self, row: Row) -> None:
        number = int(row.cells[0][2]) // COLUMNS_MAX
        if self.may_repeat:
            assert number <= self.next, f"row {self.next} was left out"
            self.repeated += self.next - number
            self.next = number
            self.may_repeat = False
        assert number == self.next, f"row {number} arrived, not {self.next}: {row}"
        expected = self._chronicle.rows[number]
        assert row == expected, f"row {number} is\n{row}\nand was\n{expected}"
        self.next += 1

    def receive(
        self, pipeline: Pipeline, client: CanalClient, stop: int | None = None
    ) -> None:
        """Receive and ack up to the row `stop` at least, by default all."""
        stop = len(self._chronicle.rows) if stop is None else stop
        if self.next >= stop:
            return
        for message in pipeline.messages(client, batch_size=3):
            self.take(message.entries)
            client.ack(message.id)
            # The rest of the last transaction counts as well: its end moves the cursor.
            if self.next >= stop and not _is_inside(message.entries[-1]):
                break
        pipeline.settle(client)

    def look(self, client: CanalClient) -> None:
        """Receive what is there and ack nothing of it."""
        self.take(client.get(10, UNIT_S).entries)

    def resume(self) -> None:
        """Let the stream begin again, with something that was received or the next."""
        self.may_repeat = True


@contextlib.contextmanager
def chronicle_of(server: Server, schema: str) -> Iterator[Chronicle]:
    """Give a chronicle of a schema."""
    made = Chronicle(server, schema)
    try:
        yield made
    finally:
        made.close()


# --- statements of all kinds ----------------------------------------------------------

# Each changes `t` in a way that its own kind names; most keep number and kinds of the
# columns, so that the binlog of itself cannot show it. Rows go into the tables after
# it.
SCRIPT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("CREATE TABLE t (id INT, a INT, b INT, c VARCHAR(20))", ("t",)),
    ("ALTER TABLE t ADD d INT AFTER a", ("t",)),
    ("ALTER TABLE t DROP COLUMN b, ADD b INT FIRST", ("t",)),
    ("ALTER TABLE t RENAME COLUMN a TO z", ("t",)),
    ("ALTER TABLE t MODIFY d INT AFTER id", ("t",)),
    ("ALTER TABLE t RENAME COLUMN z TO d, RENAME COLUMN d TO z", ("t",)),
    ("CREATE TABLE s LIKE t", ("s", "t")),
    ("ALTER TABLE s RENAME COLUMN z TO y", ("s", "t")),
    ("RENAME TABLE t TO x, s TO t, x TO s", ("s", "t")),
    ("ALTER TABLE t CONVERT TO CHARACTER SET latin1", ("s", "t")),
    ("ALTER TABLE t CHANGE c e BIGINT UNSIGNED", ("t", "s")),
    ("ALTER TABLE t DROP COLUMN y", ("t",)),
    ("ALTER TABLE t RENAME TO u", ("u", "s")),
    ("CREATE TABLE t (q INT, r INT)", ("t", "u")),
    ("ALTER TABLE t MODIFY q INT UNSIGNED, MODIFY r BIGINT FIRST", ("t", "u")),
    ("DROP TABLE s", ("t",)),
    (AS_SELECT, ("s", "t")),
    ("CREATE OR REPLACE VIEW v AS SELECT 1", ("s",)),
)


def _is_inside(entry: Entry) -> bool:
    """Return whether more of the entry's transaction must come."""
    if entry.entry_type == EntryType.ROWDATA:
        return not entry.row_change().is_ddl
    return entry.entry_type == EntryType.TRANSACTIONBEGIN


def random_change(rng: random.Random, chronicle: Chronicle, number: int) -> str:
    """Return a statement that changes some table, most often invisibly to rows."""
    table = rng.choice(chronicle.tables())
    names = [name for name, _ in chronicle.columns(table)]
    name, other = rng.choice(names), rng.choice(names)
    new = f"n{number}"
    changes = [
        f"ALTER TABLE {table} RENAME COLUMN {name} TO {new}",
        f"ALTER TABLE {table} RENAME TO t{new}",
        f"CREATE TABLE t{new} LIKE {table}",
    ]
    if name != other:
        changes += [
            f"ALTER TABLE {table} MODIFY {name} INT AFTER {other}",
            f"ALTER TABLE {table} MODIFY {name} INT FIRST",
            (
                f"ALTER TABLE {table} RENAME COLUMN {name} TO {other},"
                f" RENAME COLUMN {other} TO {name}"
            ),
            f"ALTER TABLE {table} DROP COLUMN {name}, ADD {name} INT FIRST",
        ]
    if len(names) < COLUMNS_MAX:
        changes += [
            f"ALTER TABLE {table} ADD {new} INT AFTER {name}",
            f"ALTER TABLE {table} ADD {new} VARCHAR(10) FIRST",
        ]
    if len(names) > 2:
        changes.append(f"ALTER TABLE {table} DROP COLUMN {name}")
    second = rng.choice(chronicle.tables())
    if second != table:
        changes += [
            f"DROP TABLE {table}",
            f"RENAME TABLE {table} TO {new}, {second} TO {table}, {new} TO {second}",
        ]
    return rng.choice(changes)
