"""Random DDL on live servers: whenever a copy follows, it equals the source.

An oracle in plain Python applies the steps; the server has the resulting rows.
CANAL_TEST_LONGER makes more statements.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pymysql
import pytest
from fix_random import longer
from fix_source_access import access_of

from canal_server.mirror.ddl.evolve import Copy, Steps, decide
from canal_server.mirror.lake.steps import (
    AddColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.table_values import TableName
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

ROUNDS = longer(25)
RULE = TableRule(match=r".*\..*")
TYPES = {  # with values of each, as literals
    "TINYINT": ("-128", "0", "127"),
    "TINYINT UNSIGNED": ("0", "255"),
    "SMALLINT": ("-32768", "5"),
    "INT": ("-1", "2147483647"),
    "INT UNSIGNED": ("4294967295", "1"),
    "BIGINT": ("-9223372036854775808", "7"),
    "BIGINT UNSIGNED": ("18446744073709551615", "7"),
    "DECIMAL(6,2)": ("-1234.56", "0.10"),
    "DECIMAL(9,2)": ("1234567.89", "0.10"),
    "DECIMAL(12,4)": ("12345678.9876", "2"),
    "FLOAT": ("0.5", "-3.25"),
    "DOUBLE": ("0.1", "1e20"),
    "BIT(5)": ("b'10101'", "b'1'"),
    "BIT(9)": ("b'110110101'", "b'1'"),
    "DATE": ("'2020-02-29'", "'1999-12-31'"),
    "DATETIME": ("'2020-02-29 23:59:59'", "'1999-12-31 00:00:00'"),
    "DATETIME(3)": ("'2020-02-29 23:59:59.987'", "'1999-12-31 00:00:00'"),
    "TIME": ("'-12:34:56'", "'100:00:01'"),
    "YEAR": ("2020", "1999"),
    "CHAR(5)": ("'ab'", "''"),
    "CHAR(9) CHARACTER SET latin1": ("'äöü'", "'x'"),
    "VARCHAR(9)": ("'a b '", "'Zoë'"),
    "VARCHAR(40)": ("'Zoë and some more'", "''"),
    "VARCHAR(40) CHARACTER SET latin1": ("'Zoë'", "'1'"),
    "TINYTEXT": ("'Zoë'", "'5'"),
    "TEXT": ("'Zoë'", "'2020-01-01'"),
    "VARBINARY(9)": ("x'00ff'", "'ab'"),
    "BLOB": ("x'00ff20'", "''"),
    "BINARY(4)": ("x'00ff'", "'ab'"),
    "ENUM('a','b')": ("'a'", "'b'"),
    "ENUM('c','b','a')": ("'a'", "'c'"),
    "ENUM('a','B','c')": ("'B'", "'c'"),
    "SET('a','b')": ("'a,b'", "''"),
    "SET('a','b','c')": ("'a,c'", "'b'"),
    "SET('b','a')": ("'a,b'", "'b'"),
}
NAMES = ("a", "b", "c", "D", "é")


class Random:
    """Writes statements on one table t with the key `id`."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng

    def definition(self) -> str:
        """Return a type with NULL, NOT NULL and a default by chance."""
        kind = self.random.choice(list(TYPES))
        null = self.random.choice(("", "", " NULL", " NOT NULL"))
        default = self.random.choice((*TYPES[kind], "", "", ""))
        is_blob = "TEXT" in kind or "BLOB" in kind
        if default and not is_blob:
            return f"{kind}{null} DEFAULT {default}"
        return f"{kind}{null}"

    def item(self, present: list[str]) -> str:
        """Return an item of an ALTER TABLE."""
        one = self.random.choice(present) if present else ""
        other = self.random.choice(NAMES)
        position = self.random.choice(("", "", " FIRST", " AFTER id"))
        kinds = [f"ADD {other} {self.definition()}{position}"] * 2
        if one:
            kinds += [
                f"MODIFY {one} {self.definition()}{position}",
                f"CHANGE {one} {other} {self.definition()}",
                f"RENAME COLUMN {one} TO {other}",
                f"DROP COLUMN {one}",
            ]
        kinds += ["ADD INDEX (id)", "CONVERT TO CHARACTER SET utf8mb4", "COMMENT 'x'"]
        return self.random.choice(kinds)

    def alter(self, present: list[str]) -> str:
        """Return a statement of one to three items."""
        count = self.random.choice((1, 1, 1, 2, 3))
        items = ", ".join(self.item(present) for _ in range(count))
        return f"ALTER TABLE t {items}"

    def insert(self, types: dict[str, str], number: int) -> str:
        """Return an INSERT of a row."""
        values = [
            str(number),
            *(
                self.random.choice((*TYPES.get(kind, ()), "DEFAULT"))
                for kind in types.values()
            ),
        ]
        names = ", ".join(["id", *types])
        return f"INSERT INTO t ({names}) VALUES ({', '.join(values)})"


def value_of(text: str | None, mysql_type: str):
    """Return the value of a text as entries carry it, as the driver gives it."""
    base = mysql_type.partition("(")[0].partition(" ")[0]
    if text is None:
        return None
    return READERS.get("int" if base.endswith("int") else base, str)(text)


