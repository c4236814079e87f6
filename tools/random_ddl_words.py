"""Random names, literals, types and column definitions, as people and tools write them.

Much of it is refused by one server or the other, or by both: a refused statement is not
in the binlog. Leaves out statements (`random_ddl`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

# Stands for a space that belongs to a name or a literal.
SPACE: Final = "\x02"

_PLAIN: Final = """
    a b c d e f g id k1 n v1 date time timestamp type comment first after status begin
    no value names enum bit text json hidden visible at end data format level owner
    partition_x action offset role user version year day quarter engine tables columns
    Aa B_2 c$d _x x9 ID name start_x checksum history system language body clob raw
    number package period serial bool boolean national char_x geometry point fixed
    algorithm lock force online temporary table_x encrypted compressed virtual stored
    persistent invisible ascii unicode byte local account nowait wait skip locked of
    primary_x unique_x row_start row_end within without rows any some only
    größe имя 表 naïve"""
_RESERVED: Final = """
    select from table key index order group primary column add drop default check
    unique foreign constraint references not null in on"""
PLAIN_NAMES: Final = tuple(_PLAIN.split())
QUOTED_NAMES: Final = (
    *_RESERVED.split(), f"a{SPACE}b", "a.b", "a,b", "a(b)", "it's", 'say"x', "1", "1a",
    "2e3", "--x", "#h", "/*c*/", f"tail{SPACE}x", "a`b", "ünï", "日本", "a;b", "\\",
    "%d", "@v", ":p", "?",
)  # fmt: skip

CHARSETS: Final = (
    ("latin1", ("latin1_swedish_ci", "latin1_bin", "latin1_general_cs")),
    ("utf8mb4", ("utf8mb4_bin", "utf8mb4_unicode_ci", "utf8mb4_general_ci")),
    ("utf8mb3", ("utf8mb3_bin", "utf8mb3_general_ci")),
    ("utf8", ("utf8_bin", "utf8_general_ci")),
    ("ucs2", ("ucs2_bin", "ucs2_general_ci")),
    ("utf16", ("utf16_bin",)),
    ("utf16le", ("utf16le_bin",)),
    ("utf32", ("utf32_bin",)),
    ("ascii", ("ascii_bin", "ascii_general_ci")),
    ("binary", ("binary",)),
    ("cp1251", ("cp1251_bin", "cp1251_general_ci")),
    ("koi8r", ("koi8r_bin",)),
    ("gbk", ("gbk_bin", "gbk_chinese_ci")),
    ("gb18030", ("gb18030_bin",)),
    ("big5", ("big5_bin",)),
    ("sjis", ("sjis_bin",)),
    ("ujis", ("ujis_bin",)),
    ("euckr", ("euckr_bin",)),
    ("latin2", ("latin2_bin", "latin2_czech_cs")),
    ("hebrew", ("hebrew_bin",)),
    ("swe7", ("swe7_bin",)),
)
TEXTS: Final = (
    "", "x", "it''s", "a,b)", "(", ")", ";", '"', "`", f"--{SPACE}no", f"/*{SPACE}no",
    "*/", "#", "\\\\", "\\'", "%", "ü", "é日", f"a{SPACE}b", f"tail{SPACE}", "0", "1.5",
    f"2020-01-01{SPACE}00:00:00", "NULL", "AFTER", f"PRIMARY{SPACE}KEY", "\\n",
)  # fmt: skip
INTEGERS: Final = (
    "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "INT1", "INT2",
    "INT3", "INT4", "INT8", "MIDDLEINT",
)  # fmt: skip
ORACLE_TYPES: Final = (
    "VARCHAR2(10)", "NUMBER", "NUMBER(5)", "NUMBER(10,2)", "RAW(20)", "CLOB", "BLOB",
    "DATE", "VARCHAR2(4000)", "NUMBER(3,0)", "CHAR(3)", "TIMESTAMP",
)  # fmt: skip
GEOMETRIES: Final = (
    "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING",
    "MULTIPOLYGON", "GEOMETRYCOLLECTION",
)  # fmt: skip


class Words:
    """Makes words with one source of chance; `ansi` follows the session's sql_mode."""

    def __init__(self, rng: random.Random, *, mariadb: bool) -> None:
        self.rng = rng
        self.mariadb = mariadb
        self.ansi = False
        self.no_backslash = False
        self.oracle = False

    def chance(self, percent: float) -> bool:
        """Return True in so many of a hundred cases."""
        return self.rng.random() * 100 < percent

    def maybe(self, percent: float, text: str) -> str:
        """Return a text with a space in front, or nothing."""
        return f" {text}" if self.chance(percent) else ""

    def quoted(self, name: str) -> str:
        """Write a name that exists: quoted, or bare when that is possible."""
        name = name.replace(" ", SPACE)
        if name in PLAIN_NAMES and self.chance(60):
            return name if self.chance(80) else name.upper()
        if (self.ansi or self.oracle) and self.chance(50):
            return '"' + name.replace('"', '""') + '"'
        return "`" + name.replace("`", "``") + "`"

    def new_name(self) -> str:
        """Make up a name, as it will be."""
        names = PLAIN_NAMES if self.chance(80) else QUOTED_NAMES
        name = self.rng.choice(names)
        return name + str(self.rng.randrange(9)) if self.chance(30) else name

    def string(self, text: str | None = None) -> str:
        """Write a string literal."""
        text = self.rng.choice(TEXTS) if text is None else text
        if self.no_backslash:
            text = text.replace("\\'", "''")
        if not self.ansi and self.chance(15):
            return '"' + text.replace('"', '""').replace("''", "'") + '"'
        return f"'{text}'"

    def charset(self) -> tuple[str, str]:
        """Return a character set and a collation of it."""
        charset, collations = self.rng.choice(CHARSETS[: self.rng.choice((3, 9, 99))])
        return charset, self.rng.choice(collations)

    def charset_clause(self) -> str:
        """Write what gives a column its character set."""
        charset, collation = self.charset()
        word = self.rng.choice(("CHARACTER SET", "CHARSET", "character set"))
        if self.chance(10):
            charset = f"'{charset}'"
        forms = (
            f" {word} {charset}", f" {word} {charset}", f" COLLATE {collation}",
            f" {word} {charset} COLLATE {collation}", " BINARY", " ASCII", " UNICODE",
            f" {word} {charset} BINARY", f" BINARY {word} {charset}", " ASCII BINARY",
            " BINARY UNICODE", " BYTE", f" COLLATE '{collation}'",
        )  # fmt: skip
        return self.rng.choice(forms) if self.chance(45) else ""

    def kind(self) -> str:
        """Write a type."""
        if self.oracle and self.chance(50):
            return self.rng.choice(ORACLE_TYPES)
        makers = (
            self._integer, self._integer, self._decimal, self._real, self._time,
            self._text, self._text, self._text, self._blob, self._labels, self._other,
        )  # fmt: skip
        return self.rng.choice(makers)()

    def _length(self, *choices: int) -> str:
        return f"({self.rng.choice(choices)})" if self.chance(60) else ""

    def _signs(self) -> str:
        forms = ("", "", "", " UNSIGNED", " unsigned", " ZEROFILL", " SIGNED",
                 " UNSIGNED ZEROFILL", " ZEROFILL UNSIGNED",
                 " SIGNED ZEROFILL")  # fmt: skip
        return self.rng.choice(forms)

    def _integer(self) -> str:
        if self.chance(8):
            return self.rng.choice(("BOOL", "BOOLEAN", "bool"))
        if self.chance(8):
            return "BIT" + self._length(0, 1, 8, 64)
        length = self._length(1, 1, 2, 4, 5, 10, 11, 20, 255, 0)
        return self.rng.choice(INTEGERS) + length + self._signs()

    def _decimal(self) -> str:
        word = self.rng.choice(("DECIMAL", "DEC", "NUMERIC", "FIXED", "numeric"))
        forms = ("", "(5)", "(10,2)", "(65,30)", "(0)", "(0,0)", "(1,1)", "( 12 , 4 )")
        return word + self.rng.choice(forms) + self._signs()

    def _real(self) -> str:
        word = self.rng.choice(
            ("FLOAT", "DOUBLE", "REAL", "DOUBLE PRECISION", "FLOAT4", "FLOAT8")
        )
        forms = ["", "", "(7,3)", "(10,0)", "(53,10)"]
        if word == "FLOAT":
            forms += ["(0)", "(10)", "(24)", "(25)", "(53)"]
        return word + self.rng.choice(forms) + self._signs()

    def _time(self) -> str:
        word = self.rng.choice(("DATE", "TIME", "DATETIME", "TIMESTAMP", "YEAR"))
        if word == "YEAR":
            return word + self._length(4)
        return word + ("" if word == "DATE" else self._length(0, 3, 6))

    def _text(self) -> str:
        length = f"({self.rng.choice((0, 1, 3, 10, 50, 100, 191, 255))})"
        if self.chance(10):
            length = f"({self.rng.choice((256, 1000, 16383, 21844, 32767, 65535))})"
        varying = ("VARCHAR", "CHAR VARYING", "CHARACTER VARYING", "VARCHARACTER")
        national = ("NCHAR", "NATIONAL CHAR", "NATIONAL CHARACTER", "NATIONAL VARCHAR",
                    "NVARCHAR", "NCHAR VARCHAR", "NATIONAL CHAR VARYING",
                    "NCHAR VARYING", "NATIONAL CHARACTER VARYING",
                    "NATIONAL VARCHARACTER")  # fmt: skip
        big = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "LONG", "LONG VARCHAR",
               "LONG CHAR VARYING", "LONG CHARACTER VARYING",
               "LONG VARCHARACTER")  # fmt: skip
        chosen = self.rng.randrange(10)
        if chosen < 4:
            return self.rng.choice(varying) + length + self.charset_clause()
        if chosen < 6:
            length = self.rng.choice(("", "(1)", "(20)", "(255)", "(300)", "(0)"))
            word = self.rng.choice(("CHAR", "CHARACTER"))
            return word + length + self.charset_clause()
        if chosen < 7:
            return self.rng.choice(national) + length + self.maybe(15, "BINARY")
        if chosen < 9:
            return self.rng.choice(big) + self.charset_clause()
        sizes = (0, 1, 63, 64, 85, 127, 255, 256, 16383, 21845, 65535, 65536, 5592405)
        return f"TEXT({self.rng.choice((*sizes, 16777215))})" + self.charset_clause()

    def _blob(self) -> str:
        chosen = self.rng.randrange(4)
        if chosen == 0:
            return "BINARY" + self._length(0, 1, 16, 255, 300)
        if chosen == 1:
            return f"VARBINARY({self.rng.choice((0, 1, 16, 255, 1000, 65535, 70000))})"
        if chosen == 2:
            return f"BLOB({self.rng.choice((0, 1, 255, 256, 65535, 65536, 1 << 24))})"
        return self.rng.choice(
            ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "LONG VARBINARY",
             "LONG BYTE", "CHAR BYTE", "CHAR(7) BYTE", "VARCHAR(9) BYTE", "TEXT BYTE")
        )  # fmt: skip

    def _labels(self) -> str:
        word = self.rng.choice(("ENUM", "SET", "enum"))
        number = self.rng.randrange(10, 99)
        forms = (
            self.string(), self.string(), f"'m{number}'", f"'n{number}'", "x'6162'",
            f"0x63{number}", "b'1000001'", "'ü'", f"'t{number}{SPACE}{SPACE}'", "N'n1'",
            "_utf8mb4'ß'", "_latin1'q'", f"_latin1{SPACE}x'E4'",
        )  # fmt: skip
        weights = (15, 15, 20, 20, 3, 3, 2, 5, 5, 3, 3, 3, 3)
        count = self.rng.choice((1, 2, 3, 3, 10))
        labels = dict.fromkeys(self.rng.choices(forms, weights, k=count))
        separator = self.rng.choice((",", ", ", " , "))
        return f"{word}({separator.join(labels)})" + self.charset_clause()

    def _other(self) -> str:
        if self.mariadb:
            return self.rng.choice(
                ["INET6", "INET4", "UUID", "JSON", "mariadb_schema.date",
                 "oracle_schema.date", "maxdb_schema.timestamp", *GEOMETRIES]
            )  # fmt: skip
        kind = self.rng.choice(["JSON", "VECTOR", "VECTOR(3)", "GEOMCOLLECTION",
                                *GEOMETRIES])  # fmt: skip
        return kind + (self.maybe(20, "SRID 4326") if kind in GEOMETRIES else "")

    def default(self, kind: str) -> str:  # noqa: PLR0911  # one for each kind
        """Write a default that mostly fits the type."""
        upper = kind.upper()
        if self.chance(25):
            return self.rng.choice(("NULL", "(NULL)", "(1+1)", "(uuid())"))
        if upper.startswith(("DATETIME", "TIMESTAMP")):
            digits = upper[upper.find("(") :] if "(" in upper else ""
            now = self.rng.choice(("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP"))
            call = f"{now}{digits or ('()' if now == 'NOW' or self.chance(50) else '')}"
            update = f" ON UPDATE CURRENT_TIMESTAMP{digits}" if self.chance(40) else ""
            return call + update
        if upper.startswith(("DATE", "TIME", "YEAR")):
            return self.rng.choice(
                ("'2001'", "2001", f"DATE{SPACE}'2001-01-01'", "'2001-02-03'", "0")
            )
        if upper.startswith(("ENUM", "SET")):
            inside = kind[kind.find("(") + 1 :].split(",", 1)[0].rstrip(")")
            return inside.strip()
        if upper.startswith("BIT"):
            return self.rng.choice(("b'1'", "0b1", "1", "x'01'"))
        if any(word in upper for word in ("CHAR", "BINARY", "CLOB", "RAW")):
            return self.rng.choice(
                (self.string("x"), "'a' 'b'", "N'n'", "_latin1'l'", "0x41",
                 "b'1000001'", "'1'", "''", "'a,b)'", "'it''s'", "(concat('a', ')'))")
            )  # fmt: skip
        if any(word in upper for word in ("TEXT", "BLOB", "JSON", "LONG", "GEO")):
            return self.rng.choice(("('x')", "(json_array())", "(_utf8mb4'x')", "'x'"))
        return self.rng.choice(("0", "1", "-1", "'1'", "1.5", "1e0", "TRUE", "+1"))

    def attributes(self, kind: str, others: Sequence[str]) -> str:
        """Write what stands after a type, in any order."""
        rng = self.rng
        parts: list[str] = []
        if self.chance(8) and others:
            return self._generated(rng.choice(others))
        if self.chance(40):
            parts.append(rng.choice(("NOT NULL", "NULL", "not null")))
        if self.chance(35):
            parts.append("DEFAULT " + self.default(kind))
        if self.chance(15):
            parts.append(f"COMMENT {self.string()}")
        if self.chance(6):
            parts.append(rng.choice(("UNIQUE", "UNIQUE KEY")))
        if self.chance(4):
            parts.append(rng.choice(("PRIMARY KEY", "KEY", "primary key")))
        if self.chance(5):
            parts.append("AUTO_INCREMENT")
        if self.chance(6):
            parts.append(rng.choice(("INVISIBLE", "VISIBLE", "INVISIBLE")))
        if self.chance(4):
            parts.append(rng.choice((
                "CHECK (1)", "CHECK (length('),(') > 0)", "CONSTRAINT CHECK (1)",
                "COLUMN_FORMAT DYNAMIC", "STORAGE DISK", "REFERENCES t1 (a)",
                "COMPRESSED", "ENGINE_ATTRIBUTE '{}'", "SERIAL DEFAULT VALUE",
                "WITHOUT SYSTEM VERSIONING", "COLLATE utf8mb4_bin",
                "REF_SYSTEM_ID=0", "CONSTRAINT `n` CHECK (2) NOT ENFORCED",
            )))  # fmt: skip
        rng.shuffle(parts)
        parts = [self._conditional(part) for part in parts]
        return "".join(f" {part}" for part in parts)

    def _generated(self, other: str) -> str:
        name = self.quoted(other)
        expression = self.rng.choice(
            (f"{name}", f"concat({name}, ',)')", f"({name} + 1)", "1",
             f"coalesce({name}, 'x')", f"{name} is null", f"md5({name})")
        )  # fmt: skip
        words = self.maybe(50, "GENERATED ALWAYS") + f" AS ({expression})"
        words += self.rng.choice(("", " VIRTUAL", " STORED", " PERSISTENT"))
        return words + self.rng.choice(
            ("", "", " NOT NULL", " UNIQUE", " COMMENT 'g'", " NULL", " INVISIBLE")
        )

    def _conditional(self, text: str) -> str:
        """Put a text into an executable comment, now and then."""
        if not self.chance(3):
            return text
        mark = self.rng.choice(
            ("!", "!50100", "!80000", "!99999", "!100100", "!100500", "M!", "M!100100",
             "M!119999", "!090000", "!080013")
        )  # fmt: skip
        return f"/*{mark} {text} */"

    def column(self, name: str, others: Sequence[str]) -> str:
        """Write the definition of a column."""
        if self.chance(1):
            return f"{self.quoted(name)} SERIAL"
        kind = self.kind()
        return f"{self.quoted(name)} {kind}{self.attributes(kind, others)}"
