"""The differences between two tables, as lines for people and values for programs.

Defaults, comments and other properties that no row depends on are ignored.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from canal_server.tablemeta.model.table_schema import (
    AUTO_INCREMENT,
    GENERATED,
    INVISIBLE,
    ROW_END,
    ROW_START,
    Versioning,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from canal_server.tablemeta.model.table_schema import Column, Key, Table

ADDED: Final = "+"
REMOVED: Final = "-"
CHANGED: Final = "~"

_REMOVED_KEY: Final = "\0"  # prefix for the key of a column whose name was reused

_FLAGS: Final = (
    (ROW_START, "row start"),
    (ROW_END, "row end"),
    (GENERATED, "generated"),
    (AUTO_INCREMENT, "auto_increment"),
    (INVISIBLE, "invisible"),
)

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    `what` is "table", "column", "unique key", "default charset" or the like. `before`
    and `after` are its definitions; "" if it does not exist, both "" if it is
    unchanged. `new_name` is set if the name changed, `position` ("first", "after id")
    if a column was inserted or moved.
    """

    sign: str
    what: str
    name: str = ""
    before: str = ""
    after: str = ""
    new_name: str = ""
    position: str = ""

    def __str__(self) -> str:
        title = self.name if self.what == "column" else f"{self.what} {self.name}"
        text = f"{self.sign} {title.strip()}"
        if self.new_name:
            text += f" renamed to {self.new_name}"
        if self.position and self.sign == CHANGED:
            text += f" moved {self.position}"
        if self.sign == CHANGED and (self.before or self.after):
            text += f": {self.before or '(none)'} → {self.after or '(none)'}"
        elif self.before or self.after:
            text += f" {self.before or self.after}"
        if self.position and self.sign == ADDED:
            text += f" {self.position}"
        return text

    def as_json(self) -> dict[str, Any]:
        """Return the values that are set, under their field names in JSON."""
        found = {
            "sign": self.sign,
            "what": self.what,
            "name": self.name,
            "before": self.before,
            "after": self.after,
            "newName": self.new_name,
            "place": self.position,
        }
        return {name: value for name, value in found.items() if value}


def differences(
    before: Table | None,
    after: Table | None,
    renamed: Mapping[str, str] = _NOTHING,
) -> list[Difference]:
    """Return the changes from the first table to the second; none if they are equal.

    `renamed` maps old column names to new ones, both in lower case; a column that is
    not in it is a different one if its name differs.
    """
    if before is None:
        return [] if after is None else list(_created(after))
    if after is None:
        columns = (
            "1 column" if len(before.columns) == 1 else f"{len(before.columns)} columns"
        )
        return [Difference(REMOVED, "table", _full_name(before), f"({columns})")]
    if before == after:
        return []
    found = []
    if (before.schema, before.name) != (after.schema, after.name):
        found.append(
            Difference(CHANGED, "table", _full_name(before), new_name=_full_name(after))
        )
    found += _options(before, after)
    found += _columns(before, after, renamed)
    found += _keys(before, after, renamed)
    return found


def definition(column: Column, table: Table | None = None) -> str:
    """Return a column as text: type, character set, unusual properties.

    The character set is omitted if it is that of the table.
    """
    words = [column.type]
    if column.charset and (table is None or column.charset != table.charset):
        words.append(f"charset {column.charset}")
    if not column.nullable:
        words.append("not null")
    words += [word for flag, word in _FLAGS if flag in column.flags]
    return " ".join(words)


def _kind(key: Key) -> str:
    """Return the kind of a key, such as `unique key`."""
    return f"{key.kind.lower()} key".strip()


def _parts(key: Key) -> str:
    """Return the columns of a key, such as `(a, b(10))`."""
    parts = (
        (part.column or "…") + (f"({part.length})" if part.length else "")
        for part in key.parts
    )
    return f"({', '.join(parts)})"


# --- a new table ----------------------------------------------------------------------


def _created(table: Table) -> Iterator[Difference]:
    yield Difference(ADDED, "table", _full_name(table))
    for each in table.columns:
        yield Difference(ADDED, "column", each.name, after=definition(each, table))
    if table.primary:
        yield Difference(ADDED, "primary key", after=_listed(table.primary))
    for key in table.keys:
        yield Difference(ADDED, _kind(key), key.name, after=_parts(key))


def _full_name(table: Table) -> str:
    return f"{table.schema}.{table.name}"


def _listed(names: Iterable[str]) -> str:
    return f"({', '.join(names)})"


# --- two tables -----------------------------------------------------------------------


