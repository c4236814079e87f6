"""`mirror`: what can be asked of it without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fix_daemon import child_environ
from fix_mirror_process import NAME, MirrorProcess

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

import pyarrow as pa
from deltalake import write_deltalake

from canal_server import cli
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.rows.chunks import Chunk
from canal_server.mirror.run import dry_run
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_lease import Lease
from canal_server.mirror.state.manifests import ChunkManifest, CopyPlan
from canal_server.mirror.state.run_history import Batch, Status, write_status
from canal_server.mirror.state.state import Phase, States, TableState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from canal_server.mirror.lake.lake_storage import Folder

ORDERS = TableName("shop", "orders")
USERS = TableName("shop", "users")
DROPPED = TableName("shop", "gone")
DROPPED_TEXT = (
    "canal-server mirror copy: shop.gone: mirror copy has no such table: see "
    "`canal-server mirror status`"
)
WITHOUT_DELTA = (
    "import sys; sys.modules['deltalake'] = None\n"
    "from canal_server.cli import main; sys.exit(main(sys.argv[1:]))"
)


class Lake:
    """A mirror that was never started: its settings, and its part of the lake."""

    def __init__(self, folder: Path) -> None:
        self.conf = folder / "mirror.yml"
        self.path = folder / "lake"
        self.settings: dict[str, Any] = {
            "name": NAME,
            "canal": {"servers": "127.0.0.1:1", "destination": "example"},
            "source": {
                "host": "127.0.0.1", "port": 1, "user": "u", "password": "sécrèt",
            },
            "lake": {"path": str(self.path)},
            "tables": [{"match": r"shop\..*"}],
            "stream": {"retry_timeout": "100ms"},
        }  # fmt: skip
        self.conf.write_text(json.dumps(self.settings))

    @property
    def folder(self) -> Folder:
        """Return the mirror's own folder."""
        return open_folder(LakeSettings(path=str(self.path)), f"_mirror/{NAME}")

    @property
    def states(self) -> States:
        """Return what it knows of its tables."""
        return States(self.folder)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Give a lake with a table that follows, one that stopped, and a dropped one."""
    lake = Lake(tmp_path)
    for name, phase, message in (
        (ORDERS, Phase.FOLLOWING, ""),
        (USERS, Phase.STOPPED, "because"),
        (DROPPED, Phase.DROPPED, "dropped"),
    ):
        state = TableState(name, f"shop/{name.table}", rows=1_500, copies=1)
        lake.states.write(state.moved(phase, message))
    return lake


@pytest.fixture
def mirror(lake: Lake, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Give a function that runs the command and returns what it printed."""

    def run(*arguments: str, expected: int = 0, conf: Path | None = None) -> str:
        given = ["mirror", *arguments, "--conf", str(conf or lake.conf)]
        assert cli.main(given) == expected
        output = capsys.readouterr()
        return output.out + output.err

    return run


# --- status ---------------------------------------------------------------------------


def test_status_of_one_that_does_not_run(lake: Lake, mirror) -> None:
    """Its tables with phase and rows, and why some are stopped."""
    first, empty, headings, deleted, orders, users, *notes = mirror(
        "status"
    ).splitlines()
    assert first == f"mirror copy into {lake.path}: not running"
    assert empty == ""
    assert headings.split() == ["table", "phase", "copied", "target", "since"]
    assert deleted.split()[:4] == ["shop.gone", "dropped", "1,500", "shop/gone"]
    assert orders.split()[:4] == ["shop.orders", "following", "1,500", "shop/orders"]
    assert users.split()[:2] == ["shop.users", "stopped"]
    assert notes == ["shop.gone: dropped", "shop.users: because"]


