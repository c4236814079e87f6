"""The effects of statements on tables as plain data: resolved from text, not applied.

Names are complete, and types are those of the server if the text alone determines them.
Whatever depends on the table (its character set, its keys) is left to
`canal_server.tablemeta.tables.table_changes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canal_server.tablemeta.model.table_schema import Key

Name = tuple[str, str]  # schema, table


@dataclass(frozen=True, slots=True)
class TextType:
    """A type whose text depends on its character set.

    `kind` is char, varchar, text and its sizes, enum or set; `length` counts
    characters, None if it was not given; `labels` are the values of an ENUM or SET, as
    bytes if they were written as such; `exact`: they are those of the column.
    """

    kind: str
    length: int | None = None
    labels: tuple[str | bytes, ...] = ()
    connection: str = ""  # the character set of the text
    exact: bool = False


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column definition; what it does not specify is None or false.

    `type` is COLUMN_TYPE, or "" with `text_type`. `nullable` None: by the rules of the
    table. `is_primary`, `is_unique` are keys of this column alone. `default` is the
    literal text, `generation` the expression of a generated column in parentheses;
    they do not affect the structure.
    """

    name: str
    type: str
    text_type: TextType | None = None
    charset: str | None = None
    nullable: bool | None = None
    flags: str = ""
    is_primary: bool = False
    is_unique: bool = False
    has_versions: bool | None = None  # WITH or WITHOUT SYSTEM VERSIONING
    suffix: str = ""  # what the server appends to COLUMN_TYPE
    default: str | None = field(default=None, compare=False)
    generation: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Options:
    """Table options, None if not specified.

    `charset` is "" for the default of the database. `is_versioned` false: DROP SYSTEM
    VERSIONING.
    """

    charset: str | None = None
    engine: str | None = None
    is_sequence: bool | None = None
    is_versioned: bool | None = None


# The items of an ALTER TABLE, in statement order


@dataclass(frozen=True, slots=True)
class AddColumn:
    """ADD COLUMN; `after` is None for the end, "" for FIRST, else a column name."""

    column: ColumnSpec
    after: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """CHANGE or MODIFY; `after` None keeps the column where it is."""

    old: str
    column: ColumnSpec
    after: str | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """RENAME COLUMN."""

    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    """DROP COLUMN."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowColumn:
    """ALTER COLUMN … SET VISIBLE or INVISIBLE."""

    name: str
    visible: bool


@dataclass(frozen=True, slots=True)
class AddKey:
    """ADD KEY; the name is "" if the server chooses it."""

    key: Key
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddPeriod:
    """ADD PERIOD FOR; for row versioning if the name is SYSTEM_TIME."""

    name: str
    start: str
    end: str
    if_not_exists: bool = False

    @property
    def is_system(self) -> bool:
        """Whether it is the period of row versioning, not an application period."""
        return self.name.upper() == "SYSTEM_TIME"


@dataclass(frozen=True, slots=True)
class DropPeriod:
    """DROP PERIOD FOR."""

    is_system: bool


@dataclass(frozen=True, slots=True)
class DropKey:
    """DROP KEY or DROP CONSTRAINT; the name PRIMARY is the primary key."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameKey:
    """RENAME KEY."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class ConvertTo:
    """CONVERT TO CHARACTER SET; "" is the default of the database."""

    charset: str


@dataclass(frozen=True, slots=True)
class RenameTo:
    """RENAME TO."""

    name: Name


@dataclass(frozen=True, slots=True)
class PartitionToTable:
    """CONVERT PARTITION … TO TABLE: a new table with the same structure."""

    name: Name


@dataclass(frozen=True, slots=True)
class TableToPartition:
    """CONVERT TABLE … TO PARTITION: the table no longer exists."""

    name: Name


Item = (
    AddColumn
    | ChangeColumn
    | RenameColumn
    | DropColumn
    | ShowColumn
    | AddKey
    | AddPeriod
    | DropPeriod
    | DropKey
    | RenameKey
    | ConvertTo
    | RenameTo
    | PartitionToTable
    | TableToPartition
    | Options
)


# Statements


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE. `is_open`: not all of its columns are in its text.

    `lacks_options`: the server wrote it in a mode that omits options.
    """

    name: Name
    columns: tuple[ColumnSpec, ...]
    keys: tuple[Key, ...] = ()
    periods: tuple[AddPeriod, ...] = ()
    options: Options = Options()  # frozen
    if_not_exists: bool = False
    or_replace: bool = False
    temporary: bool = False
    is_open: bool = False
    lacks_options: bool = False


@dataclass(frozen=True, slots=True)
class CreateLike:
    """CREATE TABLE … LIKE."""

    name: Name
    like: Name
    if_not_exists: bool = False
    or_replace: bool = False
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class CreateSequence:
    """CREATE SEQUENCE."""

    name: Name
    if_not_exists: bool = False
    or_replace: bool = False
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE, or an equivalent statement (CREATE INDEX)."""

    name: Name
    items: tuple[Item, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTables:
    """RENAME TABLE: pairs of old and new names, executed in order."""

    pairs: tuple[tuple[Name, Name], ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropTables:
    """DROP TABLE or DROP SEQUENCE. `generated`: the server wrote the statement.

    `only_sequences`: tables with the names are kept.
    """

    names: tuple[Name, ...]
    temporary: bool = False
    generated: bool = False
    only_sequences: bool = False


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE VIEW."""

    name: Name
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropViews:
    """DROP VIEW."""

    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """CREATE DATABASE; the character set is "" for the server default."""

    schema: str
    charset: str
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """ALTER DATABASE; None if the character set is unchanged."""

    schema: str
    charset: str | None
    renamed_to: str = ""


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """DROP DATABASE, with all its tables."""

    schema: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A statement that cannot be parsed, or whose effect its text does not determine.

    `names` are the tables it may have changed; if empty, any table.
    """

    problem: str
    names: tuple[Name, ...] = ()


Operation = (
    CreateTable
    | CreateLike
    | CreateSequence
    | AlterTable
    | RenameTables
    | DropTables
    | CreateView
    | DropViews
    | CreateDatabase
    | AlterDatabase
    | DropDatabase
    | Unknown
)
