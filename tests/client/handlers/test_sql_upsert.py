"""Tables of PostgreSQL, MySQL and SQLite that follow changes, whatever comes again."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from change_messages import Maker, changes_of
from fake_mysql import fake_server, greeting, packet
from fix_random import longer
from sql_targets import apply

from canal_server.client.handlers import Rejected
from canal_server.client.handlers.sql_upsert import SqlUpsert
from canal_server.errors import CanalError
from canal_server.protocol.entry_messages import EventType, RowChange
from canal_server.protocol.protobuf import encode

SECRET = "pa55word"


@pytest.fixture
def maker():
    """Give what makes messages of the table `orders`."""
    return Maker()


# --- rows ---------------------------------------------------------------------------


def test_rows(sql_target, maker):
    """Inserts, updates and deletes of one message are there after its flush."""
    handler = sql_target.handler(create=True)
    one, two = {"id": 1, "name": "a"}, {"id": 2, "name": None}
    apply(handler, maker.message(1, maker.insert(one), maker.insert(two)))
    assert sql_target.rows() == {1: one, 2: two}
    new = {"id": 2, "name": "bücher % : 'x'"}
    apply(handler, maker.message(2, maker.update(two, new), maker.delete(one)))
    assert sql_target.rows() == {2: new}


def test_one_transaction(sql_target, maker):
    """Nothing of a message is there before the flush, or after a rollback."""
    handler = sql_target.handler(create=True)
    apply(handler, maker.inserts(1, 1))
    for change in changes_of(maker.inserts(2, 2, 3)):
        handler.handle(change)
    handler.rollback()
    assert list(sql_target.rows()) == [1]
    apply(handler, maker.inserts(2, 2))
    assert list(sql_target.rows()) == [1, 2]


def test_keys_that_change(sql_target, maker):
    """A row moves to its new key, also when the change comes again."""
    handler = sql_target.handler(create=True)
    old, new = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
    first = maker.message(1, maker.insert(old))
    moved = maker.message(2, maker.update(old, new))
    apply(handler, first, moved)
    assert sql_target.rows() == {2: new}
    apply(handler, moved)
    assert sql_target.rows() == {2: new}
    apply(handler, first, moved)
    assert sql_target.rows() == {2: new}


def test_keys_of_several_columns(sql_target):
    """All columns of the key are needed to find a row."""
    maker = Maker(key=("id", "part"), types={"part": "varchar(20)"})
    rows = [{"id": 1, "part": part, "n": 0} for part in "abc"]
    handler = sql_target.handler(create=True)
    apply(handler, maker.message(1, *map(maker.insert, rows)))
    changed = {**rows[1], "n": 5}
    apply(
        handler,
        maker.message(2, maker.update(rows[1], changed), maker.delete(rows[2])),
    )
    with sql_target.engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT part, n FROM orders ORDER BY part")
        assert [tuple(row) for row in found] == [("a", 0), ("b", 5)]


def test_only_keys(sql_target, maker):
    """A table that has no other columns works, and rows may come again."""
    handler = sql_target.handler(create=True)
    apply(handler, maker.inserts(1, 1, 2), maker.inserts(2, 2, 3))
    assert list(sql_target.rows()) == [1, 2, 3]


def test_truncate(sql_target, maker):
    """TRUNCATE empties the table, in its order among the changes."""
    handler = sql_target.handler(create=True)
    apply(
        handler,
        maker.message(
            1,
            maker.insert({"id": 1}),
            maker.statement("TRUNCATE TABLE orders", EventType.TRUNCATE),
            maker.insert({"id": 2}),
        ),
    )
    assert list(sql_target.rows()) == [2]


def test_truncate_of_nothing(sql_target, maker):
    """A table that its first row will create has nothing to be emptied of."""
    truncate = maker.statement("TRUNCATE TABLE orders", EventType.TRUNCATE)
    with pytest.raises(Rejected, match="does not exist"):
        apply(sql_target.handler(), maker.message(1, truncate))
    apply(
        sql_target.handler(create=True), maker.message(1, truncate), maker.inserts(2, 1)
    )
    assert list(sql_target.rows()) == [1]


def test_null_and_the_null_of_json(sql_target):
    """A NULL stays one in a column of documents, in which null is a value, too."""
    maker = Maker(types={"doc": "json"})
    documents = None, "null", "[null]"
    rows: list[dict[str, Any]] = [
        {"id": number, "doc": each} for number, each in enumerate(documents, 1)
    ]
    creating, reading = sql_target.handler(create=True), sql_target.handler()
    for handler in (creating, reading):
        apply(handler, maker.message(1, *map(maker.insert, rows)))
        with sql_target.engine.connect() as connection:
            found = connection.exec_driver_sql(
                "SELECT id FROM orders WHERE doc IS NULL"
            )
            assert found.scalars().all() == [1]
        apply(handler, maker.message(2, *map(maker.delete, rows)))


def test_a_part_of_the_columns(sql_target, maker):
    """An update that was logged in part leaves the other columns as they are."""
    sql_target.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(9) NOT NULL, n INT)"
    )
    handler = sql_target.handler()
    apply(handler, maker.message(1, maker.insert({"id": 1, "name": "a", "n": 1})))
    apply(handler, maker.message(2, maker.update({"id": 1}, {"id": 1, "n": 2})))
    assert sql_target.rows() == {1: {"id": 1, "name": "a", "n": 2}}
    apply(handler, maker.message(3, maker.update({"id": 1}, {"id": 7, "n": 3})))
    assert sql_target.rows() == {7: {"id": 7, "name": "a", "n": 3}}
    apply(handler, maker.message(3, maker.update({"id": 1}, {"id": 7, "n": 3})))
    assert sql_target.rows() == {7: {"id": 7, "name": "a", "n": 3}}


def test_random_changes_that_come_again(sql_target, maker, rng):
    """Whatever is delivered again, from wherever, the tables are equal at the end."""
    model: dict[int, dict[str, Any]] = {}
    messages = []

    def change():
        kind = rng.choice(("insert", "update", "update", "delete", "move"))
        free = [n for n in range(20) if n not in model]
        if kind == "insert" or not model:
            row = {"id": rng.choice(free), "name": f"n{rng.random()}"}
            model[row["id"]] = row
            return maker.insert(row)
        old = model.pop(rng.choice(list(model)))
        if kind == "delete":
            return maker.delete(old)
        new = {**old, "name": f"n{rng.random()}"}
        if kind == "move":
            new["id"] = rng.choice([old["id"], *free])
        model[new["id"]] = new
        return maker.update(old, new)

    handler = sql_target.handler(create=True)
    at = 0
    for number in range(longer(60)):
        changes = [change() for _ in range(rng.randint(1, 8)) if len(model) < 18]
        messages.append(maker.message(number, *changes))
    while at < len(messages):
        if rng.random() < 0.2:
            at = max(0, at - rng.randint(0, 5))
        if rng.random() < 0.1:
            for each in changes_of(messages[at])[: rng.randint(0, 8)]:
                handler.handle(each)
            handler.rollback()
        apply(handler, messages[at])
        at += 1
    assert sql_target.rows() == model


def test_rows_of_a_statement(sqlite_target, maker):
    """Rows that were changed by a logged statement are not known: rejected."""
    entry = maker.insert({"id": 1})
    change = RowChange(event_type=EventType.INSERT, sql="INSERT INTO orders SELECT 1")
    entry = replace(entry, store_value=encode(change))
    with pytest.raises(Rejected, match="set binlog_format = ROW"):
        apply(sqlite_target.handler(), maker.message(1, entry))


# --- values -------------------------------------------------------------------------

TYPES = {
    "id": "int", "small": "smallint unsigned", "large": "bigint unsigned",
    "price": "decimal(30,10)", "ratio": "double", "day": "date",
    "moment": "datetime(6)", "stamp": "timestamp(6)", "took": "time(6)",
    "code": "char(10)", "note": "text", "raw": "varbinary(20)", "data": "longblob",
    "state": "enum('new','it''s')", "flags": "set('a','b')", "extra": "json",
    "year": "year", "bits": "bit(64)",
}  # fmt: skip
TEXTS = {
    "id": "1", "small": "65535", "large": "18446744073709551615",
    "price": "12345678901234567890.0123456789", "ratio": "0.1", "day": "2026-02-28",
    "moment": "2026-02-28 01:02:03.000004", "stamp": "2026-02-28 01:02:03.000004",
    "took": "-23:59:59.000001", "code": "äöü", "note": "a 'quoted' \\ text",
    "raw": "\x00\x7f\xff", "data": "\x80", "state": "2", "flags": "3",
    "extra": '{"a": [1, "ü"]}', "year": "2155", "bits": "18446744073709551615",
}  # fmt: skip
BLOBS = {"raw": 2004, "data": 2004}  # by Java's numbers of types


def all_types() -> Maker:
    """Return a maker of rows with these types."""
    return Maker(types=TYPES, sql_types=BLOBS)


def test_types_of_created_tables(sql_target):
    """Each value of a created table is the one of the change, with all its digits."""
    maker = all_types()
    message = maker.message(1, maker.insert(dict(TEXTS)))
    (change,) = changes_of(message)
    expected = dict(change.after)
    apply(sql_target.handler(create=True), message)
    found = sql_target.rows()[1]
    expected["extra"] = json.loads(expected["extra"])
    if sql_target.engine.dialect.name != "postgresql":  # the others have no zones
        expected["stamp"] = expected["stamp"].replace(tzinfo=None)
    if sql_target.engine.dialect.name == "sqlite":
        # Its numbers are not exact, so these columns are created as texts.
        for name in ("price", "large", "bits"):
            expected[name] = str(expected[name])
        expected["took"] = "-23:59:59.000001"
    if sql_target.engine.dialect.name == "mysql":
        # SQLAlchemy reads these two as other types; the driver does not.
        with sql_target.engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT took, ratio FROM orders")
            found["took"], found["ratio"] = rows.one()
    assert found == expected


def test_values_for_columns_of_other_types(postgres_target):
    """Values become those of the target's types, as far as they have a counterpart."""
    postgres_target.execute(
        """CREATE TABLE orders (id int PRIMARY KEY, paid boolean, doc jsonb,
        ref uuid, ref2 uuid, local timestamp, utc timestamptz, at time, label text,
        day date, num text, took text)"""
    )
    ref = "00000000-0000-0000-0000-0000000000ff"
    maker = Maker(
        types={
            "paid": "tinyint(1)", "doc": "json", "ref": "char(36)",
            "ref2": "blob", "local": "timestamp", "utc": "datetime", "at": "time",
            "label": "enum('x','y')", "day": "date", "num": "decimal(5,2)",
            "took": "time",
        }
    )  # fmt: skip
    row = {
        "id": 1, "paid": "1", "doc": '{"b": 2}', "ref": ref,
        "ref2": b"\xff" * 16, "local": "2026-02-28 01:02:03",
        "utc": "2026-02-28 01:02:03", "at": "13:00:00", "label": "2",
        "day": "0000-00-00", "num": "5.00", "took": "-100:00:00",
    }  # fmt: skip
    handler = postgres_target.handler()
    apply(handler, maker.message(1, maker.insert(row)))
    found = postgres_target.rows()[1]
    assert found == {
        "id": 1,
        "paid": True,
        "doc": {"b": 2},
        "ref": uuid.UUID(ref),
        "ref2": uuid.UUID(bytes=b"\xff" * 16),
        "local": dt.datetime(2026, 2, 28, 1, 2, 3),  # noqa: DTZ001  # as it is stored
        "utc": dt.datetime(2026, 2, 28, 1, 2, 3, tzinfo=dt.UTC),
        "at": dt.time(13),
        "label": "y",
        "day": None,
        "num": "5.00",
        "took": "-100:00:00",
    }
    bad = {**row, "at": "25:00:00"}
    with pytest.raises(Rejected, match="at of orders: TIME 25:00:00 is not a time"):
        apply(handler, maker.message(2, maker.update(row, bad)))


