"""What a database refuses, and what passes: locks, deadlocks, a server that dies."""

from __future__ import annotations

import contextlib
import json
import threading

import pytest
from change_messages import Maker, changes_of
from sql_targets import SqlTarget, apply

from canal_server.client.consume import Consumer, DeadLetters
from canal_server.client.handlers import Rejected, RetryLater
from canal_server.client.handlers.sql_upsert import SqlUpsert


@pytest.fixture
def maker():
    """Give what makes messages of the table `orders`."""
    return Maker()


def test_what_the_database_refuses(sql_target, maker):
    """A row that breaks a rule is rejected; the text has neither SQL nor values."""
    sql_target.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(9) NOT NULL)"
    )
    handler = sql_target.handler()
    private = maker.insert({"id": 4711, "name": None})
    with pytest.raises(Rejected) as caught:
        apply(handler, maker.message(1, private))
    text = str(caught.value)
    assert "name" in text.lower()
    assert "INSERT" not in text
    assert "4711" not in text or "Failing row" in text  # PostgreSQL's own words
    assert "\n" not in text


def test_one_of_many(sql_target, maker, tmp_path):
    """A consumer keeps everything of a message but the row that is refused."""
    sql_target.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(9) NOT NULL)"
    )
    entries = [
        maker.insert({"id": n, "name": None if n == 5 else "x"}) for n in range(10)
    ]
    letters = DeadLetters(tmp_path / "dead.jsonl")
    consumer = Consumer(sql_target.handler(), dead_letters=letters)
    assert consumer.process(maker.message(1, *entries))
    letters.close()
    assert sorted(sql_target.rows()) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    (letter,) = (tmp_path / "dead.jsonl").read_text().splitlines()
    assert json.loads(letter)["after"] == {"id": 5, "name": None}
    assert json.loads(letter)["error"]["type"] == "Rejected"


def test_a_locked_table(sqlite_target, maker):
    """A lock of somebody else passes: the change is repeated."""
    handler = SqlUpsert(f"{sqlite_target.url}?timeout=0")
    sqlite_target.handlers.append(handler)
    with sqlite_target.engine.connect() as other:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(RetryLater, match="database is locked"):
            apply(handler, maker.inserts(1, 1))
        handler.rollback()
    apply(handler, maker.inserts(1, 1))
    assert list(sqlite_target.rows()) == [1]


def test_a_deadlock(postgres_target, maker):
    """The transaction that PostgreSQL ends for a deadlock is repeated."""
    postgres_target.execute("CREATE TABLE orders (id int PRIMARY KEY, name text)")
    postgres_target.execute("INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    handler = postgres_target.handler()
    one, two = ({"id": n, "name": "x"} for n in (1, 2))
    has_first = threading.Event()

    def other():
        with postgres_target.engine.connect() as connection:
            connection.exec_driver_sql("SET deadlock_timeout = '1h'")
            connection.exec_driver_sql("UPDATE orders SET name = 'o' WHERE id = 2")
            has_first.set()
            connection.exec_driver_sql("UPDATE orders SET name = 'o' WHERE id = 1")
            connection.commit()

    # The second statement has the first one executed.
    first = maker.message(1, maker.update(one, one), maker.delete({"id": 3}))
    for change in changes_of(first):
        handler.handle(change)
    thread = threading.Thread(target=other)
    thread.start()
    assert has_first.wait(30)
    with pytest.raises(RetryLater, match="deadlock detected"):
        apply(handler, maker.message(2, maker.update(two, two)))
    handler.rollback()
    thread.join()


def test_a_server_that_dies(own_postgres, maker):
    """While PostgreSQL is down, changes are repeated; then nothing is missing."""
    with contextlib.closing(SqlTarget(own_postgres.url("postgres"))) as target:
        handler = target.handler(create=True)
        apply(handler, maker.inserts(1, 1))
        handler.handle(changes_of(maker.inserts(2, 2, 3))[0])
        own_postgres.kill()
        for _ in range(2):
            with pytest.raises(
                RetryLater, match=r"postgresql\+psycopg://admin:\*\*\*@"
            ):
                apply(handler, maker.inserts(2, 2, 3))
            handler.rollback()
        own_postgres.restart()
        apply(handler, maker.inserts(2, 2, 3))
        assert list(target.rows()) == [1, 2, 3]
