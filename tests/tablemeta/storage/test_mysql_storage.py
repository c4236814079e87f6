"""The table history in a MySQL: the original's rows, and what a server refuses."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fix_tablemeta_storage import (
    PASSWORD,
    at,
    ddl,
    mysql_database,
    schemas,
    segment,
)
from mysql_history import (
    HISTORY_COLUMNS,
    SNAPSHOT_COLUMNS,
    MysqlLocation,
    fresh_location,
    open_history,
)

from canal_server.errors import TableMetaStoreError
from canal_server.mysql.source_settings import Address, Credentials
from canal_server.tablemeta.storage.mysql_storage import MysqlHistoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from servers import PrivateServer


location = pytest.fixture(fresh_location, name="location")
history = pytest.fixture(open_history, name="history")


def test_rows_for_java(location: MysqlLocation, history: MysqlHistoryStorage) -> None:
    """The original finds in its columns what it looks for there."""
    of = history.begin(segment(at(1, 4)), schemas("t", "u"))
    history.append(of.id, ddl(at(1, 100), "ALTER TABLE t ADD a INT COMMENT '名😀'"))
    time = at(1, 100).timestamp
    assert location.rows(HISTORY_COLUMNS, "meta_history") == [
        ("example", "mysql-bin.000001", 100, "17", time, "db", "db", "t",
         "ALTER TABLE t ADD a INT COMMENT '名\ufffd'", "ALTER", None)
    ]  # fmt: skip
    ((*key, data, extra),) = location.rows(SNAPSHOT_COLUMNS, "meta_snapshot")
    assert key == ["example", "mysql-bin.000001", 4, "17", at(1, 4).timestamp]
    assert extra is None
    assert json.loads(str(data)) == {
        "db": "CREATE TABLE `t` (a INT); \nCREATE TABLE `u` (a INT); \n"
    }
    ((zone,),) = location.rows(
        "ABS(gmt_create - UTC_TIMESTAMP()) < 3600", "meta_history"
    )
    assert zone


def test_java_base_dump(
    location: MysqlLocation, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of the Java server are a segment, from its first to its last statement."""
    old = at(1, 100, timestamp=1_000)
    positions = [old, at(1, 200, timestamp=2**42), at(2, 50, timestamp=2**42)]
    texts = ["DROP TABLE a", None, "ALTER TABLE `order` ADD c INT"]
    location.add_snapshot("0", 0, "-1", -2)
    for position, text in zip(positions, texts, strict=True):
        location.add_statement(position, text)
    history = location.storage()
    with caplog.at_level(logging.INFO):
        history.open()
    assert "adopted 3 statements" in caplog.text
    assert "1 of them without text" in caplog.text
    (of,) = history.segments()
    assert (of.source, of.first, of.last) == ("17", old, positions[2])
    records = list(history.records(of.id))
    assert [one.position for one in records] == positions
    assert [one.ddl for one in records] == ["DROP TABLE a", "", texts[2]]
    assert [one.contained for one in records] == [True, False, False]
    assert (records[2].event_type, records[2].sql_table) == ("ALTER", "order")
    base = history.snapshot(of.id)
    assert base is not None
    assert base.position == old
    assert [one.name for one in base.schemas] == ["Od-d", "shop", "leer"]
    assert dict(base.schemas[1].tables)["order"].startswith("CREATE TABLE `order`")
    history.close()
    history.open()
    assert history.segments() == [of]
    history.close()


def test_java_goes_on_as_ours(location: MysqlLocation) -> None:
    """An adopted segment is extended, compacted and expires like others."""
    location.add_snapshot("0", 0, "-1", -2)
    for offset in (100, 200):
        location.add_statement(at(1, offset), f"ALTER TABLE t ADD c{offset} INT")
    history = location.storage()
    history.open()
    (of,) = history.segments()
    assert not history.append(of.id, ddl(at(1, 200)))
    assert history.append(of.id, ddl(at(1, 300)), last=at(1, 400))
    history.extend(of.id, first=at(1, 50))
    base = history.snapshot(of.id, at(1, 99))
    assert base is not None
    assert base.position == at(1, 50)
    assert len(base.schemas) == 3
    history.write_snapshot(of.id, at(1, 250), schemas("t"))
    assert history.expire(at(1, 300).timestamp or 0) == 3
    assert [one.position.position for one in history.records(of.id)] == [300]
    assert len(location.rows("id", "meta_history")) == 1
    assert len(location.rows("id", "meta_snapshot")) == 1
    history.close()