def test_decimals_stay_exact(postgres_target):
    """No digit of a DECIMAL is lost on the way."""
    maker = Maker(types={"price": "decimal(65,30)"})
    exact = Decimal("-99999999999999999999999999999999999." + "9" * 30)
    apply(
        postgres_target.handler(create=True),
        maker.message(1, maker.insert({"id": 1, "price": exact})),
    )
    assert postgres_target.rows()[1]["price"] == exact


# --- tables -------------------------------------------------------------------------


def test_names(postgres_target, maker):
    """Names follow the pattern, but for single tables; a point divides off a schema."""
    postgres_target.execute("CREATE SCHEMA shop", "CREATE SCHEMA sales")
    handler = postgres_target.handler(
        create=True, name="{schema}.my_{table}", tables={"shop.items": "sales.parts"}
    )
    items = Maker("items")
    apply(handler, maker.inserts(1, 1), items.inserts(2, 7))
    assert list(postgres_target.rows("my_orders", "shop")) == [1]
    assert list(postgres_target.rows("parts", "sales")) == [7]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": "{other}"}, "name = '{other}': expected a text with {schema} and"),
        ({"name": "{"}, "name = '{': expected a text"),
        ({"tables": "orders=x"}, "tables: 'orders=x': expected schema.table=name"),
        ({"tables": "a.b="}, "tables: 'a.b=': expected schema.table=name"),
        ({"missing_columns": "drop"}, "missing_columns = 'drop': expected"),
    ],
)
def test_wrong_options(options, problem):
    """An option that cannot be used is refused, with what it should be."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        SqlUpsert("sqlite://", **options)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (f"{SECRET}", "url: expected database+driver://user:password@host/name"),
        (f"nothing://u:{SECRET}@h/d", "SQLAlchemy does not support nothing://"),
        (
            f"postgresql+asyncpg://u:{SECRET}@h/d",
            "postgresql+asyncpg:// needs asyncpg, which is not installed",
        ),
    ],
)
def test_wrong_urls(url, problem, monkeypatch):
    """The error says what is wrong, without the password."""
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(CanalError) as caught:
        SqlUpsert(url)
    assert problem in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password"])
def test_a_server_that_asks_for_the_password(plugin):
    """Without TLS, MySQL's password is encrypted for no key that the server sends."""
    heard: list[bytes] = []
    key = b"\x01-----BEGIN PUBLIC KEY-----"
    answers = [packet(2, key)]
    if plugin == "caching_sha2_password":
        answers = [packet(2, b"\x01\x04"), packet(4, key)]
    with fake_server(
        greeting(plugin.encode()), *answers, heard=heard, host="0.0.0.0"
    ) as port:
        handler = SqlUpsert(f"mysql+pymysql://user:secret@0.0.0.0:{port}/shop")
        with pytest.raises(CanalError, match="has no TLS; connect with TLS") as error:
            handler.open()
        handler.close()
    assert "secret" not in str(error.value)
    # After the login, there may be a request for the key.
    assert [each for each in heard[1:] if each] in ([], [packet(3, b"\x02")])


