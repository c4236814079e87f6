"""Statements amid a copy: where chunks do not show it, a new copy is asked for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fix_mirror import mirror_table
from fix_source_access import access_of

from canal_server.errors import DecodeError, SourceError
from canal_server.mirror.ddl.evolve import Steps, decide
from canal_server.mirror.rows.chunks import Chunk, cut
from canal_server.mirror.settings.mirror_settings import TableRule
from canal_server.mirror.settings.table_values import TableName
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.server_columns import TableColumns

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from canal_server.mirror.rows.chunk_read import read_chunk

if TYPE_CHECKING:
    from servers import Server

    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.model.columns_known import TableMeta

CI, BIN = "COLLATE utf8mb4_general_ci", "COLLATE utf8mb4_bin"
TABLE = f"""CREATE TABLE {{}} (k VARCHAR(20) {CI} NOT NULL, u VARCHAR(20) {CI},
    e ENUM('a','b','c'), s SET('a','b','c'), l VARCHAR(20) CHARACTER SET latin1,
    n INT, d DECIMAL(8,2), f FLOAT, t DATETIME, b BIT(5), x VARBINARY(9),
    PRIMARY KEY (k)) DEFAULT CHARSET utf8mb4"""
SERIES = " UNION ALL ".join(
    f"SELECT '{letter}{n:02}' AS k, {n} AS n" for n in range(25) for letter in "aBcD"
)
FILL = f"""INSERT INTO {{}} SELECT k, k, ELT(1 + n % 2, 'a', 'b'), 1 + n % 7,
    CONCAT('é', n), n, n / 4, n / 4, '2024-02-29 01:02:03', n, x'00ff'
    FROM ({SERIES}) AS series"""
ROWS = 100

# Statements, and whether rows read before and after them differ from the table; None:
# they cannot be read afterwards, so the copy ends there.
STATEMENTS: dict[str, bool | None] = {
    "MODIFY e ENUM('a','x','b','c')": True,
    "MODIFY s SET('a','b','c','d')": False,
    "CHANGE e e2 ENUM('c','b','a')": None,
    "MODIFY l VARCHAR(20) CHARACTER SET utf8mb4": None,
    "CONVERT TO CHARACTER SET utf8mb4": None,
    f"CONVERT TO CHARACTER SET utf8mb4 {BIN}": None,
    f"MODIFY k VARCHAR(20) {BIN} NOT NULL": True,
    f"CHANGE k k VARCHAR(20) {BIN} NOT NULL COMMENT 'MODIFY'": True,
    f"MODIFY u VARCHAR(20) {BIN}": False,
}
# What is followed amid a copy, as the rows are read as before.
SURE = (
    "ADD COLUMN c VARCHAR(9) CHARACTER SET latin1 DEFAULT 'é'",
    "ADD COLUMN c INT FIRST, ADD INDEX (u), COMMENT 'x'",
    "DEFAULT CHARACTER SET latin1",
    "COLLATE utf8mb4_bin",
    "MODIFY n BIGINT, MODIFY d DECIMAL(12,4), MODIFY f DOUBLE",
    "MODIFY t DATETIME(6) FIRST, MODIFY b BIT(64)",
    "ADD UNIQUE (u), ENGINE = InnoDB",
)


class Copied:
    """A table with rows that are read before and after a statement."""

    def __init__(self, server: Server, schema: str) -> None:
        self.server = server
        self.name = TableName(schema, "t")
        server.execute(
            *(f"DROP TABLE IF EXISTS {schema}.t", TABLE.format(f"{schema}.t")),
            FILL.format(f"{schema}.t"),
        )
        self.before = self.meta()
        self.table = mirror_table(self.before)
        with ControlConnection(access_of(server)) as connection:
            self.chunks = cut(connection, self.table, 20)
        assert len(self.chunks) > 3

    def meta(self) -> TableMeta:
        """Return what the table is now."""
        with ControlConnection(access_of(self.server)) as connection:
            found = TableColumns(connection).fetch(*self.name)
        assert found is not None
        return found

    def rows(self, chunks: list[Chunk], table: MirrorTable) -> Counter[Any]:
        """Return the rows of chunks, by the columns of before."""
        return Counter(
            tuple(row[column.name] for column in self.table.columns)
            for chunk in chunks
            for batch in read_chunk(access_of(self.server), table, chunk)
            for row in batch.to_pylist()
        )

    def read_around(self, sql: str) -> Counter[Any]:
        """Return the rows of a copy with a statement in the middle."""
        middle = len(self.chunks) // 2
        found = self.rows(self.chunks[:middle], self.table)
        self.server.execute(sql)
        return found + self.rows(self.chunks[middle:], self.table)

    def unsure(self, sql: str) -> str:
        """Return what the mirror says of a statement."""
        decision = decide(
            sql, self.name, self.before.columns, self.meta().columns,
            TableRule(match=".*"), mariadb=self.server.flavour == "mariadb",
        )  # fmt: skip
        assert isinstance(decision, Steps), decision
        return decision.copy_doubt


@pytest.mark.parametrize("item", STATEMENTS)
def test_what_chunks_do_not_show(
    source_server: Server, database: str, item: str
) -> None:
    """The mirror knows that the rows may be wrong, which for most of them they are.

    Where a text comes in another character set, that is seen as well.
    """
    copied = Copied(source_server, database)
    sql = f"ALTER TABLE {database}.t {item}"
    is_wrong = STATEMENTS[item]
    if is_wrong is None:
        with pytest.raises((SourceError, DecodeError), match="column"):
            copied.read_around(sql)
    else:
        found = copied.read_around(sql)
        now = copied.rows([Chunk(0)], mirror_table(copied.meta()))
        assert (found != now) is is_wrong
    assert "while the table was copied" in copied.unsure(sql)


@pytest.mark.parametrize("item", SURE)
def test_what_chunks_show(source_server: Server, database: str, item: str) -> None:
    """Where the mirror continues, each row is there once with the right values."""
    copied = Copied(source_server, database)
    sql = f"ALTER TABLE {database}.t {item}"
    found = copied.read_around(sql)
    now = copied.rows([Chunk(0)], mirror_table(copied.meta()))
    assert found.total() == ROWS
    assert found == now
    assert copied.unsure(sql) == ""
