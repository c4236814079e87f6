"""Generated columns, computed as real servers compute them.

CANAL_TEST_LONGER makes more statements.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pymysql
import pytest
from fix_random import longer
from fix_source_access import access_of

from canal_server.mirror.ddl.evolve import Copy, Steps, decide
from canal_server.mirror.lake.lake_table import UnlikeError
from canal_server.mirror.lake.masks import lake_schema
from canal_server.mirror.lake.reshape import Reshape
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.selected_tables import table_by_rule
from canal_server.mirror.settings.table_values import TableName
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns

if TYPE_CHECKING:
    import random

STATEMENTS = longer(30)
RULE = TableRule(match=r".*\..*")
TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, i INT, s SMALLINT NOT NULL, u INT UNSIGNED, "
    "b BIGINT, w BIGINT UNSIGNED, d DECIMAL(8,2), e DECIMAL(6,4) UNSIGNED, "
    "v VARCHAR(20) CHARACTER SET utf8mb4, l VARCHAR(20) CHARACTER SET latin1, "
    "x TEXT CHARACTER SET utf8mb4, dt DATETIME(3) NOT NULL, da DATE NOT NULL)"
)
VALUES: dict[str, tuple[Any, ...]] = {
    "i": (None, 0, 1, -7, 12, 2**31 - 1, -(2**31)),
    "s": (0, 1, -1, 300, -32768),
    "u": (None, 0, 1, 7, 2**32 - 1),
    "b": (None, 0, -1, 5, 10**12, 2**63 - 1),
    "w": (None, 0, 3, 2**64 - 1),
    "d": (None, Decimal("0.00"), Decimal("-1.25"), Decimal("12.35"), Decimal("99.99")),
    "e": (None, Decimal("0.0050"), Decimal("1.2345"), Decimal("99.9999")),
    "v": (None, "", "a ", "Zoë", "日本語", "x" * 20),
    "l": (None, "", " é", "y" * 20),
    "x": (None, "", "some text 😀"),
    "dt": (datetime(2024, 2, 29, 23, 59, 59, 999000), datetime(1999, 12, 31)),  # noqa: DTZ001  # DATETIME
    "da": (date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)),
}
TARGETS = {
    "whole": ("INT", "BIGINT", "TINYINT", "INT UNSIGNED", "DECIMAL(30,2)"),
    "exact": ("DECIMAL(30,6)", "DECIMAL(12,2)", "DECIMAL(5,1)"),
    "text": (
        "VARCHAR(60) CHARACTER SET utf8mb4", "VARCHAR(60) CHARACTER SET latin1",
        "TEXT CHARACTER SET utf8mb4", "VARCHAR(5) CHARACTER SET utf8mb4",
    ),
    "date": ("DATE",),
}  # fmt: skip


class Expressions:
    """Random expressions, by the family of their values."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng

    def of(self, family: str, depth: int = 2) -> str:
        """Return an expression with values of a family."""
        maker = {"whole": self.whole, "exact": self.exact, "text": self.text}
        return maker[family](depth) if family in maker else "DATE(dt)"

    def whole(self, depth: int) -> str:
        """Return an expression with whole numbers."""
        one = self.random.choice
        if depth == 0:
            return one(("i", "s", "u", "b", "id", "3", "-2", "0", "1000"))
        left, right = self.whole(depth - 1), self.whole(depth - 1)
        part = one(("YEAR", "MONTH", "DAY", "DAYOFMONTH", "QUARTER", "DAYOFYEAR"))
        return one((
            f"{left} {one('+-*%')} {right}",
            f"({left}) {one(('DIV', 'MOD', '+', '-', '*'))} ({right})",
            f"-({left})",
            f"{part}({one(('dt', 'da'))})",
            f"{one(('HOUR', 'MINUTE', 'SECOND'))}(`dt`)",
            f"IF({self.condition(depth - 1)}, {left}, {right})",
            f"CASE WHEN {self.condition(depth - 1)} THEN {left} ELSE {right} END",
            f"COALESCE({left}, NULL, {right})",
            f"({self.condition(depth - 1)})",
        ))  # fmt: skip

    def exact(self, depth: int) -> str:
        """Return an expression with decimal numbers."""
        one = self.random.choice
        if depth == 0:
            return one(("d", "e", "0.19", "2.5", "i", "s"))
        left, right = self.exact(depth - 1), self.exact(depth - 1)
        return one((
            f"{left} {one('+-*')} d",
            f"({left}) {one('+-*')} ({right})",
            f"IFNULL({left}, {right})",
            f"IF({self.condition(depth - 1)}, {left}, {right})",
        ))  # fmt: skip

    def text(self, depth: int) -> str:
        """Return an expression with texts."""
        one = self.random.choice
        if depth == 0:
            return one(("v", "l", "x", "'-'", "'it''s'"))
        left, right = self.text(depth - 1), self.text(depth - 1)
        return one((
            f"CONCAT({left}, {right})",
            f"CONCAT({left}, ' ', {one(('id', 'i', 'w', 's'))})",
            f"LEFT({one('vlx')}, {one('027')})",
            f"COALESCE({left}, {right})",
            f"IF({self.condition(depth - 1)}, {left}, {right})",
        ))  # fmt: skip

    def condition(self, depth: int) -> str:
        """Return an expression that is true or not."""
        one = self.random.choice
        sign = one(("=", "<>", "!=", "<", "<=", ">", ">="))
        simple = f"{one(('i', 'u', 'w', 'd', 'e'))} {sign} {one(('0', '1', 's', 'd'))}"
        if depth <= 0:
            return one((simple, f"{one(('i', 'v', 'd'))} IS {one(('', 'NOT '))}NULL"))
        both = self.condition(depth - 1), self.condition(depth - 1)
        return one((
            simple, f"{both[0]} AND {both[1]}", f"({both[0]} OR {both[1]})",
            f"NOT ({both[0]})", f"{self.whole(depth - 1)} {sign} 5",
        ))  # fmt: skip


