"""The demo does what it promises: shows changes, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from demo_client import Copy, rows_of
from fix_daemon import child_environ
from fix_random import LONGER
from fix_store import eventually
from server_packages import find_programs
from servers import ADMIN, PrivateServer, Server, Unavailable

from canal_server import client
from canal_server.protocol.entry_messages import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEMO = Path(__file__).parents[2] / "tools/demo.py"
MARK = "DEMO_TEST_MARK"  # a variable by which a run's processes are found


class DemoRun:
    """A running demo whose temporary files and processes can be told from others'."""

    def __init__(self, temporary: Path, environ: dict[str, str], *arguments: str):
        self.temporary = temporary
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, str(DEMO), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Empty: off, since a script finds its neighbours by its own folder.
            env=child_environ()
            | {"PYTHONSAFEPATH": "", name: value, "TMPDIR": str(temporary)}
            | environ,
        )

    def read_until(self, text: str) -> None:
        """Read up to the line with this text; fails when the demo ends before."""
        assert self.process.stdout
        for line in self.process.stdout:
            if text in line:
                return
        raise AssertionError(f"{text!r} never came: {self.process.communicate()}")

    def left(self) -> list[str]:
        """Return what it left: files, and processes that descend from it."""
        found = [str(path) for path in self.temporary.iterdir()]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environ = (process / "environ").read_bytes()
                if self.mark.encode() in environ.split(b"\0"):
                    found.append((process / "cmdline").read_text())
            except OSError:
                pass  # it has ended, or is another user's
        return found


@pytest.fixture
def start_demo(tmp_path: Path) -> Iterator[Callable[..., DemoRun]]:
    """Return a function that starts the demo; what still runs is ended after."""
    runs: list[DemoRun] = []

    def start(*arguments: str, **environ: str) -> DemoRun:
        # Whatever the tests themselves were given must not lead the demo elsewhere.
        unnamed = {"MYSQL_URL": "", "MARIADB_URL": ""}
        runs.append(DemoRun(tmp_path, unnamed | environ, *arguments))
        return runs[-1]

    yield start
    for run in runs:
        run.process.terminate()
        with run.process:  # closes the pipes and waits
            pass


@pytest.fixture
def _private_mysql() -> None:
    """Skip where no private MySQL can be had."""
    try:
        find_programs("mysql")
    except Unavailable as error:
        pytest.skip(f"no MySQL of our own: {error}")


@pytest.mark.slow
@pytest.mark.usefixtures("_private_mysql")
def test_private(start_demo) -> None:
    """On a private server it shows changes, sums up and leaves nothing."""
    run = start_demo("mysql")
    out, err = run.process.communicate()
    assert (run.process.returncode, err) == (0, "")
    assert "INSERT shop.book  id=1 title='Dune' price=9.95 stock=12" in out
    assert "UPDATE shop.book  id=1 pages=NULL → 612 price=9.95 → 10.95" in out
    assert out.count("INSERT shop.book  id=4") == 2  # before the kill and after it
    assert "the client's copy equals the tables: 3 books and 100,402 sales" in out
    assert "100,412 rows, 506 transactions, " in out
    assert "\x1b" not in out  # it is no terminal
    assert run.left() == []


@pytest.mark.slow
def test_named(start_demo, source_server: Server) -> None:
    """On a named server it works in a schema of its own and drops it."""
    if source_server.flavour == "mysql" and LONGER == 1:
        pytest.skip("the private one is a MySQL; CANAL_TEST_LONGER=2 runs it")
    before = source_server.execute("SHOW DATABASES")
    user, password = ADMIN
    if not isinstance(source_server, PrivateServer):
        user, password = source_server.user, source_server.password
    url = f"mysql://{user}:{password}@{source_server.host}:{source_server.port}"
    run = start_demo(MYSQL_URL=url)
    out, err = run.process.communicate()
    assert (run.process.returncode, err) == (0, "")
    assert "schema canal_demo_" in out
    assert "the client's copy equals the tables" in out
    assert source_server.execute("SHOW DATABASES") == before
    assert run.left() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("Setting up", signal.SIGINT),
        ("source", signal.SIGTERM),
        ("client", signal.SIGHUP),
        ("DELETE", signal.SIGINT),
        ("is killed", signal.SIGINT),
        ("How fast", signal.SIGTERM),
    ],
)
@pytest.mark.usefixtures("_private_mysql")
def test_interrupted(start_demo, moment: str, number: signal.Signals) -> None:
    """A signal ends it cleanly, whatever it is doing."""
    run = start_demo("mysql")
    run.read_until(moment)
    run.process.send_signal(number)
    _, err = run.process.communicate()
    assert run.process.returncode == 128 + number, err
    assert err == f"\ndemo: ended by {number.name}; all is cleaned up\n"
    # A look at the version of a server may have begun, and ends by itself.
    eventually(lambda: run.left() == [])


