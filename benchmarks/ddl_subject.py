"""Answers the line protocol of the DDL corpora on the memory model alone.

JSON lines on stdin: `{"op":"reset"}`; `{"op":"apply", …}` with the fields of a line
of a corpus; `{"op":"load","schema","create":[texts]}`, after which the schema holds
exactly these tables; `{"op":"tables","schema"}`. Only the last is answered, by one
line `{table: [{"name","type","nullable","key","charset"}]}`, where `key` is the
column's position in the primary key, 0 for none.

Usage: ddl_subject.py [--flavour mysql|mariadb]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.model.table_schema import Kind, Table, Versioning
from canal_server.tablemeta.tables.memory_tables import Applied, MemoryTableMeta

Line = dict[str, Any]
Tables = dict[str, list[dict[str, Any]]]


class Subject:
    """The memory model behind the protocol; `mariadb` None: known from the lines."""

    def __init__(self, *, mariadb: bool | None = None) -> None:
        self._said = mariadb
        self.reset()

    def reset(self) -> None:
        """Begin with an empty server."""
        self._mariadb = self._said
        self._model: MemoryTableMeta | None = None

    def _of(self, line: Line) -> MemoryTableMeta:
        if self._model is None:
            if self._mariadb is None:
                self._mariadb = is_mariadb(line)
            self._model = MemoryTableMeta(mariadb=self._mariadb)
        return self._model

    def apply(self, line: Line) -> Applied:
        """Do a statement."""
        model = self._of(line)
        context = context_of(line, mariadb=bool(self._mariadb))
        return model.apply(None, context.schema, line["sql"], context)

    def load(self, schema: str, creates: list[str]) -> None:
        """Put exactly these tables into a schema."""
        model = self._of({})
        for table in model.tables(schema):
            model.forget(schema, table)
        for text in creates:
            # MariaDB 10.1 shows a SET without labels, which nothing can read.
            with contextlib.suppress(ValueError):
                model.load(schema, text)

    def tables(self, schema: str) -> Tables:
        """Return the columns of a schema's base tables."""
        if self._model is None:
            return {}
        found = (self._model.find(schema, name) for name in self._model.tables(schema))
        return {
            table.name: columns_of(table)
            for table in found
            if table is not None and table.kind is Kind.BASE
        }


def is_mariadb(line: Line) -> bool:
    """Set which server it is by its first line."""
    collations = " ".join(map(str, line.get("charset", {}).values()))
    if "0900" in collations:
        return False
    # MySQL writes it only with statements about TIMESTAMP, which the first one is not.
    return "explicit_ts" in line


def context_of(line: Line, *, mariadb: bool) -> Context:
    """Return what a line says of its session."""
    charset = line.get("charset", {})
    explicit = line.get("explicit_ts")
    return Context(
        schema=line.get("schema") or "",
        mariadb=mariadb,
        sql_mode=line.get("sql_mode") or 0,
        charset_client=charset.get("client"),
        collation_connection=charset.get("connection"),
        collation_server=charset.get("server"),
        collation_database=line.get("db_collation"),
        collation_utf8mb4=line.get("utf8mb4_collation"),
        explicit_timestamp=None if explicit is None else bool(explicit),
        error=line.get("error") or 0,
        server_version=line.get("version") or 0,
    )


def columns_of(table: Table) -> list[dict[str, Any]]:
    """Return a table's columns in the protocol's form."""
    primary = [name.lower() for name in table.primary]
    if table.period and table.versioning is Versioning.HIDDEN:
        end = table.period[2].lower()
        if primary[-2:-1] == [end]:
            # The end of rows is in front of the period; it is not shown, but counted.
            primary.insert(-2, "")
    return [
        {
            "name": each.name,
            "type": each.type,
            "nullable": int(each.nullable),
            "key": primary.index(each.key) + 1 if each.key in primary else 0,
            "charset": each.charset,
        }
        for each in table.columns
    ]


def answer(subject: Subject, line: Line) -> Tables | None:
    """Do what a line says; returns what is to be answered."""
    if line["op"] == "tables":
        return subject.tables(line["schema"])
    if line["op"] == "apply":
        subject.apply(line)
    elif line["op"] == "load":
        subject.load(line["schema"], line["create"])
    elif line["op"] == "reset":
        subject.reset()
    return None


def main() -> None:
    """Answer until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flavour", choices=("mysql", "mariadb"))
    said = parser.parse_args().flavour
    subject = Subject(mariadb=None if said is None else said == "mariadb")
    for text in sys.stdin:
        found = answer(subject, json.loads(text))
        if found is not None:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