def _options(before: Table, after: Table) -> Iterator[Difference]:
    if before.kind is not after.kind:
        yield Difference(
            CHANGED, "kind", before=before.kind.value, after=after.kind.value
        )
    if before.charset != after.charset:
        yield Difference(
            CHANGED,
            "default charset",
            before=before.charset or "",
            after=after.charset or "",
        )
    # If not specified, it is the unknown default of the server.
    if before.engine and after.engine and before.engine != after.engine:
        yield Difference(CHANGED, "engine", before=before.engine, after=after.engine)
    if before.versioning is not after.versioning:
        yield Difference(
            CHANGED,
            "system versioning",
            before=_versioning(before.versioning),
            after=_versioning(after.versioning),
        )


def _versioning(versioning: Versioning) -> str:
    return "off" if versioning is Versioning.NONE else versioning.value


def _columns(
    before: Table, after: Table, renamed: Mapping[str, str]
) -> Iterator[Difference]:
    # A name that another column has reused no longer belongs to the previous one.
    used = {renamed[each.key] for each in before.columns if each.key in renamed}
    old = {
        renamed.get(
            each.key, f"{_REMOVED_KEY}{each.key}" if each.key in used else each.key
        ): each
        for each in before.columns
    }
    new = {each.key: each for each in after.columns}
    for key, column in old.items():
        if key not in new:
            yield Difference(
                REMOVED, "column", column.name, before=definition(column, before)
            )
    kept = [key for key in old if key in new]
    moved = _moved(kept, [key for key in new if key in old])
    positions = _positions(after, old)
    for key, column in new.items():
        if key in old:
            position = positions[key] if key in moved else ""
            yield from _column(old[key], column, before, after, position)
        else:
            yield Difference(
                ADDED,
                "column",
                column.name,
                after=definition(column, after),
                position=positions[key],
            )


def _column(
    old: Column, new: Column, before: Table, after: Table, position: str
) -> Iterator[Difference]:
    is_same = definition(old) == definition(new)
    if is_same and old.name == new.name and not position:
        return
    # Both with their character set if that differs.
    with_charset = old.charset != new.charset
    yield Difference(
        CHANGED,
        "column",
        old.name,
        "" if is_same else definition(old, None if with_charset else before),
        "" if is_same else definition(new, None if with_charset else after),
        new.name if new.name != old.name else "",
        position,
    )


def _positions(table: Table, old: Mapping[str, Column]) -> dict[str, str]:
    """Return the position of each column; "" for new ones after all existing ones."""
    positions = {}
    last_kept = max(
        (at for at, each in enumerate(table.columns) if each.key in old), default=-1
    )
    for at, each in enumerate(table.columns):
        position = f"after {table.columns[at - 1].name}" if at else "first"
        positions[each.key] = position if at <= last_kept else ""
    return positions


def _moved(before: Sequence[str], after: Sequence[str]) -> set[str]:
    """Return the fewest keys to move to turn the first order into the second."""
    index = {key: at for at, key in enumerate(before)}
    # The longest run of keys in the same relative order stays.
    ends: list[int] = []  # smallest last index of a run of each length
    runs: list[list[str]] = []
    for key in after:
        at = bisect_left(ends, index[key])
        run = [*(runs[at - 1] if at else ()), key]
        ends[at : at + 1] = [index[key]]
        runs[at : at + 1] = [run]
    return set(after) - set(runs[-1] if runs else ())


def _keys(
    before: Table, after: Table, renamed: Mapping[str, str]
) -> Iterator[Difference]:
    def now(name: str) -> str:
        return renamed.get(name.lower(), name.lower())

    if [now(name) for name in before.primary] != [
        name.lower() for name in after.primary
    ]:
        yield _key_difference(
            "primary key",
            "",
            _listed(before.primary) if before.primary else "",
            _listed(after.primary) if after.primary else "",
        )
    old = {key.name.lower(): key for key in before.keys}
    new = {key.name.lower(): key for key in after.keys}
    for name, key in old.items():
        if name not in new:
            yield Difference(REMOVED, _kind(key), key.name, before=_parts(key))
    for name, key in new.items():
        known = old.get(name)
        if known is None:
            yield Difference(ADDED, _kind(key), key.name, after=_parts(key))
        elif known.kind != key.kind:
            yield Difference(REMOVED, _kind(known), known.name, before=_parts(known))
            yield Difference(ADDED, _kind(key), key.name, after=_parts(key))
        elif [(now(part.column), part.length) for part in known.parts] != [
            (part.column.lower(), part.length) for part in key.parts
        ]:
            yield _key_difference(_kind(key), key.name, _parts(known), _parts(key))


def _key_difference(what: str, name: str, before: str, after: str) -> Difference:
    sign = CHANGED if before and after else ADDED if after else REMOVED
    return Difference(sign, what, name, before, after)