def test_without_sqlalchemy(monkeypatch):
    """The error names the extra to install."""
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(CanalError, match=r"pip install 'canal-server\[sql\]'"):
        SqlUpsert("sqlite://")


def test_a_missing_table(sql_target, maker):
    """It is named, with the remedy."""
    with pytest.raises(Rejected, match=r"table orders for shop.orders does not exist"):
        apply(sql_target.handler(), maker.inserts(1, 1))


def test_missing_columns(sqlite_target, maker):
    """They are named, left out, or added, as the settings say."""
    message = maker.message(1, maker.insert({"id": 1, "a b": 1, "c%": "x"}))
    with pytest.raises(Rejected, match=r"table orders has no column a b, c%; add it"):
        apply(sqlite_target.handler(), message)
    sqlite_target.handlers[-1].rollback()
    apply(sqlite_target.handler(missing_columns="ignore"), message)
    assert sqlite_target.rows() == {1: {"id": 1, "name": None}}
    apply(sqlite_target.handler(create=True), message)
    assert sqlite_target.rows() == {1: {"id": 1, "name": None, "a b": 1, "c%": "x"}}


def test_columns_that_appear(sql_target, maker):
    """With `create`, a column that the source adds is added, for new rows and old."""
    handler = sql_target.handler(create=True)
    apply(handler, maker.message(1, maker.insert({"id": 1})))
    ddl = maker.statement("ALTER TABLE orders ADD n INT")
    new = maker.insert({"id": 2, "n": 5})
    apply(handler, maker.message(2, ddl), maker.message(3, new))
    assert sql_target.rows() == {1: {"id": 1, "n": None}, 2: {"id": 2, "n": 5}}


