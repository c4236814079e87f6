"""Random DDL on tables that exist, so that most of it is accepted.

`record_ddl.py FLAVOUR OUT random:7 …` records it; the number is the seed. Leaves out
names, types and column definitions (`random_ddl_words`).
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

from random_ddl_words import SPACE, Words

if TYPE_CHECKING:
    from ddl_recorder import RecordingServer

SCHEMAS: Final = ("test", "db2", "Db3", "d-4")
TABLES_MAX: Final = 6
MODES: Final = (
    "", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "REAL_AS_FLOAT", "ANSI", "IGNORE_SPACE",
    "PIPES_AS_CONCAT,ANSI_QUOTES", "STRICT_TRANS_TABLES", "TRADITIONAL",
    "NO_ENGINE_SUBSTITUTION", "NO_ZERO_DATE,NO_ZERO_IN_DATE", "ORACLE", "ORACLE",
    "PAD_CHAR_TO_FULL_LENGTH",
)  # fmt: skip
SETTINGS: Final = (
    "SET NAMES utf8mb4", "SET NAMES latin1", "SET NAMES utf8mb3", "SET NAMES cp1251",
    "SET NAMES gbk", "SET explicit_defaults_for_timestamp = 0",
    "SET explicit_defaults_for_timestamp = 1", "SET character_set_server = latin1",
    "SET character_set_server = utf8mb4", "SET collation_connection = utf8mb4_bin",
    "SET collation_connection = latin1_bin", "SET character_set_server = utf32",
    "SET default_collation_for_utf8mb4 = utf8mb4_general_ci",
    "SET innodb_strict_mode = 0",
    "SET sql_generate_invisible_primary_key = 1", "SET collation_server = utf8mb3_bin",
    "SET sql_generate_invisible_primary_key = 0", "SET default_storage_engine = MyISAM",
    "SET default_storage_engine = InnoDB", "SET system_versioning_alter_history = KEEP",
    "SET show_gipk_in_create_table_and_information_schema = 1",
    "SET character_set_collations = 'utf8mb4=utf8mb4_bin'",
)  # fmt: skip
# Modes in which the same text means something else.
_OTHER_TEXT: Final = re.compile("ANSI|ORACLE|REAL|BACKSLASH|PIPES|SPACE|TRADITIONAL")
_RENAME: Final = re.compile(r"RENAME (?!COLUMN|INDEX|KEY)")


class RandomScript:
    """Runs random statements on a server until it ends the stream."""

    def __init__(self, server: RecordingServer, seed: int) -> None:
        self._server = server
        self._rng = random.Random(f"{seed}")
        self._words = Words(self._rng, mariadb=server.mariadb)
        self._schema = "test"
        self._plain_mode = True

    def run(self) -> None:
        """Run statements. Raises what the server raises to end the stream."""
        for schema in SCHEMAS[1:]:
            charset, collation = self._words.charset()
            self._server.run(
                f"CREATE DATABASE `{schema}` CHARSET {charset} COLLATE {collation}"
            )
        while True:
            self._step()

    def _step(self) -> None:
        makers = (
            (self._create, 18), (self._alter, 60), (self._rename, 4), (self._drop, 4),
            (self._index, 3), (self._database, 2), (self._setting, 5), (self._like, 2),
            (self._select, 2), (self._other, 3), (self._use, 2), (self._mode, 4),
        )  # fmt: skip
        chosen = self._rng.choices([m for m, _ in makers], [w for _, w in makers])
        chosen[0]()

    def _send(self, statement: str) -> bool:
        """Run a statement with other white space; returns whether it was accepted."""
        before = len(self._server.lines)
        self._server.run_text(self._noisy(statement).replace(SPACE, " "))
        return len(self._server.lines) > before

    def _noisy(self, statement: str) -> str:
        if self._words.chance(60):
            return statement
        spaces = ("\n", "\t", "  ", " /* c, ( */ ", " # y'\n", " -- x`\n", " /**/ ")
        return "".join(
            self._rng.choice(spaces) if char == " " and self._words.chance(12) else char
            for char in statement
        )

    # Statements:

    def _create(self) -> None:
        if len(self._server.tables()) >= TABLES_MAX:
            self._drop()
        for _ in range(3):
            if self._send(self._create_text(self._new_table())):
                return

    def _create_text(self, table: str) -> str:
        words, rng = self._words, self._rng
        names = list(
            dict.fromkeys(words.new_name() for _ in range(rng.randrange(1, 9)))
        )
        items = [words.column(name, names) for name in names]
        keys = [self._key(names) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))]
        if words.chance(15):  # keys may stand between the columns
            items.extend(keys)
            rng.shuffle(items)
        else:
            items += keys
        options = self._options()
        if self._server.mariadb and words.chance(8):
            items += self._row_times()
            options += rng.choice((" WITH SYSTEM VERSIONING", ""))
        if self._server.mariadb and words.chance(8):
            items += self._period(names)
        head = "CREATE TABLE "
        if self._server.mariadb and words.chance(10):
            head = "CREATE OR REPLACE TABLE "
        elif words.chance(10):
            head = "CREATE TABLE IF NOT EXISTS "
        separator = rng.choice((", ", ",", "\n, ", ",\n  "))
        return (
            f"{head}{table} ({separator.join(items)}){options}{self._partitions(names)}"
        )

    def _row_times(self) -> list[str]:
        """Write the columns that MariaDB keeps the times of a row in."""
        always = self._rng.choice((" GENERATED ALWAYS", ""))
        hidden = self._words.maybe(30, "INVISIBLE")
        return [
            f"`rs` TIMESTAMP(6){always} AS ROW START{hidden}",
            f"`re` TIMESTAMP(6){always} AS ROW END{hidden}",
            "PERIOD FOR SYSTEM_TIME (`rs`, `re`)",
        ]

    def _period(self, names: list[str]) -> list[str]:
        """Write a period of what rows are about, and keys with it."""
        kind = self._rng.choice(("DATE", "DATETIME(3)", "DATE NULL"))
        first = self._words.quoted(self._rng.choice(names))
        key = self._rng.choice(
            ("", f"UNIQUE ({first}, `app` WITHOUT OVERLAPS)",
             f"PRIMARY KEY ({first}, `app` WITHOUT OVERLAPS)", "KEY (`ps`)")
        )  # fmt: skip
        items = [f"`ps` {kind}", f"`pe` {kind}", "PERIOD FOR `app` (`ps`, `pe`)"]
        return [*items, key] if key else items

    def _options(self) -> str:
        words, rng = self._words, self._rng
        charset, collation = words.charset()
        options = (
            f"DEFAULT CHARSET={charset}", f"CHARACTER SET {charset}",
            f"CHARSET {charset}", "COLLATE utf8mb4_general_ci",
            f"COLLATE={collation}", f"DEFAULT COLLATE {collation}", "ENGINE=InnoDB",
            "ENGINE=MyISAM", "ENGINE MEMORY", f"COMMENT={words.string()}",
            "AUTO_INCREMENT=7", "ROW_FORMAT=DYNAMIC", "CHECKSUM=1", "MAX_ROWS=10",
            f"DEFAULT CHARACTER SET = {charset} COLLATE = {collation}", "PACK_KEYS=0",
            "STATS_PERSISTENT=DEFAULT", "KEY_BLOCK_SIZE=0", "CHARSET=DEFAULT",
            "WITH SYSTEM VERSIONING", "ENGINE_ATTRIBUTE='{}'",
        )  # fmt: skip
        chosen = rng.sample(options, rng.choice((0, 0, 1, 1, 2, 3)))
        return "".join(f"{rng.choice((' ', ' ', ', '))}{option}" for option in chosen)

    def _partitions(self, names: list[str]) -> str:
        if not self._words.chance(6):
            return ""
        name = self._words.quoted(self._rng.choice(names))
        return " " + self._rng.choice(
            (f"PARTITION BY HASH ({name}) PARTITIONS 2", f"PARTITION BY KEY ({name})",
             "PARTITION BY KEY () PARTITIONS 3",
             f"PARTITION BY RANGE ({name}) (PARTITION p0 VALUES LESS THAN (10))",
             f"PARTITION BY LINEAR KEY ALGORITHM=2 ({name})",
             f"PARTITION BY LIST COLUMNS ({name}) (PARTITION p0 VALUES IN (1, 2))")
        )  # fmt: skip

    def _key(self, names: list[str]) -> str:
        words, rng = self._words, self._rng
        chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 3))))
        parts = [
            words.quoted(name) + rng.choice(("", "", "", "(3)", " DESC", " ASC"))
            for name in chosen
        ]
        inside = f"({', '.join(parts)})"
        name = words.maybe(50, words.quoted(words.new_name()))
        using = words.maybe(20, rng.choice(("USING BTREE", "USING HASH")))
        tail = rng.choice(("", "", "", " COMMENT 'k'", " KEY_BLOCK_SIZE=1024",
                           " USING BTREE", " INVISIBLE", " VISIBLE"))  # fmt: skip
        plain = words.quoted(chosen[0])
        kinds = (
            f"PRIMARY KEY{using} {inside}{tail}", f"PRIMARY KEY {inside}",
            f"CONSTRAINT{name} PRIMARY KEY {inside}", f"PRIMARY KEY{name} {inside}",
            f"UNIQUE{name} {inside}{tail}", f"UNIQUE KEY{name}{using} {inside}",
            f"CONSTRAINT{name} UNIQUE INDEX {inside}", f"KEY{name} {inside}{tail}",
            f"INDEX{name}{using} {inside}", f"FULLTEXT KEY{name} ({plain})",
            f"SPATIAL INDEX{name} ({plain})", f"KEY{name} ((({plain})))",
            f"CHECK ({plain} <> ')')", f"CONSTRAINT{name} CHECK ({plain} is null)",
            f"FOREIGN KEY{name} ({plain}) REFERENCES t1 (a) ON DELETE SET NULL",
            f"UNIQUE KEY{name} ((concat({plain}, '),')))",
        )  # fmt: skip
        return rng.choice(kinds)

    def _alter(self) -> None:
        found = self._some_table()
        if found is None:
            self._create()
            return
        schema, table, names = found
        items = [self._item(names) for _ in range(self._rng.choice((1, 1, 2, 3, 4, 6)))]
        if self._server.mariadb and not (table.isascii() and table.isidentifier()):
            # It would leave the old table behind (10.11), which the text does not show.
            items = [item for item in items if not _RENAME.match(item)]
        head = "ALTER TABLE "
        if self._server.mariadb:
            # The event has the mode that is set, the text is read in the one before.
            mode = "sql_mode='', " if self._plain_mode else ""
            head = self._rng.choices(
                (head, "ALTER ONLINE TABLE ", "ALTER IGNORE TABLE ",
                 "ALTER TABLE IF EXISTS ",
                 f"SET STATEMENT lock_wait_timeout=2 FOR {head}",
                 f"SET STATEMENT {mode}max_statement_time=9 FOR {head}"),
                (80, 2, 4, 4, 3, 3),
            )[0]  # fmt: skip
        while items:
            if self._send(f"{head}{self._full(schema, table)} {', '.join(items)}"):
                return
            items.pop(self._rng.randrange(len(items)))

    def _where(self, names: list[str]) -> str:
        chosen = self._rng.randrange(10)
        if chosen < 5:
            return ""
        if chosen < 7:
            return self._rng.choice((" FIRST", " first"))
        return f" AFTER {self._words.quoted(self._rng.choice(names))}"

    def _item(self, names: list[str]) -> str:
        """Write one clause of ALTER TABLE for a table with these columns."""
        words, rng = self._words, self._rng
        makers = (
            (self._item_add, 28), (self._item_modify, 20), (self._item_change, 14),
            (self._item_drop, 12), (self._item_column, 8), (self._item_key, 12),
            (self._item_table, 10),
        )  # fmt: skip
        chosen = rng.choices([m for m, _ in makers], [w for _, w in makers])[0]
        text = chosen(names)
        return text if words.chance(90) else text.replace("COLUMN ", "column ")

    def _item_add(self, names: list[str]) -> str:
        words, rng = self._words, self._rng
        column = words.maybe(50, "COLUMN")
        if words.chance(20):
            new = dict.fromkeys(words.new_name() for _ in range(rng.randrange(1, 4)))
            parts = [words.column(name, names) for name in new]
            if words.chance(20):
                parts.append(self._key(names))
            return f"ADD{column} ({', '.join(parts)})"
        exists = words.maybe(15 if self._server.mariadb else 0, "IF NOT EXISTS")
        new_name = (
            rng.choice(names) if exists and words.chance(40) else words.new_name()
        )
        made = words.column(new_name, names)
        position = self._where([*names, new_name] if words.chance(3) else names)
        return f"ADD{column}{exists} {made}{position}"

    def _item_modify(self, names: list[str]) -> str:
        words = self._words
        exists = words.maybe(8 if self._server.mariadb else 0, "IF EXISTS")
        made = words.column(self._rng.choice(names), names)
        return f"MODIFY{words.maybe(40, 'COLUMN')}{exists} {made}{self._where(names)}"

    def _item_change(self, names: list[str]) -> str:
        words, rng = self._words, self._rng
        old = rng.choice(names)
        new = rng.choice(
            (old, old.upper(), old.title(), words.new_name(), rng.choice(names))
        )
        if words.chance(30):
            return f"RENAME COLUMN {words.quoted(old)} TO {words.quoted(new)}"
        exists = words.maybe(8 if self._server.mariadb else 0, "IF EXISTS")
        made = words.column(new, names)
        head = f"CHANGE{words.maybe(40, 'COLUMN')}{exists} {words.quoted(old)}"
        return f"{head} {made}{self._where(names)}"

    def _item_drop(self, names: list[str]) -> str:
        words = self._words
        exists = words.maybe(15 if self._server.mariadb else 0, "IF EXISTS")
        name = self._rng.choice(names)
        if exists and words.chance(40):
            name = words.new_name()
        tail = self._rng.choice(("", "", "", " CASCADE", " RESTRICT"))
        return f"DROP{words.maybe(50, 'COLUMN')}{exists} {words.quoted(name)}{tail}"

    def _item_column(self, names: list[str]) -> str:
        words = self._words
        name = words.quoted(self._rng.choice(names))
        column = words.maybe(50, "COLUMN")
        return self._rng.choice(
            (f"ALTER{column} {name} SET DEFAULT 1",
             f"ALTER{column} {name} DROP DEFAULT",
             f"ALTER{column} {name} SET DEFAULT ('a,b' )",
             f"ALTER{column} {name} SET DEFAULT NULL",
             f"ALTER{column} {name} SET INVISIBLE",
             f"ALTER{column} {name} SET VISIBLE")
        )  # fmt: skip

    def _item_key(self, names: list[str]) -> str:
        words, rng = self._words, self._rng
        if words.chance(55):
            return f"ADD {self._key(names)}"
        name = words.quoted(rng.choice((*names, words.new_name())))
        return rng.choice(
            ("DROP PRIMARY KEY", "DROP PRIMARY KEY", "DROP INDEX `PRIMARY`",
             "DROP KEY `primary`", f"DROP INDEX {name}", f"DROP KEY {name}",
             "DROP CONSTRAINT `PRIMARY`", f"DROP CONSTRAINT {name}",
             f"RENAME INDEX {name} TO {words.quoted(words.new_name())}",
             f"RENAME KEY {name} TO {words.quoted(words.new_name())}",
             f"ALTER INDEX {name} INVISIBLE", "DISABLE KEYS", "ENABLE KEYS",
             "ADD PRIMARY KEY IF NOT EXISTS (a)",
             f"DROP PRIMARY KEY, ADD PRIMARY KEY ({words.quoted(rng.choice(names))})")
        )  # fmt: skip

    def _item_times(self, names: list[str]) -> str:
        """Write a clause about MariaDB's times of rows."""
        rng = self._rng
        first, last = rng.choice(names), rng.choice(names)
        texts = (
            "DROP PERIOD FOR `app`", "ADD PERIOD FOR `app` (`ps`, `pe`)",
            "DROP SYSTEM VERSIONING", "ADD SYSTEM VERSIONING",
            "DROP PERIOD FOR SYSTEM_TIME", "ADD PERIOD FOR SYSTEM_TIME (`rs`, `re`)",
            "DROP `rs`, DROP `re`, DROP SYSTEM VERSIONING",
            "ADD " + ", ADD ".join([*self._row_times(), "SYSTEM VERSIONING"]),
            (f"ADD PERIOD FOR `app` ({self._words.quoted(first)},"
            f" {self._words.quoted(last)})"),
            ("ADD `ps` DATE, ADD `pe` DATE,"
            " ADD PERIOD IF NOT EXISTS FOR `app` (`ps`, `pe`)"),
            "CHANGE `ps` `ps` DATE NULL", "CHANGE `re` `re2` TIMESTAMP(6) AS ROW END",
            "MODIFY `ps` DATETIME", "DROP PERIOD IF EXISTS FOR `app`",
            "DROP PRIMARY KEY, ADD PRIMARY KEY (`rs`)", "RENAME COLUMN `re` TO `rz`",
        )  # fmt: skip
        return rng.choice(texts)

    def _item_table(self, names: list[str]) -> str:
        words, rng = self._words, self._rng
        if self._server.mariadb and words.chance(25):
            return self._item_times(names)
        charset, collation = words.charset()
        schema = words.maybe(20, f"`{rng.choice(SCHEMAS)}`.").strip()
        new = f"{schema}{words.quoted(words.new_name())}"
        return rng.choice(
            (f"CONVERT TO CHARACTER SET {charset}", "FORCE", "ORDER BY 1",
             f"CONVERT TO CHARSET {charset} COLLATE {collation}",
             f"DEFAULT CHARACTER SET {charset}", f"CHARSET={charset}",
             f"COLLATE {collation}", "CONVERT TO CHARACTER SET DEFAULT",
             f"RENAME TO {new}", f"RENAME {new}", f"RENAME AS {new}", f"RENAME = {new}",
             "ENGINE=InnoDB", "ENGINE=MyISAM", "ALGORITHM=COPY", "ALGORITHM=DEFAULT",
             "LOCK=SHARED", "COMMENT='ADD COLUMN x int, DROP b'", "AUTO_INCREMENT=100",
             "ADD SYSTEM VERSIONING", "DROP SYSTEM VERSIONING", "ROW_FORMAT=COMPACT",
             f"ORDER BY {words.quoted(rng.choice(names))}", "REMOVE PARTITIONING",
             f"PARTITION BY KEY ({words.quoted(rng.choice(names))}) PARTITIONS 2")
        )  # fmt: skip

    def _rename(self) -> None:
        words, rng = self._words, self._rng
        found = self._some_table()
        other = self._some_table()
        if found is None or other is None:
            return
        first, second = self._full(*found[:2]), self._full(*other[:2])
        new = f"`{rng.choice(SCHEMAS)}`.{words.quoted(words.new_name())}"
        word = rng.choice(("RENAME TABLE", "RENAME TABLES"))
        if words.chance(50):
            self._send(f"{word} {first} TO {new}")
        else:
            swap = f"{first} TO {new}, {second} TO {first}, {new} TO {second}"
            self._send(f"{word} {swap}")

    def _drop(self) -> None:
        found = self._some_table()
        if found is None:
            return
        tail = self._rng.choice(("", "", " CASCADE", " RESTRICT"))
        if self._words.chance(30):
            other = self._some_table()
            assert other is not None
            names = f"{self._full(*found[:2])}, {self._full(*other[:2])}, nowhere"
            self._send(f"DROP TABLE IF EXISTS {names}{tail}")
        else:
            self._send(f"DROP TABLE {self._full(*found[:2])}{tail}")

    def _index(self) -> None:
        words, rng = self._words, self._rng
        found = self._some_table()
        if found is None:
            return
        schema, table, names = found
        target = self._full(schema, table)
        if words.chance(30):
            name = rng.choice(("`PRIMARY`", words.quoted(rng.choice(names))))
            self._send(f"DROP INDEX {name} ON {target}")
        else:
            kind = rng.choice(("", "UNIQUE ", "FULLTEXT "))
            inside = words.quoted(rng.choice(names)) + rng.choice(("", "(2)", " DESC"))
            name = words.quoted(words.new_name())
            self._send(f"CREATE {kind}INDEX {name} ON {target} ({inside})")

    def _database(self) -> None:
        charset, collation = self._words.charset()
        schema = self._rng.choice(SCHEMAS)
        word = self._rng.choice(("DATABASE", "SCHEMA"))
        self._send(self._rng.choice(
            (f"ALTER {word} `{schema}` CHARACTER SET {charset}",
             f"ALTER {word} `{schema}` DEFAULT COLLATE = {collation}",
             f"ALTER {word} CHARACTER SET {charset} COLLATE {collation}",
             f"CREATE {word} IF NOT EXISTS `{schema}` CHARSET {charset}",
             f"CREATE OR REPLACE {word} `{SCHEMAS[1]}` COLLATE {collation}",
             f"CREATE {word} `{schema}`")
        ))  # fmt: skip

    def _setting(self) -> None:
        self._server.run_text(self._rng.choice(SETTINGS))

    def _mode(self) -> None:
        mode = self._rng.choice(MODES)
        if mode == "ORACLE" and not self._server.mariadb:
            mode = ""
        self._server.run_text(f"SET sql_mode = '{mode}'")
        self._plain_mode = not _OTHER_TEXT.search(mode)
        self._words.ansi = "ANSI" in mode or mode == "ORACLE"
        self._words.oracle = mode == "ORACLE"
        self._words.no_backslash = "NO_BACKSLASH" in mode

    def _use(self) -> None:
        self._schema = self._rng.choice(SCHEMAS)
        self._server.run_text(f"USE `{self._schema}`")

    def _like(self) -> None:
        found = self._some_table()
        if found is not None:
            source = self._full(*found[:2])
            forms = (f"LIKE {source}", f"(LIKE {source})", f"( LIKE {source} )")
            self._send(f"CREATE TABLE {self._new_table()} {self._rng.choice(forms)}")

    def _select(self) -> None:
        found = self._some_table()
        if found is None:
            return
        words, source = self._words, self._full(*found[:2])
        column = words.maybe(40, f"({words.column(words.new_name(), found[2])})")
        body = self._rng.choice(
            (f"SELECT * FROM {source}", "SELECT 1 AS a, 'x' AS b, NOW() AS c",
             f"AS SELECT {words.quoted(found[2][0])} FROM {source}",
             f"SELECT count(*), concat(1, 'a') FROM {source}")
        )  # fmt: skip
        self._send(f"CREATE TABLE {self._new_table()}{column}{self._options()} {body}")

    def _other(self) -> None:
        found = self._some_table()
        if found is None:
            return
        words, table = self._words, self._full(*found[:2])
        name = words.quoted(words.new_name())
        if words.chance(10):  # its life is not in the binlog, so it ends here
            self._send(f"CREATE TEMPORARY TABLE {table} (tmp int)")
            self._send(f"ALTER TABLE {table} ADD COLUMN more int")
            self._send(f"DROP TEMPORARY TABLE IF EXISTS {table}")
            return
        self._send(self._rng.choice(
            (f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {table}",
             f"DROP VIEW IF EXISTS {name}", f"TRUNCATE TABLE {table}",
             f"TRUNCATE {table}", f"ANALYZE TABLE {table}", f"OPTIMIZE TABLE {table}",
             f"CREATE PROCEDURE {name}() BEGIN DROP TABLE {table}; END",
             f"CREATE TRIGGER {name} BEFORE INSERT ON {table} FOR EACH ROW SET @a = 1",
             f"CREATE SEQUENCE {name} START WITH 3", f"DROP SEQUENCE {name}",
             f"ALTER TABLE {table} /* nothing */",
             f"CREATE FUNCTION {name}() RETURNS INT RETURN 1",
             (f"CREATE EVENT {name} ON SCHEDULE EVERY 1 DAY DISABLE"
             f" DO DROP TABLE {table}"),
             f"DROP TABLE IF EXISTS {name} /* generated by nobody */")
        ))  # fmt: skip

    # Names:

    def _some_table(self) -> tuple[str, str, list[str]] | None:
        """Choose a table; returns its schema, its name and those of its columns."""
        tables = self._server.tables()
        if not tables:
            return None
        schema, table = self._rng.choice(sorted(tables))
        return schema, table, [str(column[0]) for column in tables[schema, table]]

    def _new_table(self) -> str:
        name = self._words.quoted(self._words.new_name())
        if self._words.chance(20):
            return f"`{self._rng.choice(SCHEMAS)}`.{name}"
        return name

    def _full(self, schema: str, table: str) -> str:
        words = self._words
        name = words.quoted(table)
        if schema == self._schema and words.chance(80):
            return name
        dot = self._rng.choices((".", " . "), (95, 5))[0]
        return f"`{schema}`{dot}{name}"
