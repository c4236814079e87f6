"""The handler `sql`: keeps tables of another database equal to those of the source.

Leaves out the statements (`sql_target`), which need SQLAlchemy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from canal_server.client.handlers.handler import required

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.client.change_reader import Change
    from canal_server.client.handlers.sql_target import SqlTarget


class SqlUpsert:
    """Executes changes in a database, by the primary keys of the rows.

    Inserts and updates become `INSERT … ON CONFLICT … UPDATE` or the equivalent of the
    database, so that changes which arrive again do no harm. An update of the key moves
    the row. All changes up to a flush are one transaction.

    Tables need a primary key at the source, and a unique index on the same columns in
    the target. Apart from that, the target should have neither unique indexes nor
    foreign keys: rows that arrive again are for a moment as they were before.

    Statements that alter source tables are not executed. With `create`, missing tables
    and columns are added when a row has them.

    Args:
        url: of SQLAlchemy, such as `postgresql+psycopg://user:password@host/database`
        name: the name of the table in the target, from `{schema}` and `{table}` of the
            source; with a point in it, its start is the schema in the target
        tables: names for single tables: `{"shop.orders": "sales.orders"}`, or as a text
            `shop.orders=sales.orders,shop.items=items`
        create: create missing tables and columns; types are chosen by those of MySQL
        missing_columns: what happens with columns that the target lacks, without
            `create`: "error" rejects the change, "ignore" leaves them out

    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "{table}",
        tables: Mapping[str, str] | str = "",
        create: bool = False,
        missing_columns: Literal["error", "ignore"] = "error",
    ) -> None:
        if missing_columns not in {"error", "ignore"}:
            raise ValueError(
                f'missing_columns = {missing_columns!r}: expected "error" or "ignore"'
            )
        required("sqlalchemy", "sql", extra="sql")
        # It needs SQLAlchemy when it is loaded.
        from canal_server.client.handlers.sql_target import SqlTarget  # noqa: PLC0415
        from canal_server.client.handlers.table_names import TableNames  # noqa: PLC0415

        self._target: SqlTarget = SqlTarget(
            url,
            TableNames(name, tables),
            create=create,
            ignores_missing=missing_columns == "ignore",
        )

    def open(self) -> None:
        """Connect. Raises RetryLater if the database is unavailable."""
        self._target.connect()

    def handle(self, change: Change) -> None:
        """Execute a change, perhaps with the next ones. Raises RetryLater, Rejected."""
        self._target.apply(change)

    def flush(self) -> None:
        """Commit."""
        self._target.commit()

    def rollback(self) -> None:
        """Roll back what was executed since the last flush."""
        self._target.rollback()

    def close(self) -> None:
        """Disconnect."""
        self._target.close()
