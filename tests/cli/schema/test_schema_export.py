"""`schema export` and `schema import`: tables carried to another history."""

from __future__ import annotations

import io
import json
import stat

import pytest
from fix_conf import ACCOUNT
from fix_table_history import UUID, WrittenHistory, position_at

ADD = (300, "ALTER TABLE book ADD pages int")
DROP = (600, "ALTER TABLE book DROP price")


@pytest.fixture
def other_history(written_history, make_conf, tmp_path):
    """Give a second history, which replaces the first in the conf folder."""

    def make() -> WrittenHistory:
        make_conf(
            example=f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"
            f"canal.instance.tsdb.dir = {tmp_path}/other\n"
        )
        return WrittenHistory(written_history.conf)

    return make


def names(schema, *options):
    """Return the names of the columns of shop.book."""
    (shown,) = schema.objects("show", "--table", "shop.book", *options)
    return [each["name"] for each in shown["columns"]]


def test_there_and_back(written_history, other_history, schema, tmp_path):
    """An exported history continues elsewhere: same tables, position and server."""
    written_history.write(ADD, DROP)
    file = tmp_path / "tables.json"
    schema("export", "--at", "binlog.000003:500", str(file))
    # It is unknown whether an event starts at 500; nothing happened until 600.
    assert schema.out == f"1 table as of binlog.000003:600 written to {file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    other_history()
    schema("show", status=1)
    schema("import", str(file))
    assert schema.out == (
        "the table history of destination example now continues with 1 table at"
        f" binlog.000003:600 of server {UUID}\n"
    )
    assert names(schema) == ["id", "title", "price", "pages"]
    assert schema.objects("show")[0]["position"] == "binlog.000003:600"
    assert "-- a view: `cheap`" in schema("show")


def test_an_import_begins_a_new_segment(written_history, schema, tmp_path):
    """The previous history is kept; positions of both find their tables."""
    written_history.write(ADD)
    file = tmp_path / "tables.json"
    schema("export", "--at", "binlog.000003:200", str(file))
    schema("import", str(file))
    assert names(schema) == ["id", "title", "price"]
    assert names(schema, "--at", "binlog.000003:900") == [
        "id",
        "title",
        "price",
        "pages",
    ]


def test_right_after_a_statement(written_history, other_history, schema, tmp_path):
    """If the history ends with a statement, reading can resume from that one."""
    written_history.write(ADD, DROP, last=618)
    file = tmp_path / "tables.json"
    schema("export", str(file))
    other = other_history()
    schema("import", str(file))
    assert names(schema) == ["id", "title", "pages"]
    other.storage.open()
    try:
        (segment,) = other.storage.segments()
        (record,) = other.storage.records(segment.id)
    finally:
        other.storage.close()
    assert segment.first == record.position
    assert segment.last.order() == position_at(618).order()
    assert (record.position.position, record.ddl) == DROP
    assert record.contained


def test_before_an_answer(written_history, other_history, schema, tmp_path):
    """What the server was asked stands where no event begins: it is stepped over."""
    answer = (900, "CREATE TABLE `quiet` (`a` int)")
    written_history.write(ADD, last=1000, answers=(answer,))
    file = tmp_path / "tables.json"
    schema("export", "--at", "binlog.000003:301", str(file))
    assert json.loads(file.read_text())["position"]["position"] == 1000


def test_standard_streams(written_history, other_history, schema, monkeypatch):
    """`-` writes to standard output and reads from standard input, nothing else."""
    written_history.write(ADD)
    document = schema("export", "-")
    assert json.loads(document)["server"] == UUID
    other_history()
    stream = io.TextIOWrapper(io.BytesIO(document.encode()))
    monkeypatch.setattr("sys.stdin", stream)
    schema("import", "-")
    assert names(schema) == ["id", "title", "price", "pages"]


def test_files_that_cannot_be_written(written_history, schema, tmp_path):
    """A folder that is not there is an error that names the file."""
    written_history.write()
    schema("export", f"{tmp_path}/no/x.json", status=1)
    assert f"cannot write {tmp_path}/no/x.json: No such file" in schema.err


def test_an_existing_file_is_replaced(written_history, schema, tmp_path):
    """The file is written atomically, and only its owner can read it."""
    written_history.write()
    file = tmp_path / "tables.json"
    file.write_text("old")
    file.chmod(0o644)
    schema("export", str(file))
    assert json.loads(file.read_text())["server"] == UUID
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.glob("tables*")] == ["tables.json"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{}", "not a JSON object with the format"),
        (b'{"format": ', "not valid JSON"),
        (b"\xff\xfe", "is not valid UTF-8"),
        (b" \n", "the file is empty"),
        (b"CREATE TABLE t (a int);", "the dump does not contain its binlog position"),
    ],
)
def test_files_that_cannot_be_imported(schema, tmp_path, content, problem):
    """A file that is no export and no dump with a position is an error."""
    file = tmp_path / "file"
    file.write_bytes(content)
    schema("import", str(file), status=2 if b"CREATE" in content else 1)
    assert problem in schema.err


def test_files_that_are_not_there(schema, tmp_path):
    """A file that cannot be read is an error that names it."""
    schema("import", str(tmp_path / "x.json"), status=1)
    assert f"cannot read {tmp_path}/x.json: No such file" in schema.err


def test_an_edited_file(written_history, schema, tmp_path):
    """A file with changed content is refused, and the history is unchanged."""
    written_history.write()
    file = tmp_path / "tables.json"
    schema("export", str(file))
    file.write_text(file.read_text().replace("varchar(100)", "varchar(101)"))
    schema("import", str(file), status=1)
    assert f"cannot import {file}: the checksum does not" in schema.err
    written_history.storage.open()
    assert len(written_history.storage.segments()) == 1
    written_history.storage.close()


def test_options_of_dumps(written_history, schema, tmp_path):
    """An exported file contains its position; setting another one is an error."""
    written_history.write()
    file = tmp_path / "tables.json"
    schema("export", str(file))
    schema("import", "--at", "binlog.000003:4", str(file), status=2)
    assert "--at and --schema are only for SQL dumps" in schema.err


def test_a_running_server_is_not_disturbed(
    written_history, schema, start_server, make_conf, tmp_path
):
    """An import into the history of a running server is refused, and says by whom."""
    written_history.write()
    file = tmp_path / "tables.json"
    schema("export", str(file))
    conf = make_conf(
        "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = example\n",
        example=f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"
        f"canal.instance.tsdb.dir = {tmp_path}/tsdb\n",
    )
    server = start_server(conf)
    server.read_until("canal-server 0")
    schema("import", str(file), status=1)
    assert f"a server (process {server.process.pid}) uses" in schema.err
    assert "canal-server stop" in schema.err


def test_a_history_that_is_being_written(written_history, schema, tmp_path):
    """Also a server with another data folder keeps its history to itself."""
    written_history.write()
    file = tmp_path / "tables.json"
    schema("export", str(file))
    written_history.storage.open()
    try:
        schema("import", str(file), status=1)
    finally:
        written_history.storage.close()
    assert "is in use by another server" in schema.err
