"""Parsing the body of a CREATE TABLE: columns, keys and table options.

Checks, expressions, comments and partitions have no effect here and are skipped; the
text of defaults is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final

from canal_server.doors.sqltext import STRING, SqlReader
from canal_server.tablemeta.model.charset_widths import (
    BINARY,
    charset_named,
    charset_of,
)
from canal_server.tablemeta.model.operations import (
    AddKey,
    AddPeriod,
    ColumnSpec,
    Options,
)
from canal_server.tablemeta.model.table_schema import (
    AUTO_INCREMENT,
    GENERATED,
    INVISIBLE,
    PRIMARY,
    ROW_END,
    ROW_START,
    Key,
    Part,
)
from canal_server.tablemeta.model.type_text import COMPRESSED
from canal_server.tablemeta.sql.column_types import read_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.tablemeta.model.operations import Name
    from canal_server.tablemeta.model.session_context import Context

_QUERIES: Final = frozenset(("SELECT", "VALUES", "TABLE", "WITH"))
_KEY_WORDS: Final = frozenset(("KEY", "INDEX"))
# Partitions may follow the last item of an ALTER TABLE without a comma.
_ENDS: Final = frozenset((",", ")", ";", "", "FIRST", "AFTER", "PARTITION", "REMOVE"))
_OPERATORS: Final = frozenset("+-*/%|&^<>=!~") | {"DIV", "MOD", "AND", "OR"}


# Of a table, for all servers.
_COLUMNS_MAX: Final = 4096
_KEYS_MAX: Final = 255
_EXPLICIT_SINCE: Final = {False: 80002, True: 101000}
_CHARSETS: Final = frozenset(("CHARACTER", "CHARSET", "CHAR"))
_ALGORITHMS: Final = frozenset(("BTREE", "HASH", "RTREE"))
_KEYS: Final = frozenset(("UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "VECTOR"))
_CONSTRAINTS: Final = frozenset(
    (
        *("PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "FOREIGN"),
        *("CHECK", "CONSTRAINT"),
    )
)
# What may follow a type without any effect.
_PLAIN_ATTRIBUTES: Final = frozenset(
    ("VIRTUAL", "STORED", "PERSISTENT", "VISIBLE", "ENFORCED")
)
# Options of tables and databases with a value; only for these, `=` may be omitted.
_OPTIONS: Final = frozenset(
    (
        *("AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHECKSUM"),
        *("COMMENT", "COMPRESSION", "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTION"),
        *("ENGINE_ATTRIBUTE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS"),
        *("MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM", "PASSWORD", "ROW_FORMAT"),
        *("SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "STATS_AUTO_RECALC"),
        *("STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STORAGE", "TABLE_CHECKSUM"),
        *("TABLESPACE", "TRANSACTIONAL", "UNION"),
    )
)
# Options of two words, and what may be the only word.
_SECOND_WORDS: Final = {
    "DATA": "DIRECTORY",
    "INDEX": "DIRECTORY",
    "READ": "ONLY",
    "START": "TRANSACTION",
}
_ALONE: Final = frozenset((",", "DEFAULT", "IGNORE", "REPLACE", "AS"))
_IS_LITERAL: Final = re.compile(r"'|0X|0B|[XBN]\Z")  # after an introducer
_BEFORE_STRINGS: Final = frozenset(("X", "B", "N", "DATE", "TIME", "TIMESTAMP"))


@dataclass(slots=True)
class Body:
    """The content of the parentheses of a CREATE TABLE."""

    columns: list[ColumnSpec] = field(default_factory=list)
    keys: list[AddKey] = field(default_factory=list)
    periods: list[AddPeriod] = field(default_factory=list)


@dataclass(slots=True)
class _Attributes:
    """The attributes after the type of a column."""

    charset: str | None
    nullable: bool | None = None
    flags: str = ""
    is_primary: bool = False
    is_unique: bool = False
    has_versions: bool | None = None
    is_compressed: bool = False
    default: str | None = None
    generation: str | None = None


@dataclass(slots=True)
class _Said:
    """The table options that were parsed."""

    mariadb: bool
    charset: str | None = None
    collation: str | None = None
    engine: str | None = None
    is_sequence: bool | None = None
    is_versioned: bool | None = None

    def options(self) -> Options:
        """Return the options as a value."""
        charset = self.charset
        if charset is None and self.collation is not None:
            charset = charset_of(self.collation)
            if charset == "default" and self.mariadb:
                charset = None  # the character set is unchanged
        if charset == "default":
            charset = ""
        return Options(charset, self.engine, self.is_sequence, self.is_versioned)


class DefinitionReader(SqlReader):
    """Parses the parts of table definitions. All methods raise SqlTextError."""

    def __init__(
        self,
        sql: str,
        context: Context,
        *,
        chars_max: int | None = None,
        shown: bool = False,
    ) -> None:
        """Start a text; `shown`: it is an answer to SHOW CREATE TABLE."""
        super().__init__(sql, context.dialect, chars_max=chars_max)
        self.context = context
        self._shown = shown

    # Names

    def table_name(self) -> Name:
        """Parse a table name, completed by the default schema."""
        parts = self.names()
        if len(parts) > 2:  # noqa: PLR2004
            self.raise_error("name with three parts")
        if len(parts) == 1:
            parts.insert(0, self.context.schema)
        if not parts[0]:
            self.raise_error("table without a schema")
        return parts[0], parts[1]

    def column_name(self) -> str:
        """Parse a column name, which may be qualified by the table."""
        return self.names()[-1]

    # The content of parentheses

    def body(self) -> Body:
        """Parse columns and keys, including the closing parenthesis."""
        found = Body()
        while True:
            self._element(found)
            if not self.accept(","):
                break
        self.expect(")")
        return found

    def _element(self, found: Body) -> None:
        if self.key_stands_here():
            self.key_or_constraint(found)
            if len(found.keys) > _KEYS_MAX:
                self.raise_error(f"more than {_KEYS_MAX} keys")
        else:
            found.columns.append(self.column())
            if len(found.columns) > _COLUMNS_MAX:
                self.raise_error(f"more than {_COLUMNS_MAX} columns")
        # The remaining elements have no effect here (FIRST and AFTER never have any).
        self.skip_to((",",))

    def key_stands_here(self) -> bool:
        """Return whether a key or constraint follows instead of a column."""
        word = self.peek()
        if word in _CONSTRAINTS:
            return True
        if word == "PERIOD":
            return self.peek(1) in ("FOR", "IF")
        return word == "VECTOR" and self.peek(1) in _KEY_WORDS

    def key_or_constraint(self, found: Body) -> None:
        """Parse an element that is not a column, up to its end."""
        name = ""
        if self.accept("CONSTRAINT"):
            self.skip_if_exists()
            if self.peek() not in _CONSTRAINTS:
                name = self.name()
        word = self.next()
        if word == "PERIOD":
            found.periods.append(self.period())
        elif word == "PRIMARY":
            self.expect("KEY")
            found.keys.append(self._key(PRIMARY, PRIMARY))
        elif word in _KEYS:
            self.accept_any(_KEY_WORDS)
            kind = "" if word in _KEY_WORDS else word
            found.keys.append(self._key(kind, name))
        elif word in ("FOREIGN", "CHECK", "LIKE"):
            pass
        else:
            self.raise_error(f"unknown constraint {word[:40]!r}")
        self.skip_to((",",))

    def period(self) -> AddPeriod:
        """Parse FOR name (start, end)."""
        if_not_exists = self.skip_if_exists()
        self.expect("FOR")
        name = self.name()
        self.expect("(")
        start = self.column_name()
        self.expect(",")
        end = self.column_name()
        self.expect(")")
        return AddPeriod(name, start, end, if_not_exists)

    def _key(self, kind: str, name: str) -> AddKey:
        """Parse a key, starting at its name."""
        if_not_exists = self.skip_if_exists()
        hashed = False
        while self.peek() != "(":
            if self.peek() in ("USING", "TYPE") and self.peek(1) in _ALGORITHMS:
                self.next()
                hashed = self.next() == "HASH"
            elif self.skip_if_exists():
                if_not_exists = True
            else:
                name = self.name()
        key = self.key_parts(kind, name, hashed=hashed)
        return AddKey(key, if_not_exists)

    def key_parts(self, kind: str, name: str, *, hashed: bool) -> Key:
        """Parse the parts of a key, and its options up to the next item."""
        self.expect("(")
        parts = [self._part()]
        while self.accept(","):
            parts.append(self._part())
        self.expect(")")
        while self.skip_to(("USING", "TYPE", ",", ";")) in ("USING", "TYPE"):
            self.next()
            hashed = hashed or self.peek() == "HASH"
        return Key(name, kind, tuple(parts), hashed)

    def _part(self) -> Part:
        if self.peek() == "(":
            self.skip_parens()
            column, length = "", 0
        else:
            column, length = self.column_name(), 0
            if self.accept("("):
                word = self.next()
                length = int(word) if word.isdecimal() else 0
                if not self.accept(")"):
                    self.raise_error("expected the length of a key part")
        self.skip_to((",",))
        return Part(column, length)

    # Columns

    def column(self) -> ColumnSpec:
        """Parse the definition of a column, including its name."""
        return self.column_of(self.column_name())

    def column_of(self, name: str) -> ColumnSpec:
        """Parse the definition of a column, starting at its type."""
        found = read_type(self, self.context)
        if self._shown and found.text is not None and found.text.labels:
            found.text = replace(found.text, exact=True)
        attributes = _Attributes(found.charset, is_compressed=found.is_compressed)
        if found.is_serial:
            attributes.flags = AUTO_INCREMENT
            attributes.nullable = False
            attributes.is_unique = True
        while (word := self.peek()) not in _ENDS:
            self._index += 1
            if word in self._ATTRIBUTES:
                self._ATTRIBUTES[word](self, attributes)
            elif self.accept("="):
                self.next()  # an engine option
            elif word not in _PLAIN_ATTRIBUTES:
                self.raise_error(f"unknown column attribute {word[:40]!r}")
        nullable = attributes.nullable
        if (
            nullable is None
            and found.is_timestamp
            and not (GENERATED in attributes.flags and self.context.mariadb)
            and not self._explicit_timestamp()
        ):
            nullable = False
        return ColumnSpec(
            name,
            found.type,
            found.text,
            attributes.charset,
            nullable,
            "".join(sorted(attributes.flags)),
            attributes.is_primary,
            attributes.is_unique,
            attributes.has_versions,
            COMPRESSED if attributes.is_compressed else "",
            attributes.default,
            attributes.generation,
        )

    def _explicit_timestamp(self) -> bool:
        context = self.context
        if context.explicit_timestamp is not None:
            return context.explicit_timestamp
        # The event has no value: use the default of the server.
        since = _EXPLICIT_SINCE[context.mariadb]
        return not context.server_version or context.server_version >= since

    def _attribute_not(self, found: _Attributes) -> None:
        if self.accept("NULL"):
            found.nullable = False
        else:
            self.accept_any(("ENFORCED", "SECONDARY"))

    def _attribute_null(self, found: _Attributes) -> None:
        found.nullable = True

    def _attribute_default(self, found: _Attributes) -> None:
        start = self.index
        self.skip_value()
        found.default = self.text_between(start, self.index)

    def _attribute_on(self, _found: _Attributes) -> None:
        self.next()  # UPDATE
        self.skip_value()

    def _attribute_auto_increment(self, found: _Attributes) -> None:
        found.flags += AUTO_INCREMENT
        if not self._shown:  # which always contains NOT NULL
            found.nullable = False  # unless NULL follows

    def _attribute_serial(self, found: _Attributes) -> None:
        self.accept("DEFAULT", "VALUE")
        found.flags += AUTO_INCREMENT
        found.nullable = False
        found.is_unique = True

    def _attribute_unique(self, found: _Attributes) -> None:
        self.accept("KEY")
        found.is_unique = True

    def _attribute_primary(self, found: _Attributes) -> None:
        self.accept("KEY")
        found.is_primary = True

    def _attribute_key(self, found: _Attributes) -> None:
        found.is_primary = True

    def _attribute_collate(self, found: _Attributes) -> None:
        self.accept("=")
        charset = charset_of(self.charset_name())
        # MariaDB: after BLOB, it makes a text type of it.
        may = (None, BINARY) if self.context.mariadb else (None,)
        if found.charset in may and charset not in (None, "default"):
            found.charset = charset

    def _attribute_generated(self, _found: _Attributes) -> None:
        self.accept("ALWAYS")

    def _attribute_as(self, found: _Attributes) -> None:
        if self.accept("ROW"):
            found.flags += ROW_START if self.next() == "START" else ROW_END
            found.flags += GENERATED
            found.nullable = False
            return
        found.flags += GENERATED
        start = self.index
        self.skip_parens()
        found.generation = self.text_between(start, self.index)

    def _attribute_invisible(self, found: _Attributes) -> None:
        found.flags += INVISIBLE

    def _attribute_references(self, _found: _Attributes) -> None:
        self.names()
        self.skip_parens()
        while word := self.accept_any(("MATCH", "ON")):
            if word == "ON":
                self.next()
            if not (self.accept("SET", "NULL") or self.accept("SET", "DEFAULT")):
                self.accept("NO")
                self.next()

    def _attribute_constraint(self, _found: _Attributes) -> None:
        if self.peek() not in _CONSTRAINTS:
            self.name()

    def _attribute_check(self, _found: _Attributes) -> None:
        self.skip_parens()

    def _attribute_with(self, found: _Attributes) -> None:
        if self.accept("SYSTEM", "VERSIONING"):
            found.has_versions = True

    def _attribute_without(self, found: _Attributes) -> None:
        if self.accept("SYSTEM", "VERSIONING"):
            found.has_versions = False

    def _attribute_compressed(self, found: _Attributes) -> None:
        found.is_compressed = True
        if self.accept("="):
            self.next()

    def _attribute_of_one_word(self, _found: _Attributes) -> None:
        self.accept("=")
        if self.peek() == STRING:
            self.string()
        else:
            self.next()

    def _attribute_policy(self, _found: _Attributes) -> None:
        self.accept("POLICY")
        self.names()

    def skip_value(self) -> None:
        """Skip a value or a simple expression, as in a DEFAULT."""
        self._skip_operand()
        while self.peek() in _OPERATORS:
            self.next()
            self._skip_operand()

    def _skip_operand(self) -> None:
        while self.accept_any(_OPERATORS) or self.accept_any(("BINARY", "@")):
            pass
        self.accept(".")  # of .5
        word = self.peek()
        if word == "(":
            self.skip_parens()
        elif word == STRING:
            self.string()
        elif word == "{":
            self.skip_to(("}",))
            self.next()
        elif word == "CASE":
            self._skip_case()
        elif self.peek(1) == STRING and word in _BEFORE_STRINGS:
            self.next()
            self.string()
        elif word[:1] == "_" and _IS_LITERAL.match(self.peek(1)):
            self.next()
            self._skip_operand()
        else:
            self._skip_name()

    def _skip_name(self) -> None:
        """Skip a number, a name or a call."""
        if self.peek() in ("NEXT", "PREVIOUS") and self.peek(1) == "VALUE":
            self._index += 3  # NEXT VALUE FOR sequence
        self.next()
        while self.accept("."):
            self.next()
        self.skip_parens()

    def _skip_case(self) -> None:
        depth = 0
        while not self.at_end():
            word = self.next()
            depth += (word == "CASE") - (word == "END")
            if not depth:
                return

    # Table options

    def options(self) -> tuple[Options, bool]:
        """Parse table options to their end, and return whether a query follows them."""
        said = _Said(self.context.mariadb)
        while not self.at_end() and self.peek() != ")":
            if self._query_stands_here():
                return said.options(), True
            word = self.next()
            if word == "(":
                self._index -= 1
                self.skip_parens()
            elif word == "PARTITION":
                return said.options(), self._skip_partitions()
            else:
                self._option(word, said)
        return said.options(), False

    def _skip_partitions(self) -> bool:
        """Skip partitions to the end, or to a query; returns whether one follows."""
        while not self.at_end():
            if self._query_stands_here():
                return True
            if self.peek() == "(":
                self.skip_parens()
            else:
                self.next()
        return False

    def _option(self, word: str, said: _Said) -> None:
        if word in _CHARSETS:
            charset = self.charset_option(word)
            said.charset = said.charset if charset is None else charset
        elif word == "COLLATE":
            self.accept("=")
            said.collation = self.charset_name()
        elif word in ("ENGINE", "TYPE"):
            self.accept("=")
            said.engine = self.charset_name().lower()
        elif word == "SEQUENCE":
            self.accept("=")
            said.is_sequence = self.next() == "1"
        elif word == "WITH":
            self.expect("SYSTEM")
            self.expect("VERSIONING")
            said.is_versioned = True
        elif word in _SECOND_WORDS:
            self.expect(_SECOND_WORDS[word])
            if word != "START":
                self._skip_option_value()
        elif word in _OPTIONS or self.peek() == "=":
            self._skip_option_value()
        elif word not in _ALONE:
            self.raise_error(f"unknown option {word[:40]!r}")

    def _skip_option_value(self) -> None:
        self.accept("=")
        if self.peek() != "(":
            self.next()

    def _query_stands_here(self) -> bool:
        ahead = 0
        while self.peek(ahead) == "(":
            ahead += 1
        word = self.peek(ahead)
        return word in _QUERIES and self.peek(ahead + 1) != "SYSTEM"

    def charset_option(self, word: str) -> str | None:
        """Parse the text after CHARACTER, CHAR or CHARSET; None if it is no option."""
        if word != "CHARSET" and not self.accept("SET"):
            return None
        self.accept("=")
        return charset_named(self.charset_name())

    _ATTRIBUTES: ClassVar[
        dict[str, Callable[[DefinitionReader, _Attributes], None]]
    ] = {
        "NOT": _attribute_not,
        "NULL": _attribute_null,
        "DEFAULT": _attribute_default,
        "ON": _attribute_on,
        "AUTO_INCREMENT": _attribute_auto_increment,
        "SERIAL": _attribute_serial,
        "UNIQUE": _attribute_unique,
        "PRIMARY": _attribute_primary,
        "KEY": _attribute_key,
        "COLLATE": _attribute_collate,
        "GENERATED": _attribute_generated,
        "AS": _attribute_as,
        "INVISIBLE": _attribute_invisible,
        "REFERENCES": _attribute_references,
        "CONSTRAINT": _attribute_constraint,
        "CHECK": _attribute_check,
        "WITH": _attribute_with,
        "WITHOUT": _attribute_without,
        "COMPRESSED": _attribute_compressed,
        "MASKING": _attribute_policy,
        **dict.fromkeys(
            (
                *("COMMENT", "COLUMN_FORMAT", "STORAGE", "SRID", "REF_SYSTEM_ID"),
                *("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "EXTERNAL_FORMAT"),
            ),
            _attribute_of_one_word,
        ),
    }
