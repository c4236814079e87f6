"""The names of tables in a target, by a pattern or one by one."""

from __future__ import annotations

from collections.abc import Mapping


class TableNames:
    """Maps `schema.table` of the source to schema and table of the target."""

    def __init__(self, pattern: str, tables: Mapping[str, str] | str) -> None:
        """Raise ValueError for a pattern or names that cannot be used.

        The pattern may contain `{schema}` and `{table}`; what is before its first
        point is the schema. `tables` are exceptions: a mapping, or a text
        `shop.orders=sales.orders,shop.items=items`.
        """
        self._pattern = pattern
        self._tables = dict(_pairs(tables))
        for each in ("a", "b"):  # any name
            try:
                self.target(each, each)
            except (LookupError, ValueError):
                raise ValueError(
                    f"name = {pattern!r}: expected a text with {{schema}} and {{table}}"
                ) from None

    def target(self, schema: str, table: str) -> tuple[str | None, str]:
        """Return schema and name in the target; without a schema, its default one."""
        named = self._tables.get(f"{schema}.{table}")
        # First split, as names may contain points.
        parts = (self._pattern if named is None else named).split(".", 1)
        if named is None:
            parts = [each.format(schema=schema, table=table) for each in parts]
        return (parts[0], parts[1]) if len(parts) > 1 else (None, parts[0])


def _pairs(tables: Mapping[str, str] | str) -> Mapping[str, str]:
    if isinstance(tables, Mapping):
        return tables
    found = {}
    for each in filter(None, tables.split(",")):
        source, equals, target = each.strip().partition("=")
        if not (equals and target and "." in source):
            raise ValueError(f"tables: {each!r}: expected schema.table=name")
        found[source] = target
    return found
