"""The command decode: files and servers, their columns, ranges, errors, comparison."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from ddl_event import statement_of
from fix_daemon import child_environ
from fix_store import eventually
from golden_form import load_workload
from purge import purge

from canal_server import cli
from canal_server.cli.decode import DIFFERENT, entry_object
from canal_server.errors import ConfigError
from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.model.entry import EntryType, EventType
from canal_server.model.positions import EntryPosition
from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    Header,
    RowChange,
    RowData,
    TransactionEnd,
    encode,
)
from canal_server.source.read import compare_values
from canal_server.source.read.file_columns import load_columns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from golden_form import Json
    from servers import Server

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the library's

BOOK = TableMeta(
    "shop",
    "book",
    (
        ColumnMeta("id", "bigint unsigned", is_key=True, nullable=False),
        ColumnMeta("title", "varchar(50)", "utf8mb4"),
        ColumnMeta("price", "decimal(10,2)"),
    ),
)


def columns_json(tables: Iterable[TableMeta]) -> str:
    """Return the text of a file that `load_columns` reads."""
    return json.dumps(
        [
            {
                "schema": meta.schema,
                "table": meta.table,
                "columns": [
                    {
                        "name": column.name,
                        "type": column.mysql_type,
                        "charset": column.charset,
                        "key": column.is_key,
                        "nullable": column.nullable,
                    }
                    for column in meta.columns
                ],
            }
            for meta in tables
        ],
        ensure_ascii=False,
        indent=1,
    )


def decode(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[Json]:
    """Run the command and return the objects that it printed."""
    assert cli.main(["decode", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def failure(capsys: pytest.CaptureFixture[str], status: int, *arguments: object) -> str:
    """Run the command, which fails with a status, and return what it says."""
    assert cli.main(["decode", *map(str, arguments)]) == status
    return capsys.readouterr().err


@pytest.fixture
def recorded(tmp_path: Path):
    """Give `recorded(workload)`: the first of its binlogs as a file."""

    def write(name: str) -> Path:
        binlogs = load_workload(name).binlogs
        path = tmp_path / next(iter(binlogs))
        path.write_bytes(binlogs[path.name])
        return path

    return write


# --- files ------------------------------------------------------------------------


def test_a_file_by_its_table_maps(capsys, recorded) -> None:
    """Without columns they are numbered, and every row of the file is printed."""
    path = recorded("ev_dml")
    printed = decode(capsys, path)
    rows = [change for change in printed if "after" in change or "before" in change]
    golden = load_workload("ev_dml").golden
    expected = sum(
        len(entry["rowChange"]["rowDatas"]) for entry in golden if "rowChange" in entry
    )
    assert len(rows) == expected > 50
    assert all(name.startswith("@") for row in rows for name in row.get("after", ()))
    assert {row["file"] for row in rows} == {path.name}


def test_a_file_with_full_metadata(capsys, recorded) -> None:
    """Full metadata of the table maps give the columns their names and keys."""
    printed = decode(capsys, recorded("ev_metadata_full"))
    rows = [change for change in printed if "after" in change]
    assert rows
    assert not any(name.startswith("@") for row in rows for name in row["after"])
    assert any(row["key"] for row in rows)


def test_several_files(capsys, tmp_path) -> None:
    """Files are read one after the other, each from its own beginning."""
    paths = []
    for name, binlog in load_workload("ev_rotate").binlogs.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(binlog)
    printed = decode(capsys, *paths)
    files = [change["file"] for change in printed]
    assert files == sorted(files)
    assert len(set(files)) > 1


def test_filter_count_and_transactions(capsys, recorded) -> None:
    """--filter leaves tables out, --count ends early, --transactions shows marks."""
    path = recorded("ev_dml")
    everything = decode(capsys, path)
    table = next(c for c in everything if "after" in c)
    only = decode(capsys, path, "--filter", f"{table['schema']}\\.{table['table']}")
    tables = {(change["schema"], change["table"]) for change in only if "key" in change}
    assert tables == {(table["schema"], table["table"])}
    assert decode(capsys, path, "--count", 3) == everything[:3]
    marks = {change["type"] for change in decode(capsys, path, "--transactions")}
    assert marks >= {"BEGIN", "END"}


def test_entries(capsys, recorded) -> None:
    """--entries prints the fields of whole entries by the protocol's names."""
    printed = decode(capsys, recorded("ev_dml"), "--entries")
    kinds = {entry["entryType"] for entry in printed}
    assert kinds == {"TRANSACTIONBEGIN", "ROWDATA", "TRANSACTIONEND"}
    row = next(e for e in printed if e.get("rowChange", {}).get("rowDatas"))
    assert row["header"]["serverenCode"] == "UTF-8"
    assert row["rowChange"]["rowDatas"][0]["afterColumns"][0]["mysqlType"]