def duration_of(text: str) -> timedelta:
    """Return a time of day, which may be longer than a day, and negative."""
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = text.lstrip("-").split(":")
    return sign * timedelta(
        hours=int(hours), minutes=int(minutes), seconds=float(seconds)
    )


READERS: dict[str, Callable[[str], object]] = {
    "int": int,
    "year": int,
    "bit": int,
    "decimal": Decimal,
    "float": float,
    "double": float,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "time": duration_of,
    "varbinary": str.encode,
    "blob": str.encode,
}


def plain(value, mysql_type: str):
    """Return a value of the driver as the lake has it."""
    if isinstance(value, bytes) and mysql_type.startswith("bit"):
        return int.from_bytes(value)
    if mysql_type.startswith("date") and str(value).startswith("0000-00-00"):
        return None
    return value


class Copied:
    """The copy: rows by their keys, each a dict of the lake's columns."""

    def __init__(self, cursor, columns) -> None:
        self.columns = columns
        self.rows = rows_of(cursor, columns)

    def take(self, steps) -> None:
        """Do what the steps say."""
        for step in steps:
            for row in self.rows.values():
                match step:
                    case AddColumn():
                        assert step.name not in row
                        row[step.name] = value_of(step.fill, step.mysql_type)
                    case DropColumn():
                        del row[step.name]
                    case RenameColumn():
                        assert step.new not in row
                        row[step.new] = row.pop(step.old)
                    case WidenColumn():
                        assert step.name in row


def rows_of(cursor, columns) -> dict[int, dict[str, object]]:
    """Return the rows of the source."""
    # The server shows six digits of a FLOAT.
    names = ", ".join(
        f"`{each.name}`" + (" + 0e0" if each.mysql_type.startswith("float") else "")
        for each in columns
    )
    cursor.execute(f"SELECT {names} FROM t")
    found = {}
    for values in cursor.fetchall():
        row = {
            each.name: plain(value, each.mysql_type)
            for each, value in zip(columns, values, strict=True)
        }
        found[row["id"]] = row
    return found


def differing(ours, theirs) -> list[str]:
    """Return what differs of two sets of rows."""
    assert ours.keys() == theirs.keys()
    return [
        f"row {key}: {ours[key]} is {theirs[key]}"
        for key in ours
        if ours[key] != theirs[key]
    ]


@pytest.mark.parametrize("mode", ["strict", "lax"])
def test_random_ddl(source_server, database, mode, rng):
    """Steps leave the rows that the server has, in strict mode and without."""
    made = Random(rng)
    outcomes: Counter[str] = Counter()
    mariadb = source_server.flavour == "mariadb"
    sql_mode = "STRICT_TRANS_TABLES" if mode == "strict" else ""
    with (
        ControlConnection(access_of(source_server)) as control,
        source_server.connect(database=database) as link,
        link.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = %s", (sql_mode,))
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")
        reader = TableColumns(control)
        copied = Copied(cursor, columns_of(reader, database))
        while outcomes["all"] < ROUNDS:
            types = {each.name: "" for each in copied.columns if each.name != "id"}
            for _ in range(2):
                fill(made, cursor, types, outcomes)
            copied = Copied(cursor, copied.columns)
            sql = made.alter(list(types))
            try:
                cursor.execute(sql)
            except pymysql.Error:
                outcomes["refused"] += 1
                continue
            outcomes["all"] += 1
            after = [
                replace(each, nullable=True) for each in columns_of(reader, database)
            ]
            decision = decide(
                *(sql, TableName(database, "t"), copied.columns, after, RULE),
                mariadb=mariadb,
            )
            if isinstance(decision, Steps):
                outcomes["followed"] += 1
                copied.take(decision.steps)
                found = differing(copied.rows, rows_of(cursor, decision.columns))
                assert not found, (sql, decision, found[:3])
                copied.columns = decision.columns
            else:
                assert isinstance(decision, Copy), (sql, decision)
                copied = Copied(cursor, columns_of(reader, database))
            if len(copied.columns) > 6:
                cursor.execute("TRUNCATE t")
    print(outcomes)
    assert outcomes["followed"] > ROUNDS // 5


def columns_of(reader: TableColumns, database: str):
    """Return the columns that the table has now."""
    meta = reader.fetch(database, "t")
    assert meta is not None
    return meta.columns


def fill(made: Random, cursor, types: dict[str, str], outcomes: Counter[str]) -> None:
    """Add a row with values of the columns' types, if the server accepts it."""
    cursor.execute("SHOW COLUMNS FROM t")
    kinds = {name: kind for name, kind, *_ in cursor.fetchall() if name != "id"}
    known = {name.upper(): name for name in TYPES}
    types = {
        name: known.get((kind if isinstance(kind, str) else kind.decode()).upper(), "")
        for name, kind in kinds.items()
    }
    for name, kind in types.items():
        if not kind:
            head = kinds[name].partition("(")[0].upper()
            types[name] = next((each for each in TYPES if each.startswith(head)), "")
    outcomes["rows"] += 1
    try:
        cursor.execute(made.insert(types, outcomes["rows"]))
    except pymysql.Error:
        outcomes["rows refused"] += 1