@pytest.mark.slow
def test_interrupted_named(start_demo, mysql_server: Server) -> None:
    """A signal while rows are written leaves no schema on a named server."""
    before = mysql_server.execute("SHOW DATABASES")
    user, password = ADMIN
    if not isinstance(mysql_server, PrivateServer):
        user, password = mysql_server.user, mysql_server.password
    url = f"mysql://{user}:{password}@{mysql_server.host}:{mysql_server.port}"
    run = start_demo(MYSQL_URL=url)
    run.read_until("How fast")
    run.process.send_signal(signal.SIGINT)
    run.process.communicate()
    assert run.process.returncode == 128 + signal.SIGINT
    assert mysql_server.execute("SHOW DATABASES") == before


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://nobody:x@127.0.0.1:1", "127.0.0.1:1 does not let nobody in"),
        ("postgres://127.0.0.1", "must be mysql://user:password@host:port"),
    ],
)
def test_no_server(start_demo, url: str, told: str) -> None:
    """A server that cannot be had is told in one line, with status 1."""
    run = start_demo(MYSQL_URL=url)
    _, err = run.process.communicate()
    assert run.process.returncode == 1
    assert err.startswith("demo: ")
    assert told in err
    assert err.count("\n") == 1
    assert run.left() == []


def test_nothing_to_start(start_demo, tmp_path: Path) -> None:
    """Without a server and without packages it tells what would help."""
    tmp_path.joinpath("none").mkdir()
    servers = tmp_path.parent / f"{tmp_path.name}-servers"
    run = start_demo(CANAL_SERVERS_DIR=str(servers), PATH=str(tmp_path / "none"))
    _, err = run.process.communicate()
    assert run.process.returncode == 1
    assert err.count("\n") == 1
    assert "MYSQL_URL=mysql://user:password@host:port" in err
    assert "apt-get install mariadb-server-core" in err


def test_reader_gone(start_demo) -> None:
    """When nobody reads its output any more it ends without a complaint."""
    run = start_demo(MYSQL_URL="mysql://nobody:x@127.0.0.1:1")
    assert run.process.stdout
    assert run.process.stderr
    run.process.stdout.close()
    assert run.process.stderr.read() == ""
    assert run.process.wait() == 1


def _entry(event: client.EventType, *rows: client.RowData) -> client.Entry:
    return client.Entry(
        header=client.Header(
            table_name="book",
            event_type=event,
            props=(client.Pair("rowsCount", str(len(rows))),),
        ),
        entry_type=client.EntryType.ROWDATA,
        store_value=encode(client.RowChange(event_type=event, row_datas=rows)),
    )


def _columns(**values: str) -> tuple[client.Column, ...]:
    return tuple(
        client.Column(name=name, value=value, is_key=name == "id")
        for name, value in values.items()
    )


def test_copy() -> None:
    """The copy follows inserts, updates of keys and deletes, and finds differences."""
    copy = Copy()
    inserts = _entry(
        client.EventType.INSERT,
        *(client.RowData(after_columns=_columns(id=str(n), n="5")) for n in range(3)),
    )
    assert rows_of(inserts) == 3
    copy.apply(inserts)
    copy.apply(inserts)  # once more does no harm
    copy.apply(
        _entry(
            client.EventType.UPDATE,
            client.RowData(
                before_columns=_columns(id="1", n="5"),
                after_columns=_columns(id="9", n="6"),
            ),
        )
    )
    copy.apply(
        _entry(
            client.EventType.DELETE,
            client.RowData(before_columns=_columns(id="2", n="5")),
        )
    )
    # A column that was added later is NULL in rows that were there before.
    rows: list[dict[str, object]] = [
        {"id": 0, "n": 5, "later": None},
        {"id": 9, "n": 6, "later": None},
    ]
    assert copy.differences("book", rows) == []
    (missing,) = copy.differences("book", rows[:1])
    assert missing == "book 9: only the copy has it"
    (wrong,) = copy.differences("book", [rows[0], rows[1] | {"n": 7}])
    assert wrong.startswith("book 9: the table has {'id': 9, 'n': 7")
    (unknown,) = copy.differences("book", [*rows, {"id": 11, "n": 1}])
    assert unknown.startswith("book 11: ")
