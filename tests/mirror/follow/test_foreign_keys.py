"""Foreign keys that change rows without an event, and their warnings."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fix_source_access import access_of

from canal_server.mirror.follow.foreign_keys import RETRY_MAX_S, KeyWatch, hidden_keys
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.verify.verify import with_warnings
from canal_server.mirror.verify.verify_report import EQUAL, TableReport
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.source_settings import Address
from canal_server.runtime.lifecycle import Deadline, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.mirror.settings.mirror_settings import MirrorSettings

PATIENCE_S = 60.0
TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: /lake}
tables: [{match: '%s\\..*', exclude: '.*\\.hidden'}]
"""
CHILD = (
    "CREATE TABLE {} (id INT PRIMARY KEY, p INT, CONSTRAINT {} FOREIGN KEY (p) "
    "REFERENCES p (id) ON DELETE CASCADE ON UPDATE SET NULL)"
)
SEE = "see docs/howto/mirror-foreign-keys.md"


class Looking:
    """What looks for keys, its clock, and how often it was answered."""

    def __init__(self, settings: MirrorSettings) -> None:
        self.answers = 0
        self.now_s = 0.0
        self.stop = Stop()
        self.watch = KeyWatch(settings, self.stop, self._on_keys, lambda: self.now_s)

    def _on_keys(self, _before: object, _now: object) -> None:
        self.answers += 1

    def look(self, statements: int) -> list[str]:
        """Have it look, and return the tables that it warns of."""
        expected = self.answers + 1
        self.poll_until(lambda: self.answers == expected, statements)
        return self.tables()

    def poll_until(self, is_so: Callable[[], bool], statements: int) -> None:
        """Poll until something is so."""
        deadline = Deadline(PATIENCE_S)
        while not is_so():
            assert not deadline.passed()
            self.watch.poll(statements)
            threading.Event().wait(0.01)

    def tables(self) -> list[str]:
        """Return the tables of the warnings."""
        return [each.partition(":")[0] for each in self.watch.warnings]

    def close(self) -> None:
        """End."""
        self.stop.request()
        self.watch.close()


@pytest.fixture
def watch(mariadb_server, database) -> Iterator[Looking]:
    """Give what looks for the keys of a schema."""
    mariadb_server.execute(f"USE {database}", "CREATE TABLE p (id INT PRIMARY KEY)")
    settings = read(TEXT % database, "m.yml", {})
    source = replace(settings.source, access=access_of(mariadb_server))
    looking = Looking(replace(settings, source=source))
    yield looking
    looking.close()


def test_warnings_follow_statements(watch, mariadb_server, database, caplog) -> None:
    """Each key is logged once, and listed as long as it exists."""
    caplog.set_level(logging.INFO)
    mariadb_server.execute(
        f"USE {database}", CHILD.format("hidden", "fk"), CHILD.format("a", "fk_a")
    )
    assert watch.look(1) == [f"{database}.a"]
    (warning,) = watch.watch.warnings
    assert warning == (
        f"{database}.a: foreign key fk_a (p) references {database}.p (id) ON "
        "DELETE CASCADE ON UPDATE SET NULL: the rows that it changes are not in the "
        "binlog, so the copy keeps their old values (set foreign_keys: reread "
        f"in its rule to read them again); {SEE}"
    )
    mariadb_server.execute(f"USE {database}", CHILD.format("b", "fk_b"))
    watch.watch.poll(1)  # without a statement it asks nothing
    assert watch.look(2) == [f"{database}.a", f"{database}.b"]
    mariadb_server.execute(f"ALTER TABLE {database}.a DROP FOREIGN KEY fk_a")
    assert watch.look(3) == [f"{database}.b"]
    found = [each.getMessage().partition(" (")[0] for each in caplog.records]
    assert found == [f"{database}.{key}: foreign key fk_{key}" for key in "aba"]
    assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING", "INFO"]