def test_status_of_one_that_runs(lake: Lake, mirror) -> None:
    """Its process, and delay, rate, batch time and position of its stream."""
    now_ms = round(time.time() * 1000)
    last = Batch(now_ms, 7, 2_000, 0.31, 400, 9, "mysql-bin.000002", 1234, 1)
    status = Status("copy", "here", 5, now_ms, now_ms, rows_per_second=12.5, last=last)
    write_status(lake.folder, status)
    assert "not running; stopped 0 s ago" in mirror("status")
    with Lease(lake.folder):
        first, stream, *_ = mirror("status").splitlines()
        shown = json.loads(mirror("status", "--json"))
    assert f": process {os.getpid()} on " in first
    assert stream.startswith(
        "stream: delay 0.4 s, 12 rows/s, last batch 2,000 rows in 0.31 s, "
    )
    assert stream.endswith(" ago, up to mysql-bin.000002:1234")
    assert shown["running"] is True
    assert shown["status"]["last"]["delay_ms"] == 400
    assert [each["phase"] for each in shown["tables"]] == (
        ["dropped", "following", "stopped"]
    )


def copying(shown: str) -> str:
    """Return the progress of the copy, up to its rows."""
    (line,) = (line for line in shown.splitlines() if line.startswith("shop.orders"))
    return " ".join(line.partition("shop/orders")[0].split())


def test_status_of_a_copy(lake: Lake, mirror) -> None:
    """The progress of an unfinished copy is shown in chunks."""
    state = TableState(ORDERS, "shop/orders", copy_id="c1")
    lake.states.write(state.moved(Phase.COPYING))
    assert copying(mirror("status")) == "shop.orders copying 0"
    folder = lake.folder.below("copies/c1")
    chunks = tuple(Chunk(number) for number in range(4))
    CopyPlan(1, (), chunks).write(folder)
    ChunkManifest(2, 70, ()).write(folder)
    assert copying(mirror("status")) == "shop.orders copying 25% 70"
    (status,) = (
        each
        for each in json.loads(mirror("status", "--json"))["tables"]
        if each["table"] == "shop.orders"
    )
    assert (status["rows"], status["chunks_done"], status["chunks"]) == (70, 1, 4)


# --- copy -----------------------------------------------------------------------------


def test_copy_of_some_tables(lake: Lake, mirror) -> None:
    """It is asked for, whether the mirror runs or not; twice is once."""
    output = mirror("copy", "shop.orders", "shop.users", "shop.orders")
    assert output.splitlines() == [
        "will be copied again when the mirror starts:",
        "  shop.orders",
        "  shop.users",
    ]
    assert lake.states.requested() == [ORDERS, USERS]
    with Lease(lake.folder):
        assert f"process {os.getpid()} on" in mirror("copy", "shop.users")


def test_copy_of_tables_that_are_not_there(lake: Lake, mirror) -> None:
    """Each is reported, and nothing is requested."""
    output = mirror("copy", "shop.orders", "orders", "a.b", "shop.gone", expected=2)
    assert output.splitlines() == [
        "canal-server mirror copy: orders: write schema.table",
        "canal-server mirror copy: a.b: no pattern in the settings matches this table",
        DROPPED_TEXT,
    ]
    assert lake.states.requested() == []


def test_copy_of_all_tables_while_it_runs(lake: Lake, mirror) -> None:
    """All that are there are asked for; the stream stays the same."""
    with Lease(lake.folder):
        mirror("copy", "--all")
    assert lake.states.requested() == [ORDERS, USERS]
    assert lake.states.generation() == 0


def test_copy_of_all_tables_restarts_the_stream(lake: Lake, mirror) -> None:
    """Tables wait, the stream restarts; what the server keeps is reported."""
    output = mirror("copy", "--all")
    assert "the server still keeps the old subscription copy" in output
    assert lake.states.generation() == 1
    phases = {name: each.phase for name, each in lake.states.read_all().items()}
    assert phases == {
        ORDERS: Phase.WAITING,
        USERS: Phase.WAITING,
        DROPPED: Phase.DROPPED,
    }
    assert "canal-server subscriptions remove copy-1" in mirror("copy", "--all")


