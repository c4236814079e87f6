"""Rows as instances of a program's own class for a table.

The class is a dataclass, a TypedDict, a pydantic model or a msgspec Struct. Its fields
are columns by name; other columns are ignored, unless the class forbids them. The
package `mapping` has the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from canal_server.client.mapping.row_makers import MisfitError, maker_of
from canal_server.errors import RowMappingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.client.change_reader import Change, Kind

T = TypeVar("T")


class MappedChange(NamedTuple, Generic[T]):
    """A change of a table whose rows are instances of a class.

    A statement on the table, such as TRUNCATE, has neither `before` nor `after`.
    """

    kind: Kind
    before: T | None
    after: T | None
    change: Change


class RowMapper(Generic[T]):
    """Makes instances of a class out of rows.

    Args:
        into: a dataclass, TypedDict, pydantic model or msgspec Struct
        renames: names of columns by names of fields, where they differ; for a
            dataclass or TypedDict, as the others have aliases of their own

    Raises:
        TypeError: `into` is another kind of class, or has annotations that cannot be
            used
        ValueError: `renames` names an unknown field, or the class has aliases

    """

    def __init__(
        self, into: type[T], *, renames: Mapping[str, str] | None = None
    ) -> None:
        self._into = into
        self._make = maker_of(into, renames or {})

    def mapped(self, change: Change) -> MappedChange[T]:
        """Return a change with its rows. Raises RowMappingError."""
        side = "before"
        try:
            row = change.before
            before = None if row is None else self._make(row)
            side = "after"
            row = change.after
            after = None if row is None else self._make(row)
        except MisfitError as error:
            raise RowMappingError(
                f"table {change.schema}.{change.table}: `{side}` of a change"
                f" ({change.kind}) does not fit {self._into.__name__}: {error}"
                f" (at {change.file}:{change.position[1]}); correct the class, or"
                " iterate without `into`"
            ) from error.__cause__
        return MappedChange(change.kind, before, after, change)
