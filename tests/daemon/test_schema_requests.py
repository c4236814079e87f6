"""Table histories as the HTTP port shows them, next to the server that writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fix_conf import ACCOUNT
from fix_table_history import SHOP, T0_MS, UUID

from canal_server.config.load import load
from canal_server.daemon.schema_requests import SchemaRequests
from canal_server.errors import CanalError, ClientError, ConfigError, TableMetaError
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.history.schema_document import from_document
from canal_server.tablemeta.storage.history_storage import StoredSchema

ADD = (300, "ALTER TABLE book ADD pages int AFTER title")
DROP = (600, "ALTER TABLE book DROP price")
SYSTEM = StoredSchema("mysql", "utf8mb4_bin", (("user", "CREATE TABLE user (a int)"),))
ALL: dict[str, Any] = {"at": None, "source": None, "tables": [], "all_": False}
SECRET = "s3cret"
REMOTE = (
    "CREATE TABLE `far` (`a` int) ENGINE=FEDERATED"
    f" CONNECTION='mysql://me:{SECRET}@db/shop/far'"
)


def never_run(config, **_):
    """Make no instance: nothing is started."""


@pytest.fixture
def requests(written_history, destinations_of):
    """Give the requests of a server with the written history, which is not started."""
    config = load(written_history.conf, {})
    return SchemaRequests(destinations_of(config.instances, never_run))


def columns_at(requests, at):
    """Return the columns of the table at a moment."""
    found = requests.table("example", "shop.book", at=at, source=None)
    return [each["name"] for each in found["columns"]]


def test_a_table_at_a_moment(written_history, requests):
    """By position, by time, and at the end; as `schema show --json` has it."""
    written_history.write(ADD, DROP)
    position = EntryPosition("binlog.000003", 300)
    assert columns_at(requests, position) == ["id", "title", "price"]
    assert columns_at(requests, T0_MS + 400_000) == ["id", "title", "pages", "price"]
    assert columns_at(requests, None) == ["id", "title", "pages"]
    found = requests.table("example", "shop.book", at=position, source=None)
    assert found["sql"].startswith("CREATE TABLE `book` (\n  `id` int")
    assert (found["server"], found["position"]) == (UUID, "binlog.000003:300")
    assert found["primaryKey"] == ["id"]
    with pytest.raises(TableMetaError, match=r"unknown table shop\.boook; similar"):
        requests.table("example", "shop.boook", at=None, source=None)
    with pytest.raises(TableMetaError, match="does not cover binlog"):
        columns_at(requests, EntryPosition("binlog.000001", 4))


def test_some_tables(written_history, requests):
    """A part at a time; those of the source itself only if they are asked for."""
    written_history.write(ADD, (400, "CREATE TABLE a1 (a int)"), base=(*SHOP, SYSTEM))
    found = requests.show("example", **ALL, offset=0, limit=1)
    assert [each["table"] for each in found["tables"]] == ["a1"]
    assert (found["count"], found["next"], found["omitted"]) == (2, 1, ["mysql"])
    found = requests.show("example", **ALL, offset=1, limit=1)
    assert [each["table"] for each in found["tables"]] == ["book"]
    assert found["next"] is None
    everything = {**ALL, "all_": True}
    found = requests.show("example", **everything, offset=0, limit=9)
    assert [each["schema"] for each in found["tables"]] == ["mysql", "shop", "shop"]
    chosen = {**ALL, "tables": ["mysql.*"]}
    found = requests.show("example", **chosen, offset=0, limit=9)
    assert [each["table"] for each in found["tables"]] == ["user"]
    with pytest.raises(ConfigError, match=r"table shop\.\(: "):
        requests.show("example", **{**ALL, "tables": ["shop.("]}, offset=0, limit=9)


def test_statements(written_history, requests, schema):
    """The text is that of the command, but for the name of an option."""
    written_history.write(ADD, base=(*SHOP, SYSTEM))
    text = requests.show_sql("example", **ALL)
    assert text.replace("all=true", "--all") == schema("show")


def test_changes_since(written_history, requests):
    """Those before the time are left out."""
    written_history.write(ADD, DROP)
    found = requests.table_changes("example", "shop.book")
    assert len(found) == 3
    later = requests.table_changes("example", "shop.book", since_ms=T0_MS + 400_000)
    assert later == found[-1:]
    assert "drop price" in later[0]["sql"].lower()


def test_an_export(written_history, requests, schema, tmp_path):
    """It is that of the command, without passwords, and can be imported."""
    written_history.write(ADD, DROP)
    file = tmp_path / "tables.json"
    schema("export", str(file), "--at", "binlog.000003:400")
    position = EntryPosition("binlog.000003", 400)
    found = requests.export("example", at=position, source=None)
    assert json.loads(found) == json.loads(file.read_text())


def test_an_export_has_no_passwords(written_history, requests, schema, tmp_path):
    """A file of the owner has them, what is sent to others has not."""
    far = StoredSchema("shop", "utf8mb4_bin", (("far", REMOTE),))
    also = REMOTE.replace("far", "also")
    written_history.write((300, also), base=(far,), last=301)
    file = tmp_path / "tables.json"
    schema("export", str(file))
    assert file.read_text().count(SECRET) == 2  # of the table, and of the statement
    found = requests.export("example", at=None, source=None)
    assert SECRET not in found
    exported = from_document(found)  # its checksum is right
    assert [name for name, _ in exported.schemas[0].tables] == ["far", "also"]
    assert exported.statement is not None
    sql = requests.show_sql("example", **ALL)
    assert "far" in sql
    assert SECRET not in sql


def test_what_there_is_not(make_conf, destinations_of):
    """An unknown destination, and one without a history."""
    conf = make_conf(
        example=f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"
        "canal.instance.tsdb.enable = false\n"
    )
    config = load(conf, {})
    requests = SchemaRequests(destinations_of(config.instances, never_run))
    with pytest.raises(CanalError, match=r"tsdb\.enable is false"):
        requests.tables("example")
    with pytest.raises(ClientError, match="can't find destination:none"):
        requests.export("none", at=None, source=None)


def test_which_source_of_a_group(make_conf, destinations_of, tmp_path):
    """Each source has its own history, and is named; nothing is guessed."""
    conf = make_conf(
        "canal.destinations = a\ncanal.instance.a.spring.xml = group-instance.xml\n",
        a="canal.instance.master1.address = x\ncanal.instance.master3.address = y\n"
        f"{ACCOUNT}canal.instance.tsdb.dir = {tmp_path}/tsdb\n",
    )
    config = load(conf, {})
    requests = SchemaRequests(destinations_of(config.instances, never_run))
    for source, text in (
        (None, "source is missing: destination a reads master1, master3"),
        ("master2", "source 'master2' is unknown"),
    ):
        with pytest.raises(ConfigError, match=text):
            requests.table("a", "s.t", at=None, source=source)
    for source in ("master3", "y:3306"):
        with pytest.raises(TableMetaError, match=f"{tmp_path}/tsdb/master3"):
            requests.table("a", "s.t", at=None, source=source)