def test_java_snapshot_that_is_broken(
    location: MysqlLocation, caplog: pytest.LogCaptureFixture
) -> None:
    """An invalid snapshot of the Java server is reported, and another one is used."""
    location.add_snapshot("0", 0, "-1", -2, data="{")
    for offset in (100, 200):
        location.add_statement(at(1, offset), "DROP TABLE x")
    location.add_snapshot("mysql-bin.000001", 200, "17", at(1, 200).timestamp)
    history = location.storage()
    history.open()
    assert "cannot read" in caplog.text
    (of,) = history.segments()
    assert of.first == at(1, 200)
    assert [one.contained for one in history.records(of.id)] == [True]
    history.close()


def test_java_without_a_base(location: MysqlLocation) -> None:
    """Statements of the original without a snapshot are left alone, and give way."""
    location.add_statement(at(1, 100), "DROP TABLE javas")
    location.add_statement(at(1, 200), "DROP TABLE javas")
    history = location.storage()
    history.open()
    assert history.segments() == []
    of = history.begin(segment(at(1, 4)), schemas("t"))
    assert history.append(of.id, ddl(at(1, 100)))
    assert [row[1] for row in location.rows("id, sql_text", "meta_history")] == [
        "DROP TABLE javas",
        ddl(at(1, 100)).ddl,
    ]
    history.close()


def test_java_goes_on_with_ours(
    location: MysqlLocation, history: MysqlHistoryStorage
) -> None:
    """The queries of the Java server find our snapshot and what follows it."""
    of = history.begin(segment(at(1, 4)), schemas("t"))
    for offset in (100, 200, 300):
        history.append(of.id, ddl(at(1, offset)), last=at(1, offset + 1))
    history.write_snapshot(of.id, at(1, 150), schemas("t", "u"))
    expected = at(1, 250).timestamp
    ((data, since, file, offset, master),) = location.server.execute(
        "SELECT data, binlog_timestamp, binlog_file, binlog_offest, binlog_master_id"
        f" FROM {location.name}.meta_snapshot WHERE destination = 'example'"
        f" AND binlog_timestamp < {expected} ORDER BY binlog_timestamp DESC, id DESC"
        " LIMIT 1"
    )
    assert list(json.loads(data)) == ["db"]
    assert data.count("CREATE TABLE") == 2
    assert (file, offset, master) == ("mysql-bin.000001", 150, "17")
    rows = location.server.execute(
        "SELECT sql_text, use_schema, sql_type, sql_schema, sql_table FROM"
        f" {location.name}.meta_history WHERE destination = 'example' AND"
        f" binlog_timestamp >= {since} AND binlog_timestamp <= {expected}"
        " ORDER BY binlog_timestamp, id"
    )
    assert [tuple(row) for row in rows] == [
        (ddl(at(1, 200)).ddl, "db", "ALTER", "db", "t")
    ]