def test_columns_that_were_added_by_hand(sqlite_target, maker):
    """After a failure and a rollback, the table is looked at again."""
    handler = sqlite_target.handler()
    apply(handler, maker.inserts(1, 1))
    message = maker.message(2, maker.insert({"id": 2, "n": 5}))
    with pytest.raises(Rejected):
        apply(handler, message)
    handler.rollback()
    sqlite_target.execute("ALTER TABLE orders ADD n INT")
    apply(handler, message)
    assert sqlite_target.rows()[2] == {"id": 2, "name": None, "n": 5}


def test_names_in_another_case(sqlite_target, maker):
    """A column that differs only in case is the same."""
    apply(
        sqlite_target.handler(), maker.message(1, maker.insert({"id": 1, "Name": "x"}))
    )
    assert sqlite_target.rows() == {1: {"id": 1, "name": "x"}}


@pytest.mark.parametrize("missing_columns", ["error", "ignore"])
def test_a_key_that_the_target_lacks(sqlite_target, missing_columns):
    """Rows cannot be found by it: the change is rejected, and nothing is deleted."""
    maker = Maker(key=("id", "part"))
    sqlite_target.execute("INSERT INTO orders VALUES (1, 'a')")
    handler = sqlite_target.handler(missing_columns=missing_columns)
    delete = maker.delete({"id": 1, "part": 2})
    with pytest.raises(Rejected, match="table orders has no column part"):
        apply(handler, maker.message(1, delete))
    assert list(sqlite_target.rows()) == [1]


def test_no_key(sqlite_target):
    """A table without a primary key is rejected."""
    maker = Maker(key=())
    with pytest.raises(Rejected, match=r"shop.orders has no primary key"):
        apply(sqlite_target.handler(), maker.inserts(1, 1))
