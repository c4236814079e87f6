"""Foreign keys whose changes are in no event, found in the server's metadata."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fix_source_access import access_of

from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.silent_foreign_keys import (
    ForeignKey,
    are_logged,
    hidden_foreign_keys,
    rules_in,
)
from canal_server.mysql.source_settings import Credentials

NATIVE = ("--innodb-native-foreign-keys=ON",)
TABLES = (
    "CREATE TABLE p (id INT PRIMARY KEY, a INT, b INT, UNIQUE (a, b))",
    (
        "CREATE TABLE plain (id INT PRIMARY KEY, p INT, "
        "CONSTRAINT plain FOREIGN KEY (p) REFERENCES p (id))"
    ),
    (
        "CREATE TABLE c (id INT PRIMARY KEY, x INT, `ON DELETE CASCADE` INT, self INT, "
        "CONSTRAINT two FOREIGN KEY (x, `ON DELETE CASCADE`) REFERENCES p (a, b)"
        " ON UPDATE SET NULL,"
        "CONSTRAINT self FOREIGN KEY (self) REFERENCES c (id) ON DELETE CASCADE)"
    ),
)


def keys_of(schema: str) -> list[ForeignKey]:
    """Return the keys expected for TABLES."""
    return [
        ForeignKey("self", (schema, "c"), (schema, "c"), ("self",), ("id",), "CASCADE"),
        ForeignKey(
            "two", (schema, "c"), (schema, "p"), ("x", "ON DELETE CASCADE"), ("a", "b"),
            on_update="SET NULL",
        ),
    ]  # fmt: skip


def found(server, schema: str, user: str = "") -> list[ForeignKey]:
    """Return what an account sees, with the actions that count."""
    access = access_of(server)
    if user:
        access = replace(access, credentials=Credentials(user, "pw"))
    with ControlConnection(access) as connection:
        keys = hidden_foreign_keys(connection, [schema])
    quiet = ("RESTRICT", "NO ACTION")
    return [
        replace(
            key,
            on_delete="RESTRICT" if key.on_delete in quiet else key.on_delete,
            on_update="RESTRICT" if key.on_update in quiet else key.on_update,
        )
        for key in sorted(keys, key=lambda each: each.name)
    ]


def test_of_mariadb(mariadb_server, database: str) -> None:
    """Those that change rows are found, also with SELECT on the child alone."""
    mariadb_server.execute(
        f"USE {database}", *TABLES,
        "CREATE OR REPLACE USER 'fk_reader'@'%' IDENTIFIED BY 'pw'",
        f"GRANT SELECT ON {database}.c TO 'fk_reader'@'%'",
    )  # fmt: skip
    assert found(mariadb_server, database) == keys_of(database)
    assert found(mariadb_server, database, "fk_reader") == keys_of(database)
    mariadb_server.execute("DROP USER 'fk_reader'@'%'")


def test_of_mysql(mysql_server, database: str) -> None:
    """MySQL 9.7 logs their changes, so there are none."""
    mysql_server.execute(f"USE {database}", *TABLES)
    assert found(mysql_server, database) == []


def test_of_mysql_that_leaves_them_to_innodb(own_server) -> None:
    """With innodb_native_foreign_keys they are hidden, as before MySQL 9.6."""
    server = own_server("mysql", NATIVE)
    server.execute("CREATE DATABASE d", "USE d", *TABLES)
    assert found(server, "d") == keys_of("d")
    assert str(keys_of("d")[1]) == (
        "foreign key two (x, ON DELETE CASCADE) references d.p (a, b) ON UPDATE SET "
        "NULL"
    )


@pytest.mark.parametrize("options", [(), NATIVE])
def test_what_the_binlog_has(own_server, options) -> None:
    """The answer for a MySQL is true: a cascade is in its binlog, or is not."""
    server = own_server("mysql", options)
    server.execute(
        "CREATE DATABASE d", "USE d", *TABLES,
        "INSERT INTO p VALUES (1, 1, 1)", "INSERT INTO c VALUES (7, 1, 1, NULL)",
    )  # fmt: skip
    file, offset = server.binlog_position()
    server.execute("USE d", "UPDATE p SET a = 2")
    events = server.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset}")
    updates = sum(event[2].startswith("Update_rows") for event in events)
    with ControlConnection(access_of(server)) as connection:
        assert are_logged(connection) is (updates == 2)
    assert updates == (1 if options else 2)


def test_rules_in_a_text() -> None:
    """Names may contain what looks like a rule, and a quote."""
    text = (
        "CREATE TABLE `c` (\n"
        "  `id` int(11) DEFAULT NULL COMMENT 'CONSTRAINT `x` FOREIGN KEY ON DELETE',\n"
        "  CONSTRAINT `a``b` FOREIGN KEY (`ON DELETE CASCADE`) REFERENCES `p` (`id`)"
        " ON UPDATE SET NULL,\n"
        "  CONSTRAINT `z` FOREIGN KEY (`x`) REFERENCES `o`.`p` (`id`) ON DELETE SET"
        " DEFAULT ON UPDATE NO ACTION\n"
        ") ENGINE=InnoDB"
    )
    assert rules_in(text) == {
        "a`b": ("RESTRICT", "SET NULL"),
        "z": ("SET DEFAULT", "NO ACTION"),
    }
