"""A table's columns as canal-server knows them, and why it may not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from canal_server.errors import ConfigError
from canal_server.mirror.follow.follower import meta_of

if TYPE_CHECKING:
    from canal_server.client.range_client import RangePosition, RangeTable
    from canal_server.mirror.settings.table_values import TableName
    from canal_server.model.columns_known import ColumnMeta
    from canal_server.spark.options.servers import Channel


def columns_at(
    channel: Channel, name: TableName, position: RangePosition | None
) -> tuple[ColumnMeta, ...]:
    """Return a table's columns at a position (None: now), empty if it does not exist.

    Raises ConfigError if the destination omits some of its changes.
    """
    at = () if position is None else (position,)
    found = channel.call(
        lambda c: c.schema(channel.destination, name.schema, name.table, *at)
    )
    if found.left_out:
        raise ConfigError([left_out_of(found, channel.destination)])
    return tuple(
        replace(
            meta_of(each.name, each.mysql_type, each.charset, each.key),
            nullable=each.nullable,
            generated=each.generated,
        )
        for each in found.columns
    )


def unknown_to(destination: str) -> str:
    """Return the problem of a table that the server does not see."""
    return (
        "canal-server does not know it: the account of destination "
        f"{destination} needs SELECT on it"
    )


def left_out_of(table: RangeTable, destination: str) -> str:
    """Return the problem of a table whose changes the server delivers in part."""
    return (
        f"canal-server leaves out {table.left_out}: change that for destination "
        f"{destination}, or exclude the table"
    )