class Scene:
    """A table of a server, and what a statement makes of its copy."""

    def __init__(self, control: ControlConnection, cursor: Any, database: str) -> None:
        self.cursor = cursor
        self.name = TableName(database, "t")
        self._reader = TableColumns(control)

    def columns(self):
        """Return the columns that the table has now."""
        meta = self._reader.fetch(*self.name)
        assert meta is not None
        return meta.columns

    def rows(self) -> pa.Table:
        """Return the rows of the table as the lake has them."""
        schema = lake_schema(table_by_rule(self.name, self.columns(), RULE))
        self.cursor.execute("SELECT * FROM t ORDER BY id")
        values = zip(*self.cursor.fetchall(), strict=True)
        arrays = [
            pa.array([None if v is None else v for v in column], field.type)
            for column, field in zip(values, schema, strict=True)
        ]
        return pa.table(arrays, schema=schema)

    def decide(self, sql: str, before, *, mariadb: bool):
        """Return what a statement that was executed means for the copy."""
        after = [
            replace(each, nullable=True, generated=False) for each in self.columns()
        ]
        return decide(sql, self.name, before, after, RULE, mariadb=mariadb)


def insert_rows(cursor: Any, rng: random.Random) -> None:
    """Insert rows with random values."""
    names = ", ".join(["id", *VALUES])
    marks = ", ".join(["%s"] * (1 + len(VALUES)))
    rows = [
        [number, *(rng.choice(values) for values in VALUES.values())]
        for number in range(1, 31)
    ]
    cursor.executemany(f"INSERT INTO t ({names}) VALUES ({marks})", rows)


@pytest.mark.parametrize("mode", ["STRICT_TRANS_TABLES", ""])
def test_random_expressions(source_server, database, mode, rng) -> None:
    """Whenever a copy follows, a generated column has the server's values.

    It is added or gets another expression, stored or virtual.
    """
    mariadb = source_server.flavour == "mariadb"
    expressions = Expressions(rng)
    outcomes: Counter[str] = Counter()
    with (
        ControlConnection(access_of(source_server)) as control,
        source_server.connect(database=database) as link,
        link.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = %s", (mode,))
        cursor.execute(TABLE)
        insert_rows(cursor, rng)
        link.commit()
        scene = Scene(control, cursor, database)
        while outcomes["all"] < STATEMENTS:
            family = rng.choice(list(TARGETS))
            kind = rng.choice(TARGETS[family])
            store = rng.choice(("STORED", "VIRTUAL"))
            definition = f"{kind} AS ({expressions.of(family)}) {store}"
            before, rows = scene.columns(), scene.rows()
            has_one = before[-1].name == "g"
            change = rng.choice(("MODIFY g", "CHANGE g g")) if has_one else "ADD g"
            sql = f"ALTER TABLE t {change} {definition}"
            try:
                cursor.execute(sql)
                now = scene.rows()
            except pymysql.Error:
                outcomes["refused"] += 1
                if scene.columns()[-1].name == "g":  # which may have no values
                    cursor.execute("ALTER TABLE t DROP g")
                continue
            outcomes["all"] += 1
            decision = scene.decide(sql, before, mariadb=mariadb)
            if isinstance(decision, Copy):
                outcomes[f"copied: {decision.reason}"] += 1
            else:
                assert isinstance(decision, Steps), (sql, decision)
                try:
                    found = Reshape(rows.schema, decision.steps).rows(rows)
                except UnlikeError:
                    outcomes["not certain"] += 1
                else:
                    outcomes["followed"] += 1
                    assert found["g"].to_pylist() == now["g"].to_pylist(), sql
            if rng.random() < 0.5:
                cursor.execute("ALTER TABLE t DROP g")
    print(outcomes)
    assert outcomes["followed"] > STATEMENTS // 4
