"""Databases into which the handler SqlUpsert writes, and a look into them."""

from __future__ import annotations

import sqlalchemy as sa

from canal_server.client.handlers.sql_upsert import SqlUpsert


class SqlTarget:
    """A database to look into, and handlers that write to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)
        self.handlers: list[SqlUpsert] = []

    def handler(self, **options) -> SqlUpsert:
        """Return an open handler."""
        made = SqlUpsert(self.url, **options)
        made.open()
        self.handlers.append(made)
        return made

    def close(self) -> None:
        """Close all connections."""
        for each in self.handlers:
            each.close()
        self.engine.dispose()

    def execute(self, *statements: str) -> None:
        """Execute statements."""
        with self.engine.begin() as connection:
            for each in statements:
                connection.exec_driver_sql(each)

    def rows(self, table: str = "orders", schema: str | None = None):
        """Return all rows by id, as the database has them."""
        found = sa.Table(table, sa.MetaData(), schema=schema, autoload_with=self.engine)
        with self.engine.connect() as connection:
            rows = connection.execute(sa.select(found)).mappings()
            return {row["id"]: dict(row) for row in rows}


def apply(handler, *messages) -> None:
    """Handle and flush messages, as a consumer does."""
    for message in messages:
        for change in message.changes():
            handler.handle(change)
        handler.flush()
