"""Rows arrive with the columns that their tables had then, whatever happens between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_history import SCRIPT, Chronicle, Follower, chronicle_of, random_change
from fix_random import longer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from fix_pipeline import Pipeline
    from servers import Server


@pytest.fixture
def chronicle(source_server: Server, database: str) -> Iterator[Chronicle]:
    """Give a chronicle of a fresh schema, on the MySQL, then on the MariaDB."""
    with chronicle_of(source_server, database) as made:
        yield made


@pytest.fixture
def stopped(
    make_pipeline: Callable[..., Pipeline], source_server: Server, database: str
) -> Pipeline:
    """Give a pipeline that begins here and does not run yet."""
    return make_pipeline(source_server, database, {"canal.file.flush.period": 20})


def write_all(chronicle: Chronicle) -> None:
    """Run the whole script, with rows after each statement."""
    for statement, tables in SCRIPT:
        chronicle.run(statement)
        chronicle.write(*tables)


def test_read_far_behind(stopped: Pipeline, chronicle: Chronicle) -> None:
    """A reader that was away during all statements still sees what each row had."""
    stopped.start()
    with stopped.client():
        stopped.wait_for_status(lambda status: status["state"] == "running")
    stopped.kill()
    write_all(chronicle)
    stopped.start()
    follower = Follower(chronicle)
    with stopped.client() as client:
        follower.receive(stopped, client)


def test_killed_around_each_statement(stopped: Pipeline, chronicle: Chronicle) -> None:
    """Killed before and after every statement, nothing that was unacked changes."""
    follower = Follower(chronicle)
    stopped.start()
    for number, (statement, tables) in enumerate(SCRIPT):
        chronicle.run(statement)
        chronicle.write(*tables)
        with stopped.client() as client:
            follower.look(client)
            if number % 3 == 0:
                follower.resume()
                client.rollback()
                follower.receive(stopped, client)
        stopped.kill()
        follower.resume()
        stopped.start()
    with stopped.client() as client:
        follower.receive(stopped, client)


def test_from_an_old_position_again(stopped: Pipeline, chronicle: Chronicle) -> None:
    """Restarted at the old configured position, the same rows have the same columns."""
    stopped.start()
    write_all(chronicle)
    follower = Follower(chronicle)
    with stopped.client() as client:
        follower.receive(stopped, client)
    stopped.kill()
    stopped.meta_file.unlink(missing_ok=True)
    stopped.start()
    again = Follower(chronicle)
    with stopped.client() as client:
        again.receive(stopped, client)


def test_random_changes(
    stopped: Pipeline, chronicle: Chronicle, rng: random.Random
) -> None:
    """Random statements and kills: every row has what its table had."""
    stopped.start()
    chronicle.run("CREATE TABLE first (a INT, b INT, c INT)")
    follower = Follower(chronicle)
    for number in range(longer(5)):
        for step in range(8):
            change = random_change(rng, chronicle, number * 8 + step)
            print(change)
            chronicle.run(change)
            chronicle.write(*chronicle.tables()[:4])
        with stopped.client() as client:
            stop = rng.randint(follower.next, len(chronicle.rows))
            follower.receive(stopped, client, stop)
        if rng.random() < 0.5:
            stopped.kill()
            follower.resume()
            stopped.start()
    with stopped.client() as client:
        follower.receive(stopped, client)


def test_first_start_before_renames(stopped: Pipeline, chronicle: Chronicle) -> None:
    """At the very first start, too, rows come under the names of their time."""
    chronicle.run("CREATE TABLE t (a INT, b INT)", "CREATE TABLE s (c INT)")
    chronicle.write("t", "s")
    chronicle.run("RENAME TABLE t TO u")
    chronicle.write("u")
    chronicle.run("ALTER TABLE u RENAME TO w", "RENAME TABLE w TO x, s TO w, x TO s")
    chronicle.write("w", "s")
    stopped.start()
    follower = Follower(chronicle)
    with stopped.client() as client:
        follower.receive(stopped, client)


def test_what_the_binlog_does_not_show(stopped: Pipeline, chronicle: Chronicle) -> None:
    """A table that appeared without the binlog is asked for, and then followed."""
    stopped.start()
    stopped.wait_for_status(lambda status: status["state"] == "running")
    chronicle.run(
        "SET sql_log_bin = 0",
        "CREATE TABLE hidden (a INT, b INT)",
        "CREATE TABLE other (a INT, b INT)",
        "SET sql_log_bin = 1",
        "ALTER TABLE hidden ADD c INT FIRST",
    )
    follower = Follower(chronicle)
    with stopped.client() as client:
        chronicle.write("hidden", "other")
        follower.receive(stopped, client)
        # From here on the binlog has the columns again, also to one who reads it later.
        stopped.kill()
    for statement in (
        "ALTER TABLE hidden RENAME COLUMN a TO z",
        "ALTER TABLE other RENAME COLUMN b TO y",
    ):
        chronicle.write("hidden", "other")
        chronicle.run(statement)
    chronicle.write("hidden", "other")
    follower.resume()
    stopped.start()
    with stopped.client() as client:
        follower.receive(stopped, client)