def test_copy_says_which(mirror) -> None:
    """Either tables or all of them."""
    for arguments in ((), ("--all", "shop.orders")):
        with pytest.raises(SystemExit) as ended:
            mirror("copy", *arguments)
        assert ended.value.code == cli.UNUSABLE


# --- dry run --------------------------------------------------------------------------


def test_dry_run_without_servers(lake: Lake, mirror) -> None:
    """Each missing server is reported; the password is not, nothing is created."""
    for path in lake.path.rglob("*.json"):
        path.unlink()
    before = sorted(lake.path.rglob("*"))
    output = mirror("--dry-run", expected=2)
    assert "canal-server mirror: source: cannot connect to 127.0.0.1:1" in output
    assert "canal-server mirror: canal: no server runs destination example" in output
    assert "sécrèt" not in output
    assert sorted(lake.path.rglob("*")) == before


def test_first_start_without_servers(lake: Lake, mirror, tmp_path: Path) -> None:
    """What is wrong with each of them is said at once, not one after the other."""
    lake.settings["lake"]["path"] = str(tmp_path / "new")
    lake.conf.write_text(json.dumps(lake.settings))
    output = mirror(expected=1)
    assert "no server runs destination example" in output
    assert "cannot connect to 127.0.0.1:1" in output
    assert "sécrèt" not in output


def test_a_lake_that_cannot_be(lake: Lake, mirror, tmp_path: Path) -> None:
    """A lake's path that leads through a file is a problem."""
    lake.settings["lake"]["path"] = str(lake.conf / "lake")
    other = tmp_path / "other.yml"
    other.write_text(json.dumps(lake.settings))
    output = mirror("--dry-run", conf=other, expected=2)
    assert f"lake.path: {lake.conf} is not a folder" in output


def test_a_lake_that_some_cannot_read(lake: Lake, mirror, tmp_path: Path) -> None:
    """A lake's path with a character that engines decode is a warning."""
    lake.settings["lake"]["path"] = str(tmp_path / "my lake")
    other = tmp_path / "other.yml"
    other.write_text(json.dumps(lake.settings))
    output = mirror("--dry-run", conf=other, expected=2)
    assert f"warning: lake.path: {tmp_path}/my lake has a space: some" in output


def test_dry_run(source_server, make_pipeline, database, mirror, tmp_path) -> None:
    """Every table with folder, key, masks and estimates; rights that are missing."""
    pipeline = make_pipeline(source_server, database)
    pipeline.start()
    process = MirrorProcess(pipeline, tmp_path)
    source_server.execute(
        f"CREATE TABLE {database}.orders (id INT, mail TEXT, n INT, PRIMARY KEY (id))",
        f"CREATE TABLE {database}.log (a INT)",
        f"INSERT INTO {database}.orders VALUES (1, 'a', 2), (2, 'b', 3)",
        "CREATE USER IF NOT EXISTS 'looks'@'%' IDENTIFIED BY 'secret-9'",
        f"GRANT SELECT ON {database}.log TO 'looks'@'%'",
        f"GRANT SELECT (id) ON {database}.orders TO 'looks'@'%'",
    )
    process.settings["mask_salt"] = "salt-of-mine"
    process.settings["tables"] = [
        {"match": rf"{database}\.orders", "masks": {"mail": "hash"}, "without": ["n"]},
        {"match": rf"{database}\.log", "deletes": "soft", "to": "logs"},
    ]
    process.write_conf()
    output = mirror("--dry-run", conf=process.conf).splitlines()
    assert output[0] == "mirror copy: 2 tables"
    kind = "MySQL" if source_server.flavour == "mysql" else "MariaDB"
    assert f"127.0.0.1:{source_server.port}, {kind} " in output[1]
    assert f"127.0.0.1:{pipeline.server_port}, destination example, reads" in output[2]
    log, orders = (line.split() for line in output[6:8])
    assert log == f"{database}.log logs delta soft none 1 - 0 1".split()
    assert orders[:4] == [f"{database}.orders", f"{database}/orders", "delta", "hard"]
    assert orders[4:10] == ["id", "2,", "1", "left", "out", "mail:"]
    assert output[-1] == "no problems found"

    process.settings["copy"] = {"keyless_lock": True}
    process.settings["source"] |= {"user": "looks", "password": "secret-9"}
    process.settings["tables"] = [{"match": rf"{database}\..*"}]
    process.write_conf()
    output = mirror("--dry-run", conf=process.conf, expected=2)
    hidden = f"table {database}.orders: account looks does not see mail, n; have an"
    assert hidden in output
    assert f"account looks may not lock table {database}.log, which" in output
    assert f"GRANT LOCK TABLES ON `{database}`.* TO 'looks'@'%'" in output
    assert "secret-9" not in output

    somewhere = str(process.path / database / "log")
    write_deltalake(somewhere, pa.table({"a": [1]}))
    process.settings["tables"][0]["format"] = "json"
    process.write_conf()
    output = mirror("--dry-run", conf=process.conf, expected=2)
    assert (
        f"table {database}.log: {somewhere} has a Delta table, but format is" in output
    )

    process.settings["canal"]["destination"] = "nowhere"
    process.write_conf()
    output = mirror("--dry-run", conf=process.conf, expected=2)
    assert "canal: destination nowhere at 127.0.0.1:" in output
    assert "see canal.destination, and canal.destinations of the server" in output

    process.settings["canal"]["servers"] = "127.0.0.1:1"
    process.settings["source"]["password"] = "not-9"
    process.write_conf()
    output = mirror("--dry-run", conf=process.conf, expected=2)
    assert "for 2 s (stream.retry_timeout)" in output
    assert "correct the user name or the password in the settings" in output