def test_rows_above_that_are_not_read_again(mariadb_server, database) -> None:
    """A key below a table that keeps stale rows is warned of, though it is reread."""
    mariadb_server.execute(
        f"USE {database}",
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE b (id INT PRIMARY KEY, a INT, n INT, CONSTRAINT ab FOREIGN KEY"
        " (a) REFERENCES a (id) ON DELETE CASCADE, CONSTRAINT an FOREIGN KEY (n)"
        " REFERENCES a (id) ON UPDATE SET NULL)",
        "CREATE TABLE c (id INT PRIMARY KEY, b INT, CONSTRAINT bc FOREIGN KEY (b)"
        " REFERENCES b (id) ON DELETE SET NULL)",
        "CREATE TABLE d (id INT PRIMARY KEY, c INT, CONSTRAINT cd FOREIGN KEY (c)"
        " REFERENCES c (id) ON DELETE CASCADE)",
        "CREATE TABLE e (id INT PRIMARY KEY, b INT, CONSTRAINT be FOREIGN KEY (b)"
        " REFERENCES b (id) ON UPDATE CASCADE)",
    )
    rules = (
        f"tables: [{{match: '{database}\\.b'}},"
        f" {{match: '{database}\\..*', foreign_keys: reread}}]\n"
    )
    settings = read(TEXT.partition("tables:")[0] + rules, "m.yml", {})
    with ControlConnection(access_of(mariadb_server)) as connection:
        found = {each.key.name: each for each in hidden_keys(connection, settings)}
    assert {name for name, each in found.items() if each.why_not} == {"ab", "an"}
    # Those that a delete in a comes to by way of b: of e nothing is deleted, and what
    # c refers to is not what d does.
    assert {name for name, each in found.items() if each.warning} == {"ab", "an", "bc"}
    assert found["bc"].warning == (
        f"{database}.c: foreign key bc (b) references {database}.b (id) ON DELETE SET "
        f"NULL: rows of {database}.b that foreign key ab changes are not in the "
        f"binlog and are not read again, so the changes of this key are missed; {SEE}"
    )


def test_a_source_that_does_not_answer(caplog) -> None:
    """The failure is logged and retried; earlier warnings stay."""
    settings = read(TEXT % "d", "m.yml", {})
    nowhere = replace(settings.source.access, address=Address("127.0.0.1", 1))
    source = replace(settings.source, access=nowhere)
    with closing(Looking(replace(settings, source=source))) as looking:
        looking.watch.warnings = ("t: a warning",)
        for count in (1, 2):
            looking.poll_until(
                lambda: caplog.text.count("cannot list the foreign keys") == count,  # noqa: B023
                1,
            )
            assert looking.tables() == ["t"]
            looking.watch.poll(1)  # its pause is not over
            looking.now_s += RETRY_MAX_S
    assert looking.answers == 0


def test_a_verify_that_cannot_list_them() -> None:
    """A report gives the reason if the warnings are unknown."""
    settings = read(TEXT % "d", "m.yml", {})
    nowhere = replace(settings.source.access, address=Address("127.0.0.1", 1))
    settings = replace(settings, source=replace(settings.source, access=nowhere))
    report = TableReport(table="d.c", target="d/c", outcome=EQUAL)
    (found,) = with_warnings(settings, [report])
    (warning,) = found.warnings
    assert "cannot list the foreign keys of the source: cannot connect" in warning


def test_keys_of_mysql(mysql_server, database) -> None:
    """MySQL 9.7 logs what foreign keys do, so there is no warning."""
    mysql_server.execute(
        f"USE {database}", "CREATE TABLE p (id INT PRIMARY KEY)", CHILD.format("a", "x")
    )
    with ControlConnection(access_of(mysql_server)) as connection:
        assert hidden_keys(connection, read(TEXT % database, "m.yml", {})) == []


NATIVE = ("--innodb-native-foreign-keys=ON",)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("flavour", "options"), [("mariadb", ()), ("mysql", NATIVE)])
def test_who_is_reported(flavour, options, own_server, make_mirror) -> None:
    """Dry run, log, status and verify name a key as long as it exists."""
    source = own_server(flavour, options)
    source.execute(
        "CREATE DATABASE shop", "USE shop", "CREATE TABLE p (id INT PRIMARY KEY)",
        CHILD.format("c", "fk_c"), "INSERT INTO p VALUES (1), (2)",
        "INSERT INTO c VALUES (1, 1), (2, 2)",
    )  # fmt: skip
    mirror = make_mirror(source, "shop")
    mirror.write_conf()
    named = "shop.c: foreign key fk_c (p) references shop.p (id) ON DELETE CASCADE"
    tried = mirror.command("--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert f"\nwarning: {named}" in tried.stdout
    mirror.start(wait=False)
    mirror.agree(p=("id",), c=("id",))
    assert any(f"WARNING {named}" in " ".join(x.split()) or named in x
               for x in mirror.process.log if "WARN" in x)  # fmt: skip

    def warnings() -> list[str]:
        status = json.loads(mirror.command("status", "--json").stdout)["status"]
        return [each.partition(" (")[0] for each in (status or {})["warnings"]]

    mirror.wait_for(lambda: warnings() == ["shop.c: foreign key fk_c"], "a warning")
    assert f"warning: {named}" in mirror.command("status").stdout
    source.execute("USE shop", "DELETE FROM p WHERE id = 1")
    mirror.agree(p=("id",))
    done = mirror.command("verify", "--json")
    found = {each["table"]: each for each in json.loads(done.stdout)["tables"]}
    assert (done.returncode, found["shop.c"]["outcome"]) == (1, "different")
    assert named in found["shop.c"]["warnings"][0]
    assert found["shop.p"]["warnings"] == []
    source.execute("USE shop", "ALTER TABLE c DROP FOREIGN KEY fk_c")
    mirror.wait_for(lambda: warnings() == [], "the end of a warning")
    mirror.stop()