def test_entry_object() -> None:
    """An entry's object has all that differs from the defaults, enums by name."""
    change = RowChange(
        event_type=EventType.INSERT,
        is_ddl=False,
        row_datas=(RowData(after_columns=(Column(name="a", is_null=False),)),),
    )
    entry = Entry(Header(logfile_name="b.1"), EntryType.ROWDATA, encode(change))
    assert entry_object(entry) == {
        "header": {"logfileName": "b.1"},
        "entryType": "ROWDATA",
        "rowChange": {
            "eventType": "INSERT",
            "isDdl": False,
            "rowDatas": [{"afterColumns": [{"name": "a", "isNull": False}]}],
        },
    }
    end = Entry(Header(), EntryType.TRANSACTIONEND, encode(TransactionEnd()))
    assert entry_object(end)["transactionEnd"] == {}


def test_flat_messages(capsys, recorded) -> None:
    """With --canal-json an entry is a line, with all of its rows."""
    path = recorded("ev_dml")
    rows = [each for each in decode(capsys, path) if each["type"] == "UPDATE"]
    flat = decode(capsys, path, "--canal-json")
    updates = [each for each in flat if each["type"] == "UPDATE"]
    assert [row["after"] for row in rows] == [
        row for each in updates for row in each["data"]
    ]
    assert len(decode(capsys, path, "--canal-json", "--count", "3")) == 3
    assert cli.main(["decode", str(path), "--canal-json", "--entries"]) == 2
    assert "--entries has no effect with --canal-json" in capsys.readouterr().err


def test_a_file_that_ends_early(capsys, recorded) -> None:
    """A cut file is printed up to its last whole event, then the error names it."""
    path = recorded("ev_dml")
    whole = decode(capsys, path)
    path.write_bytes(path.read_bytes()[:-7])
    assert cli.main(["decode", str(path)]) == 1
    shown = capsys.readouterr()
    assert "the file is truncated: " in shown.err
    assert path.name in shown.err
    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert lines == whole[: len(lines)]
    assert lines


def test_damaged_and_missing_files(capsys, tmp_path, recorded) -> None:
    """A damaged event, another kind of file, and none at all give status 1."""
    path = recorded("ev_dml")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert "checksum" in failure(capsys, 1, path)
    other = tmp_path / "notes.txt"
    other.write_text("nothing of the kind")
    assert "is not a binlog file, which starts" in failure(capsys, 1, other)
    assert "No such file" in failure(capsys, 1, tmp_path / "none")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "expected binlog files"),
        (
            ["x", "--source", "mysql://u@h", "--from", "b.1:4"],
            "files and --from exclude",
        ),
        (["--from", "b.1:4", "--conf", "/nowhere"], "/nowhere/canal.properties"),
        (["x", "--until", "-1h"], "--until must be FILE:POS for files"),
        (["x", "--compare"], "--compare requires"),
        (["x", "--follow"], "--follow requires"),
        (
            ["x", "--source", "mysql://u@h", "--columns", "c"],
            "exclude each other for files",
        ),
        (["x", "--columns", "/nowhere/columns.json"], "No such file"),
        (["x", "--filter", "("], "--filter"),
        (["x", "--source", "mysql://u@h", "--password-env", "NO_SUCH"], "NO_SUCH"),
    ],
)
def test_wrong_options(capsys, arguments, problem) -> None:
    """Options that do not go together or cannot be used are named, with status 2."""
    assert problem in failure(capsys, 2, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [["--source", "http://h"], ["--source", "mysql://h"], ["--source", "mysql://u@h:x"],
     ["--from", "b.1"], ["--count", "0"], ["--tls", "MAYBE"]],
)  # fmt: skip
def test_malformed_options(capsys, arguments) -> None:
    """An option that cannot be read is an error of usage that names it."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["decode", "x", *arguments])
    assert caught.value.code == 2
    assert arguments[0] in capsys.readouterr().err


# --- columns ----------------------------------------------------------------------


def test_columns_file(tmp_path) -> None:
    """A column file is parsed as it was written, and the format never changes."""
    path = tmp_path / "columns.json"
    path.write_text(columns_json([BOOK]), "utf-8")
    columns = load_columns(path)
    assert columns.find("shop", "book") == BOOK
    assert columns.find("shop", "none") is None
    columns.apply(statement_of("drop table book", "shop"))
    assert columns.refresh("shop", "book", EntryPosition("binlog.000001", 4)) == BOOK


@pytest.mark.parametrize("text", ["{", '[{"schema": "s"}]', "[1]", '{"a": {}}', "3"])
def test_columns_file_that_is_none(tmp_path, text) -> None:
    """Another JSON, or none, is an error that names the file."""
    path = tmp_path / "columns.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"columns\.json: not a list of tables"):
        load_columns(path)


# --- servers ----------------------------------------------------------------------


@pytest.fixture
def filled(source_server: Server, database: str):
    """Give server, schema and the position before three changes of a table."""
    source_server.execute(
        f"CREATE TABLE {database}.book (id BIGINT UNSIGNED PRIMARY KEY,"
        " title VARCHAR(50), price DECIMAL(10,2))"
    )
    file, offset = source_server.binlog_position()
    source_server.execute(
        f"INSERT INTO {database}.book VALUES (1, 'Ω', 1.5), ({2**64 - 1}, '', 0)",
        f"UPDATE {database}.book SET price = 2 WHERE id = 1",
    )
    return source_server, database, f"{file}:{offset}"


def test_a_server(capsys, monkeypatch, filled) -> None:
    """A server's binlog is printed from a position to its end, with its columns."""
    server, schema, start = filled
    monkeypatch.setenv("SECRET", server.password)
    url = f"mysql://{server.user}@{server.host}:{server.port}"
    printed = decode(
        capsys, "--source", url, "--password-env", "SECRET", "--from", start,
        "--filter", rf"{schema}\..*",
    )  # fmt: skip
    rows = [change for change in printed if "key" in change]
    assert [row["type"] for row in rows] == ["INSERT", "INSERT", "UPDATE"]
    assert rows[0]["after"] == {"id": "1", "title": "Ω", "price": "1.50"}
    assert rows[1]["after"] == {"id": str(2**64 - 1), "title": "", "price": "0.0"}
    assert rows[2]["changed"] == ["price"]
    assert rows[2]["key"] == ["id"]