def test_java_expired_our_base(
    location: MysqlLocation,
    history: MysqlHistoryStorage,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If the Java server deleted snapshots, segments start later or are deleted."""
    lost = history.begin(segment(at(1, 4)), schemas("lost"))
    history.append(lost.id, ddl(at(1, 50)))
    of = history.begin(segment(at(2, 4)), schemas("t"))
    for offset in (100, 200):
        history.append(of.id, ddl(at(2, offset)), last=at(2, offset + 1))
    history.write_snapshot(of.id, at(2, 150), schemas("t", "u"))
    history.close()
    location.server.execute(
        f"DELETE FROM {location.name}.meta_snapshot WHERE binlog_timestamp <"
        f" {at(2, 150).timestamp}"
    )
    history.open()
    assert history.segments() == [replace(of, first=at(2, 150), last=at(2, 201))]
    assert [one.position for one in history.records(of.id)] == [at(2, 200)]
    base = history.snapshot(of.id)
    assert base is not None
    assert base.schemas == schemas("t", "u")
    assert caplog.text.count("was deleted from meta_snapshot") == 2


def test_statement_deleted(
    location: MysqlLocation, history: MysqlHistoryStorage
) -> None:
    """A deleted statement is reported where it is missing, with a remedy."""
    of = history.begin(segment(at(1, 4)), schemas("t"))
    for offset in (100, 200):
        history.append(of.id, ddl(at(1, offset)))
    location.server.execute(
        f"DELETE FROM {location.name}.meta_history WHERE binlog_offest = 100"
    )
    with pytest.raises(TableMetaStoreError) as caught:
        list(history.records(of.id))
    shown = str(caught.value)
    assert f"lacks the statement at {at(1, 100)}" in shown
    remedy = f"DELETE FROM canal_server_stretch WHERE id = {of.id}"
    assert shown.endswith(remedy)
    location.server.execute(remedy.replace("FROM ", f"FROM {location.name}."))
    again = history.begin(segment(at(1, 4)), schemas("t"))
    assert history.append(again.id, ddl(at(1, 200)))
    assert history.segments() == [again]


def test_segment_changed_by_others(
    location: MysqlLocation, history: MysqlHistoryStorage
) -> None:
    """An invalid segment is reported with the row to delete."""
    history.begin(segment(at(1, 4)), schemas("t"))
    location.server.execute(
        f"UPDATE {location.name}.canal_server_stretch SET last = '?'"
    )
    with pytest.raises(
        TableMetaStoreError, match="its row in canal_server_stretch was changed: delete"
    ):
        history.segments()


def test_binlog_restarted(
    location: MysqlLocation, history: MysqlHistoryStorage
) -> None:
    """Two segments of one server share positions, and each keeps its rows."""
    old = history.begin(segment(at(1, 4)), schemas("old"))
    history.append(old.id, ddl(at(1, 100), "DROP TABLE old"))
    new = history.begin(segment(at(1, 4)), schemas("new"))
    assert history.append(new.id, ddl(at(1, 100), "DROP TABLE new"))
    for of, name in ((old, "old"), (new, "new")):
        (record,) = history.records(of.id)
        assert record == ddl(at(1, 100), f"DROP TABLE {name}")
        base = history.snapshot(of.id)
        assert base is not None
        assert base.schemas == schemas(name)
    servers = [row[0] for row in location.rows("binlog_master_id", "meta_history")]
    assert [int(str(server)) < 0 for server in servers] == [True, False]


def test_destinations_differ_in_case(location: MysqlLocation) -> None:
    """Destinations whose names differ in case alone have histories of their own."""
    one, other = location.storage("Example"), location.storage("example")
    for storage in (one, other):
        storage.open()
        of = storage.begin(segment(at(1, 4)), schemas("t"))
        assert storage.append(of.id, ddl(at(1, 100)))
        assert len(list(storage.records(of.id))) == 1
    for storage in (one, other):
        assert len(storage.segments()) == 1
        storage.close()


def test_other_rows_stay(location: MysqlLocation, history: MysqlHistoryStorage) -> None:
    """A segment of another destination cannot be written by its id."""
    other = location.storage("other")
    other.open()
    of = history.begin(segment(at(1, 4)), schemas("t"))
    with pytest.raises(TableMetaStoreError, match=f"no segment {of.id} of other"):
        other.append(of.id, ddl(at(1, 100)))
    other.close()


def test_no_server(location: MysqlLocation) -> None:
    """An unreachable server is reported with what to check."""
    storage = location.storage(address=Address("127.0.0.1", 1), connect_timeout_s=2.0)
    with pytest.raises(TableMetaStoreError) as caught:
        storage.open()
    assert f"in {location.name} on 127.0.0.1:1 cannot be read" in str(caught.value)
    assert "check that the server of canal.instance.tsdb.url is running" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("user", "password", "name", "expected"),
    [
        (None, "wrong secret", None, "check canal.instance.tsdb.dbUsername and"),
        (None, None, "missing", "GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON"),
        ("nobody", PASSWORD, None, "check canal.instance.tsdb.dbUsername and"),
    ],
)
def test_refused(
    location: MysqlLocation,
    user: str | None,
    password: str | None,
    name: str | None,
    expected: str,
) -> None:
    """Who is not let in reads why and what to do, and never a password."""
    location.name = name or location.name
    own = location.access.credentials
    storage = location.storage(
        credentials=Credentials(user or own.user, password or own.password)
    )
    with pytest.raises(TableMetaStoreError) as caught:
        storage.open()
    text = str(caught.value)
    assert expected in text
    assert "secret" not in text
    assert "REPLICATION" not in text
    assert "secret" not in repr(storage.__dict__)


def test_no_right_to_write(location: MysqlLocation) -> None:
    """A read-only account is reported with the missing privileges; reading works."""
    location.server.execute(
        f"REVOKE CREATE, INSERT, UPDATE, DELETE ON {location.name}.*"
        f" FROM {location.name}"
    )
    storage = location.storage()
    storage.open()
    with pytest.raises(TableMetaStoreError, match="GRANT CREATE, SELECT, INSERT"):
        storage.begin(segment(at(1, 4)), schemas("t"))
    assert storage.segments() == []
    storage.close()


def test_dropped_while_in_use(
    location: MysqlLocation, history: MysqlHistoryStorage
) -> None:
    """A dropped table is reported with the consequence, and created again."""
    of = history.begin(segment(at(1, 4)), schemas("t"))
    tables = ("meta_history", "meta_snapshot", "canal_server_place")
    for table in (*tables, "canal_server_stretch"):
        location.server.execute(f"DROP TABLE {location.name}.{table}")
    with pytest.raises(TableMetaStoreError, match="canal_server_stretch") as caught:
        history.extend(of.id, last=at(1, 500))
    assert "a running server creates it again" in str(caught.value)
    history.close()
    history.open()
    assert history.segments() == []


def test_newer_form(location: MysqlLocation) -> None:
    """Tables of a newer version are not changed, and the remedy is reported."""
    location.server.execute(
        f"ALTER TABLE {location.name}.canal_server_stretch COMMENT 'x, version 2'"
    )
    with pytest.raises(TableMetaStoreError, match=r"newer canal-server \(version 2, "):
        location.storage().open()


def test_changed_by_others(
    location: MysqlLocation, history: MysqlHistoryStorage
) -> None:
    """A changed snapshot is refused, with the row to check."""
    of = history.begin(segment(at(1, 4)), schemas("t"))
    location.server.execute(f"UPDATE {location.name}.meta_snapshot SET data = '{{}}'")
    with pytest.raises(TableMetaStoreError, match=r"invalid snapshot .*meta_snapshot"):
        history.snapshot(of.id)


def test_too_large(
    own_server: Callable[[str, Sequence[str]], PrivateServer],
) -> None:
    """Data beyond the packet limit is reported with both sizes, and not sent."""
    server = own_server("mysql", ["--max-allowed-packet=1M"])
    with mysql_database(server) as (access, name):
        storage = MysqlHistoryStorage(access, name, "example")
        storage.open()
        of = storage.begin(segment(at(1, 4)), schemas("t"))
        with pytest.raises(TableMetaStoreError) as caught:
            storage.append(of.id, ddl(at(1, 100), "'" * 600_000))
        assert "max_allowed_packet is 1048576; raise that" in str(caught.value)
        assert list(storage.records(of.id)) == []
        assert storage.append(of.id, ddl(at(1, 100), "'" * 300_000))
        many = [ddl(at(2, n), "x" * 50_000) for n in range(100)]
        storage.append_all(of.id, many)
        assert len(list(storage.records(of.id))) == 101
        storage.close()
