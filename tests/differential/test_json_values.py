"""Every type's extremes within JSON, through a real binlog, against SELECT."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from json_values import are_same, binary, decimals, of_columns, plain, shapes
from random_reading import Reading

from canal_server.arrow.json_restyle import restyled
from canal_server.model.entry import EntryType
from canal_server.source.read.binlog_part import FilePosition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pymysql.cursors import Cursor
    from servers import Server

ROWS_A_STATEMENT = 200
# What a partial update of t is that replaces p and inserts n.
OPENING = "JSON_INSERT(JSON_REPLACE(doc, '$.p', "
BETWEEN = "), '$.n', "
Wanted = tuple[str, str, str]


class Documents:
    """A table with a document per value, and the connection that fills it."""

    def __init__(self, server: Server, schema: str, cursor: Cursor) -> None:
        self.server, self.schema, self.cursor = server, schema, cursor
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"USE {schema}")
        cursor.execute(
            "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY,"
            " what VARCHAR(2000) CHARACTER SET utf8mb4, doc JSON)"
        )
        self.start = FilePosition(*server.binlog_position())

    def insert(self, documents: Iterable[str]) -> None:
        """Insert a row for each expression that makes a document."""
        rows = [f"({self.quoted(each)}, {each})" for each in documents]
        for at in range(0, len(rows), ROWS_A_STATEMENT):
            values = ", ".join(rows[at : at + ROWS_A_STATEMENT])
            self.cursor.execute(f"INSERT INTO t (what, doc) VALUES {values}")

    def insert_columns(self) -> None:
        """Insert rows with values that were in columns of each type."""
        for definition, literals in of_columns():
            self.fill(definition, literals)
            for shape in shapes("c"):
                what = self.quoted(f"{shape} of {definition} ")
                self.cursor.execute(
                    "INSERT INTO t (what, doc)"
                    f" SELECT CONCAT({what}, n), {shape} FROM v"
                )

    def fill(self, definition: str, literals: Iterable[str]) -> None:
        """Make v, a table of our own with a column of a type."""
        self.cursor.execute("DROP TEMPORARY TABLE IF EXISTS v")
        self.cursor.execute(
            "CREATE TEMPORARY TABLE v"
            f" (n INT AUTO_INCREMENT PRIMARY KEY, c {definition})"
        )
        for literal in literals:
            self.cursor.execute(f"INSERT INTO v (c) VALUES ({literal})")

    def delivered(self) -> list[str | None]:
        """Return the documents after each change since the start, as in entries."""
        reading = Reading(self.server, self.schema, self.start, ["t"])
        changes = [
            entry.row_change()
            for entry in reading.entries
            if entry.entry_type == EntryType.ROWDATA
        ]
        return [data.after["doc"] for change in changes for data in change.row_datas]

    def selected(self, doc: str = "doc") -> list[Wanted]:
        """Return what documents were made of, SELECT's text, and the value's type."""
        self.cursor.execute(
            f"SELECT what, CAST({doc} AS CHAR),"
            f" JSON_TYPE(COALESCE(JSON_EXTRACT({doc}, '$.v'),"
            f" JSON_EXTRACT({doc}, '$[1]'), {doc})) FROM t ORDER BY id"
        )
        return list(self.cursor.fetchall())

    def quoted(self, text: str) -> str:
        """Return a text as a literal."""
        return str(self.cursor.mogrify("%s", (text,)))


@contextmanager
def documents_in(server: Server, schema: str) -> Iterator[Documents]:
    """Give the table of documents in a fresh schema."""
    with server.connect() as connection, connection.cursor() as cursor:
        yield Documents(server, schema, cursor)


def check(delivered: Sequence[str | None], selected: list[Wanted]) -> None:
    """Fail with the values whose documents are not those of SELECT."""
    assert len(delivered) == len(selected)
    wrong = [
        f"{what:.200}: {text!s:.200}, SELECT: {right:.200}"
        for text, (what, right, kind) in zip(delivered, selected, strict=True)
        if text is None or not are_same(text, right, doubles=kind == "DOUBLE")
    ]
    assert not wrong, "\n".join(wrong[:50])


def test_values_in_documents(mysql_server: Server, database: str) -> None:
    """A document delivers the value that SELECT shows, whatever its type."""
    with documents_in(mysql_server, database) as documents:
        documents.insert(f"JSON_OBJECT('v', {number})" for number in decimals())
        documents.insert(
            shape for value in (*plain(), *binary()) for shape in shapes(value)
        )
        documents.insert_columns()
        selected = documents.selected()
    kinds = {kind for _, _, kind in selected}
    assert kinds >= {"DECIMAL", "TIME", "TIMESTAMP", "BLOB", "BIT", "OBJECT", "DOUBLE"}
    delivered = documents.delivered()
    check(delivered, selected)
    # Copies are made of what SELECT gives. A DECIMAL may look like a DOUBLE there.
    assert [
        (what, text)
        for text, (what, right, kind) in zip(delivered, selected, strict=True)
        if kind != "DECIMAL" and restyled(right.encode()) != text
    ] == []


def test_values_in_partial_updates(mysql_server: Server, database: str) -> None:
    """What a partial update sets in a document is the value that SELECT shows there."""
    with documents_in(mysql_server, database) as documents:
        values = [number for i, number in enumerate(decimals()) if i % 9 == 0]
        values += [*plain(), *binary()]
        # Only what is longer than the change is changed in part.
        documents.insert(
            f"JSON_OBJECT('f', REPEAT('f', 100 + 4 * COALESCE(LENGTH({value}), 0)),"
            " 'p', JSON_ARRAY())"
            for value in values
        )
        documents.start = FilePosition(*mysql_server.binlog_position())
        documents.cursor.execute("SET binlog_row_value_options = PARTIAL_JSON")
        for number, value in enumerate(values, 1):
            documents.cursor.execute(
                f"UPDATE t SET doc = JSON_SET(doc, '$.p', {value}, '$.n', {value}),"
                f" what = {documents.quoted(value)} WHERE id = {number}"
            )
        selected = documents.selected(doc="JSON_EXTRACT(doc, '$.p')")
    delivered = []
    for text in documents.delivered():
        assert text
        assert text.startswith(OPENING), text[:200]
        first, _, second = text[len(OPENING) : -1].partition(BETWEEN)
        assert first == second
        delivered.append(first)
    check(delivered, selected)


def test_values_in_documents_of_mariadb(mariadb_server: Server, database: str) -> None:
    """MariaDB's documents are text and are delivered as it is."""
    with documents_in(mariadb_server, database) as documents:
        # Of bytes MariaDB makes texts that are no JSON.
        documents.cursor.execute("SET check_constraint_checks = 0")
        documents.insert(f"JSON_OBJECT('v', {number})" for number in decimals())
        documents.insert(shape for value in plain() for shape in shapes(value))
        documents.insert_columns()
        selected = documents.selected()
    assert documents.delivered() == [text for _, text, _ in selected]
