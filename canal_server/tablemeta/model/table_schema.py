"""Tables at one position in the binlog: immutable values that share parts.

Applying statements is the task of `canal_server.tablemeta.tables.memory_tables`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self

from canal_server.model.columns_known import ColumnMeta, TableMeta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Properties of a column in addition to its type.
GENERATED: Final = "G"
INVISIBLE: Final = "I"
AUTO_INCREMENT: Final = "A"
ROW_START: Final = "S"
ROW_END: Final = "E"

PRIMARY: Final = "PRIMARY"


class Kind(Enum):
    """The kind of a table."""

    BASE = "base"
    SEQUENCE = "sequence"


class Versioning(Enum):
    """Whether MariaDB keeps old rows, and which columns hold the times of a row."""

    NONE = ""
    HIDDEN = "hidden"  # in columns that only row events contain
    NAMED = "named"  # in columns of the table definition


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `type` is COLUMN_TYPE of the server, `flags` are some of the above."""

    name: str
    type: str
    nullable: bool = True
    charset: str | None = None
    flags: str = ""
    # For an ENUM or SET whose type does not preserve the bytes.
    labels: tuple[bytes, ...] | None = None

    @property
    def key(self) -> str:
        """The name in the form used to compare columns."""
        return self.name.lower()

    def named(self, name: str) -> Column:
        """Return the column with another name."""
        return (
            replace(self, name=name)
            if self.labels
            else column(name, self.type, self.nullable, self.charset, self.flags)
        )

    def with_nullable(self, nullable: bool) -> Column:
        """Return the column as nullable or not."""
        if nullable == self.nullable:
            return self
        if self.labels:
            return replace(self, nullable=nullable)
        return column(self.name, self.type, nullable, self.charset, self.flags)

    def with_type(
        self,
        mysql_type: str,
        charset: str | None,
        labels: tuple[bytes, ...] | None = None,
    ) -> Column:
        """Return the column with another type."""
        new = column(self.name, mysql_type, self.nullable, charset, self.flags)
        return replace(new, labels=labels) if labels else new

    def with_flag(self, flag: str, *, on: bool) -> Column:
        """Return the column with a flag set or not."""
        flags = "".join(sorted(self.flags.replace(flag, "") + (flag if on else "")))
        if self.labels:
            return replace(self, flags=flags)
        return column(self.name, self.type, self.nullable, self.charset, flags)


# Similar tables have the same columns under many names: these are stored once. The
# limit bounds the cost if they are all different.
@lru_cache(maxsize=1 << 16)
def column(
    name: str, mysql_type: str, nullable: bool, charset: str | None, flags: str
) -> Column:
    """Return a column; the same object for the same values."""
    return Column(name, mysql_type, nullable, charset, flags)


@dataclass(frozen=True, slots=True)
class Part:
    """A column of a key, or "" for an expression; `length` 0 is the whole column."""

    column: str
    length: int = 0


@dataclass(frozen=True, slots=True)
class Key:
    """An index. `kind` is "", "UNIQUE", "FULLTEXT", …; `hashed` was specified."""

    name: str
    kind: str
    parts: tuple[Part, ...]
    hashed: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `primary` are the names of the primary key columns in order."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    primary: tuple[str, ...] = ()
    charset: str | None = None
    kind: Kind = Kind.BASE
    versioning: Versioning = Versioning.NONE
    keys: tuple[Key, ...] = ()
    engine: str = ""  # in lower case, "" if not specified
    period: tuple[str, str, str] | None = None  # MariaDB: its name, start and end

    def renamed(self, schema: str, name: str) -> Self:
        """Return the table with another name."""
        return replace(self, schema=schema, name=name)

    @property
    def meta(self) -> TableMeta:
        """The columns that row events contain, in their order."""
        primary = {name.lower() for name in self.primary}
        return TableMeta(
            self.schema,
            self.name,
            tuple(
                [
                    ColumnMeta(
                        each.name,
                        each.type,
                        each.charset,
                        each.key in primary,
                        each.nullable,
                        GENERATED in each.flags,
                    )
                    for each in self.columns
                ]
                + list(self._hidden())
            ),
        )

    def _hidden(self) -> Iterator[ColumnMeta]:
        if self.versioning is Versioning.HIDDEN:
            yield ColumnMeta("row_start", "timestamp(6)", nullable=False)
            yield ColumnMeta("row_end", "timestamp(6)", nullable=False)
        hashed = sum(key.hashed for key in self.keys)
        for number in range(1, hashed + 1):
            yield ColumnMeta(f"DB_ROW_HASH_{number}", "bigint(20) unsigned")

    def create_sql(self) -> str:
        """Return a CREATE TABLE statement that recreates this table."""
        lines = [_column_sql(each) for each in self.columns]
        if self.primary:
            lines.append(f"PRIMARY KEY ({_quoted_all(self.primary)})")
        lines += map(_key_sql, self.keys)
        if self.versioning is Versioning.NAMED:
            times = [
                each.name
                for flag in (ROW_START, ROW_END)
                for each in self.columns
                if flag in each.flags
            ]
            lines.append(f"PERIOD FOR SYSTEM_TIME ({_quoted_all(times)})")
        if self.period:
            name, *columns = self.period
            lines.append(f"PERIOD FOR {quoted(name)} ({_quoted_all(columns)})")
        body = ",\n  ".join(lines)
        return f"CREATE TABLE {quoted(self.name)} (\n  {body}\n){self._options()}"

    def _options(self) -> str:
        options = ""
        if self.engine:
            options += f" ENGINE={self.engine}"
        if self.charset:
            options += f" DEFAULT CHARSET={self.charset}"
        if self.kind is Kind.SEQUENCE:
            options += " SEQUENCE=1"
        if self.versioning is not Versioning.NONE:
            options += " WITH SYSTEM VERSIONING"
        return options


def quoted(name: str) -> str:
    """Return a name in back-quotes."""
    return f"`{name.replace('`', '``')}`"


def _quoted_all(names: Iterable[str]) -> str:
    return ",".join(map(quoted, names))


def _column_sql(each: Column) -> str:
    kind = each.type
    if each.labels:
        labels = ",".join(f"x'{label.hex()}'" for label in each.labels)
        kind = f"{kind.partition('(')[0]}({labels})"
    words = [quoted(each.name), kind]
    if each.charset:
        words.append(f"CHARACTER SET {each.charset}")
    elif each.type.startswith(("enum(", "set(")):
        words.append("CHARACTER SET binary")
    if ROW_START in each.flags:
        words.append("GENERATED ALWAYS AS ROW START")
    elif ROW_END in each.flags:
        words.append("GENERATED ALWAYS AS ROW END")
    elif GENERATED in each.flags:
        words.append("GENERATED ALWAYS AS (NULL) VIRTUAL")
    words.append("NULL" if each.nullable else "NOT NULL")
    if AUTO_INCREMENT in each.flags:
        words.append("AUTO_INCREMENT")
    if INVISIBLE in each.flags:
        words.append("INVISIBLE")
    return " ".join(words)


def _key_sql(key: Key) -> str:
    parts = ",".join(
        quoted(part.column) + (f"({part.length})" if part.length else "")
        if part.column
        else "(NULL)"
        for part in key.parts
    )
    words = [key.kind, "KEY", quoted(key.name), f"({parts})"]
    if key.hashed:
        words.append("USING HASH")
    return " ".join(filter(None, words))
