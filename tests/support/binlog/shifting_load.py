"""Random rows in tables that change, and what a generic stream makes of them.

`ShiftingLoad` writes; `fold` applies the changes of a stream, statements too, to
tables. A row that changes must be as it was left, so that nothing may come twice, be
left out or stand in another order. Every name is used once.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from servers import Server
    from spark_sink import SinkRow

TABLES_MAX = 4
COLUMNS_MAX = 8
KEYS = 12
TYPES = {  # with what they may become
    "INT": "BIGINT",
    "VARCHAR(40)": "VARCHAR(90)",
    "BIGINT": "BIGINT",
    "VARCHAR(90)": "VARCHAR(90)",
}
END = "the_end"  # table whose only row is the last one

Row = dict[str, "str | None"]
Tables = dict[str, dict[str, Row]]  # rows of a table by their key


class ShiftingLoad:
    """Writes to tables of one schema, over connections of its own."""

    def __init__(
        self,
        server: Server,
        schema: str,
        rng: random.Random,
        *,
        statements: float = 0.2,
    ) -> None:
        """Write in a schema; so many steps have a statement on a table."""
        self._statements = statements
        self._server = server
        self.schema = schema
        self._rng = rng
        self._numbers = itertools.count(1)
        self._tables: dict[str, dict[str, str]] = {}  # types of columns
        self._create()

    def step(self) -> None:
        """Write a transaction, now and then a statement that changes a table."""
        if self._rng.random() < self._statements:
            self._run(self._statement())
        changes = [self._change() for _ in range(self._rng.choice((1, 1, 2, 5)))]
        self._run("BEGIN", *changes, self._rng.choice(("COMMIT",) * 5 + ("ROLLBACK",)))

    def end(self) -> None:
        """Write the row that shows that nothing comes after it."""
        self._run(
            f"CREATE TABLE {END} (id INT PRIMARY KEY)", f"INSERT INTO {END} VALUES (1)"
        )

    def truth(self) -> Tables:
        """Return what the server has, in texts."""
        found: Tables = {END: {"1": {"id": "1"}}}
        with self._server.connect(database=self.schema) as connection:
            for table in self._tables:
                cursor = connection.cursor()
                cursor.execute(f"SELECT * FROM {table}")
                names = [each[0] for each in cursor.description]
                found[table] = {
                    str(values[names.index("id")]): {
                        name: None if value is None else str(value)
                        for name, value in zip(names, values, strict=True)
                    }
                    for values in cursor
                }
        return found

    def _run(self, *statements: str) -> None:
        with self._server.connect(database=self.schema) as connection:
            for statement in statements:
                connection.cursor().execute(statement)

    def _name(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def _create(self) -> None:
        table = self._name("t")
        self._tables[table] = {"a": "INT", "b": "VARCHAR(40)"}
        self._run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b VARCHAR(40))",
            f"INSERT INTO {table} VALUES (0, 0, '')",
        )

    def _change(self) -> str:
        """Return a statement that changes rows, or tries to."""
        rng = self._rng
        table = rng.choice(list(self._tables))
        key = rng.randrange(KEYS)
        sets = [
            f"{name} = {self._literal(kind)}"
            for name, kind in self._tables[table].items()
            if rng.random() < 0.7
        ]
        kind = rng.choice(("REPLACE", "REPLACE", "UPDATE", "MOVE", "DELETE"))
        if kind == "REPLACE":
            return f"REPLACE INTO {table} SET {', '.join([f'id = {key}', *sets])}"
        if kind == "UPDATE" and sets:
            return f"UPDATE {table} SET {', '.join(sets)} WHERE id >= {key} LIMIT 3"
        if kind == "DELETE":
            return f"DELETE FROM {table} WHERE id >= {key} LIMIT 2"
        return f"UPDATE IGNORE {table} SET id = id + 3 WHERE id = {key}"

    def _literal(self, kind: str) -> str:
        if self._rng.random() < 0.2:
            return "NULL"
        if "INT" in kind:
            return str(self._rng.randrange(-(1 << 31), 1 << 31))
        return f"'{self._rng.choice('aß中😀') * self._rng.randrange(40)}'"

    def _statement(self) -> str:
        """Return a statement that changes a table, and take note of what it does."""
        rng = self._rng
        if len(self._tables) < TABLES_MAX and rng.random() < 0.3:
            self._create()
        table = rng.choice(list(self._tables))
        columns = self._tables[table]
        name, new = rng.choice([*columns, "id"]), self._name("c")
        kind = rng.choice(("ADD", "DROP", "RENAME", "MODIFY", "TABLE", "EMPTY"))
        if kind == "ADD" and len(columns) < COLUMNS_MAX:
            columns[new] = rng.choice(("INT", "VARCHAR(40)"))
            default = rng.choice(("", " DEFAULT '7'"))
            where = rng.choice(("FIRST", f"AFTER {name}"))
            return (
                f"ALTER TABLE {table} ADD COLUMN {new} {columns[new]}{default} {where}"
            )
        if kind == "EMPTY":
            return f"TRUNCATE TABLE {table}"
        if kind == "TABLE" and len(self._tables) > 1 and rng.random() < 0.3:
            del self._tables[table]
            return f"DROP TABLE {table}"
        if kind in ("TABLE", "ADD") or name == "id":
            new = self._name("t")
            self._tables[new] = self._tables.pop(table)
            return f"RENAME TABLE {table} TO {new}"
        if kind == "DROP":
            del columns[name]
            change = f"DROP COLUMN {name}"
        elif kind == "RENAME":
            columns[new] = columns.pop(name)
            change = f"RENAME COLUMN {name} TO {new}"
        else:
            columns[name] = TYPES[columns[name]]
            where = rng.choice(("FIRST", "AFTER id"))
            change = f"MODIFY COLUMN {name} {columns[name]} {where}"
        return f"ALTER TABLE {table} {change}"


# --- what arrived -----------------------------------------------------------------


def fold(received: Iterable[SinkRow]) -> Tables:
    """Return the tables that a stream leaves."""
    tables: Tables = {}
    for each in received:
        if each.sql:
            apply_statement(tables, each.sql)
            continue
        rows, before, after = tables[each.table], each.change.before, each.change.after
        if before:
            was = rows.pop(str(before["id"]), None)
            assert was == before, f"{each} comes where {was} was left"
        if after:
            key = str(after["id"])
            assert key not in rows, f"{each} comes where {rows[key]} was left"
            rows[key] = after
    return tables


def apply_statement(tables: Tables, sql: str) -> None:
    """Do what a statement of the load does."""
    # MariaDB rewrites some of them: quoted, with the schema, with a comment.
    plain = re.sub(r"`\w+`\.|`|/\*.*?\*/|\btable\b\s*", "", sql, flags=re.IGNORECASE)
    words = plain.replace("COLUMN ", "").split()
    verb, table = words[0].upper(), words[1]
    if verb == "CREATE":
        tables[table] = {}
    elif verb == "DROP":
        del tables[table]
    elif verb == "TRUNCATE":
        tables[table].clear()
    elif verb == "RENAME":
        tables[words[3]] = tables.pop(table)
    elif words[2] in ("ADD", "DROP", "RENAME"):
        for row in tables[table].values():
            if words[2] == "ADD":
                row[words[3]] = "7" if "DEFAULT" in words else None
            else:
                value = row.pop(words[3])
                if words[2] == "RENAME":
                    row[words[5]] = value
    else:
        assert words[2] == "MODIFY", sql