def test_a_password_in_a_file(capsys, tmp_path, filled) -> None:
    """The password may be in a file, which is named if it cannot be read."""
    server, schema, start = filled
    secret = tmp_path / "password"
    url = f"mysql://{server.user}@{server.host}:{server.port}"
    options = ("--source", url, "--password-file", str(secret), "--from", start,
               "--filter", rf"{schema}\..*")  # fmt: skip
    problem = failure(capsys, 2, *options)
    assert f"--password-file {secret}: cannot read: No such" in problem
    secret.write_text(f"{server.password}\n")
    assert len([each for each in decode(capsys, *options) if "key" in each]) == 3


def test_until(capsys, filled) -> None:
    """--until stops before the event that starts at the position."""
    server, schema, start = filled
    options = ["--source", server.url, "--from", start, "--filter", rf"{schema}\..*"]
    printed = decode(capsys, *options)
    update = next(change for change in printed if change["type"] == "UPDATE")
    position = f"{update['file']}:{update['position']}"
    before = decode(capsys, *options, "--until", position)
    assert before == printed[: printed.index(update)]


def test_times(capsys, make_conf, database, source_server) -> None:
    """--from and --until take times, of the source of a configured destination.

    Each is the last boundary of transactions before the time.
    """
    source = source_server
    conf = make_conf(
        example=f"canal.instance.master.address = {source.host}:{source.port}\n"
        f"canal.instance.dbUsername = {source.user}\n"
        f"canal.instance.dbPassword = {source.password}\n"
    )
    source.execute(f"CREATE TABLE {database}.t (a INT)")
    options = ["--conf", conf, "--filter", rf"{database}\.t"]
    oldest = decode(capsys, *options, "--from", "oldest")
    (made,) = (each for each in oldest if each["type"] == "CREATE")
    # A binlog's times are whole seconds.
    wait_for_second(source, made["time"] // 1000 + 1)
    source.execute(f"INSERT INTO {database}.t VALUES (1)")
    after = decode(capsys, *options, "--from", made["time"] + 1000)
    assert [each["type"] for each in rows_of(after)] == ["INSERT"]
    before = decode(
        capsys, *options, "--from", "oldest", "--until", made["time"] + 1000
    )
    assert made in before
    assert rows_of(before) == []


@pytest.mark.slow
def test_a_time_before_the_oldest_file(capsys, own_server) -> None:
    """A whole binlog is read from its beginning, which is said; a purged one is not."""
    server = own_server("mysql")
    options = ["--source", server.url, "--from", "-520w"]
    assert cli.main(["decode", *options]) == 0
    first = server.execute("SHOW BINARY LOGS")[0][0]
    assert capsys.readouterr().err == (
        "canal-server decode: -520w is before the first transaction in the binlog of"
        f" the source: starting with its oldest file, {first}\n"
    )
    server.execute("FLUSH BINARY LOGS")
    purge(server, server.binlog_position()[0])
    output = failure(capsys, 1, *options)
    assert "`--from oldest` starts at the oldest file" in output


def rows_of(changes: list[Json]) -> list[Json]:
    """Return those that are about rows."""
    return [each for each in changes if "key" in each]


def wait_for_second(source: Server, second: int) -> None:
    """Return when the source's clock has reached a second."""
    eventually(lambda: source.execute("SELECT UNIX_TIMESTAMP()")[0][0] >= second)


def test_a_file_that_was_purged(capsys, filled) -> None:
    """A position that is not there is an error without advice for destinations."""
    server, _, _ = filled
    output = failure(capsys, 1, "--source", server.url, "--from", "binlog.000999:4")
    assert "binlog.000999 does not exist yet: the newest binlog file" in output
    assert "position show" not in output
    assert "journal.name" not in output


def test_a_file_with_the_columns_of_a_server(capsys, filled) -> None:
    """--source gives the columns for files, too."""
    server, schema, start = filled
    folder = getattr(server, "data_folder", None)
    if folder is None:
        pytest.skip("the files of the server are not accessible")
    printed = decode(
        capsys, folder / start.partition(":")[0], "--source", server.url,
        "--filter", rf"{schema}\.book",
    )  # fmt: skip
    rows = [change for change in printed if "key" in change]
    assert rows[0]["after"] == {"id": "1", "title": "Ω", "price": "1.50"}


def test_a_server_that_refuses(capsys, filled) -> None:
    """A wrong password and a missing file are reported, status 1."""
    server, _, start = filled
    wrong = f"mysql://nobody:x@{server.host}:{server.port}"
    assert "nobody" in failure(capsys, 1, "--source", wrong, "--from", start)
    shown = failure(capsys, 1, "--source", server.url, "--from", "none.000001:4")
    assert "no binlog file has the name none.000001: the source has " in shown


def test_columns_that_do_not_fit(capsys, tmp_path, filled) -> None:
    """Columns that contradict the table map end the command with the difference."""
    server, schema, start = filled
    path = tmp_path / "columns.json"
    path.write_text(columns_json([TableMeta(schema, "book", BOOK.columns[:2])]))
    shown = failure(
        capsys, 1, "--source", server.url, "--columns", path, "--from", start,
        "--filter", rf"{schema}\.book",
    )  # fmt: skip
    assert "3 in the binlog vs 2 known" in shown


# --- comparison -------------------------------------------------------------------


def test_compare(capsys, filled) -> None:
    """Nothing differs: status 0, and the counts say what was compared."""
    server, schema, start = filled
    arguments = ["--source", server.url, "--from", start, "--filter", rf"{schema}\..*"]
    assert cli.main(["decode", *arguments, "--compare"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "compared 12 values of 3 rows\n0 differences" in shown.err


def test_compare_finds(capsys, monkeypatch, filled) -> None:
    """A different value is printed with its position, and the status is 3."""
    server, schema, start = filled
    form = compare_values.decimal_text
    monkeypatch.setattr(
        compare_values,
        "decimal_text",
        lambda value, scale: "wrong" if value == 2 else form(value, scale),
    )
    arguments = ["--source", server.url, "--from", start, "--filter", rf"{schema}\..*"]
    assert cli.main(["decode", *arguments, "--compare"]) == DIFFERENT
    shown = capsys.readouterr()
    (difference,) = [json.loads(line) for line in shown.out.splitlines()]
    assert difference.pop("position") > 4
    assert difference == {
        "table": f"{schema}.book", "type": "UPDATE", "file": start.partition(":")[0],
        "row": 0, "key": {"id": "1"}, "column": "after price", "ours": "2.0",
        "theirs": "wrong",
    }  # fmt: skip
    assert "1 differences" in shown.err


def test_compare_without_the_library() -> None:
    """Where mysql-replication is missing, the error says how to get it; status 1."""
    code = (
        "import sys; sys.modules['pymysqlreplication'] = None\n"
        "from canal_server.cli import main\n"
        "raise SystemExit(main(['decode', '--source', 'mysql://u@127.0.0.1:1',"
        " '--from', 'b.1:4', '--until', 'b.1:5', '--compare']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=child_environ(),
    )
    assert done.returncode == 1
    assert "pip install mysql-replication" in done.stderr