# --- the command ----------------------------------------------------------------------


def test_without_the_extra(lake: Lake) -> None:
    """What is missing is named, and how it comes."""
    done = subprocess.run(
        [
            sys.executable, "-c", WITHOUT_DELTA,
            "mirror", "verify", "--conf", str(lake.conf),
        ],
        capture_output=True, text=True, check=False, timeout=60, env=child_environ(),
    )  # fmt: skip
    assert done.returncode == cli.FAILED
    assert done.stderr == (
        "canal-server mirror verify: the mirror needs deltalake, which is not"
        " installed: pip install 'canal-server[mirror]'\n"
    )


def test_as_a_module(lake: Lake) -> None:
    """`python -m canal_server.mirror` is the same; without a server it ends."""
    done = subprocess.run(
        [sys.executable, "-m", "canal_server.mirror", "--conf", str(lake.conf)],
        capture_output=True, text=True, check=False, timeout=60, env=child_environ(),
    )  # fmt: skip
    assert done.returncode == cli.FAILED
    *_, line = done.stderr.splitlines()  # after the log
    assert line.startswith("canal-server mirror: no server runs destination example: ")


def test_settings_that_cannot_be_used(mirror, tmp_path: Path) -> None:
    """Problems of the file are reported with their line, before anything is done."""
    conf = tmp_path / "wrong.yml"
    conf.write_text("name: a\nlaek: {}\n")
    for arguments, name in (
        ((), "mirror"),
        (("status",), "mirror status"),
        (("copy", "--all"), "mirror copy"),
        (("--dry-run",), "mirror"),
    ):
        output = mirror(*arguments, conf=conf, expected=cli.UNUSABLE).splitlines()
        assert any("laek" in line for line in output)
        assert all(line.startswith(f"canal-server {name}: {conf}:") for line in output)


def test_a_table_that_the_server_does_not_see() -> None:
    """The missing right of its account is reported; filters do not hide it."""
    table: Any = SimpleNamespace(table=SimpleNamespace(source=ORDERS), columns=())
    unknown = SimpleNamespace(columns=(), left_out="")
    channel: Any = SimpleNamespace(call=lambda _: unknown, destination="d")
    settings: Any = None
    (shown,) = dry_run._compared(table, channel, settings)
    assert shown == (
        "table shop.orders: canal-server does not know it: the account of destination "
        "d needs SELECT on it"
    )
