"""The demo shows changes as documented, and leaves nothing running and no files."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from change_messages import Maker
from demo import apply, differences
from fix_daemon import child_environ
from fix_random import LONGER
from fix_store import eventually
from server_packages import find_programs
from servers import ADMIN, PrivateServer, Server, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from demo import Copy

DEMO = Path(__file__).parents[2] / "tools/demo.py"
MARK = "DEMO_TEST_MARK"  # a variable by which a run's processes are found


class DemoRun:
    """A running demo, with the temporary files and processes that belong to it."""

    def __init__(self, temporary: Path, environ: dict[str, str], *arguments: str):
        self.temporary = temporary
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, str(DEMO), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Off: the script imports the other modules of its folder.
            env=child_environ()
            | {"PYTHONSAFEPATH": "", name: value, "TMPDIR": str(temporary)}
            | environ,
        )

    def read_until(self, text: str) -> None:
        """Read up to the line with this text; fails if the demo ends without it."""
        assert self.process.stdout
        for line in self.process.stdout:
            if text in line:
                return
        raise AssertionError(f"no {text!r}: {self.process.communicate()}")

    def left(self) -> list[str]:
        """Return the files that it left, and the processes that descend from it."""
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
    """Return a function that starts the demo; running demos are ended later."""
    runs: list[DemoRun] = []

    def start(*arguments: str, **environ: str) -> DemoRun:
        # The demo must not use the servers that the tests were given.
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
    """Skip if no private MySQL is available."""
    try:
        find_programs("mysql")
    except Unavailable as error:
        pytest.skip(f"no private MySQL: {error}")


def _url(server: Server) -> str:
    """Return a URL with an account that may create schemas."""
    private = isinstance(server, PrivateServer)
    user, password = ADMIN if private else (server.user, server.password)
    return f"mysql://{user}:{password}@{server.host}:{server.port}"


@pytest.mark.slow
@pytest.mark.usefixtures("_private_mysql")
def test_private(start_demo) -> None:
    """On a private server it shows changes, compares tables and leaves nothing."""
    run = start_demo("mysql")
    out, err = run.process.communicate()
    assert (run.process.returncode, err) == (0, "")
    assert "INSERT shop.book  id=1 title='Dune' price=9.95 stock=12" in out
    assert "UPDATE shop.book  id=1 pages=NULL → 612 price=9.95 → 10.95" in out
    assert out.count("INSERT shop.book  id=4") == 2  # before the kill and after it
    assert "the client's copy equals the table book: 3 rows" in out
    assert "the client's copy equals the table sale: 100,402 rows" in out
    assert run.left() == []


@pytest.mark.slow
def test_named(start_demo, source_server: Server) -> None:
    """On a named server it works in a schema of its own and drops it."""
    if source_server.flavour == "mysql" and LONGER == 1:
        pytest.skip("the private one is a MySQL; CANAL_TEST_LONGER=2 runs it")
    before = source_server.execute("SHOW DATABASES")
    run = start_demo(MYSQL_URL=_url(source_server))
    out, err = run.process.communicate()
    assert (run.process.returncode, err) == (0, "")
    assert "schema canal_demo_" in out
    assert "the client's copy equals the table sale: 100,402 rows" in out
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
    # A look at the version of a server may have started, and ends by itself.
    eventually(lambda: run.left() == [])


@pytest.mark.slow
def test_interrupted_named(start_demo, mysql_server: Server) -> None:
    """A signal while rows are written leaves no schema on a named server."""
    before = mysql_server.execute("SHOW DATABASES")
    run = start_demo(MYSQL_URL=_url(mysql_server))
    run.read_until("How fast")
    run.process.send_signal(signal.SIGINT)
    run.process.communicate()
    assert run.process.returncode == 128 + signal.SIGINT
    assert mysql_server.execute("SHOW DATABASES") == before


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://nobody:x@127.0.0.1:1", "127.0.0.1:1 does not let nobody in"),
        ("postgres://127.0.0.1", "must be mysql://user:password@host:port"),
    ],
)
def test_no_server(start_demo, url: str, message: str) -> None:
    """A server that is not available is reported in one line, with status 1."""
    run = start_demo(MYSQL_URL=url)
    _, err = run.process.communicate()
    assert run.process.returncode == 1
    assert err.startswith("demo: ")
    assert message in err
    assert err.count("\n") == 1
    assert run.left() == []


def test_nothing_to_start(start_demo, tmp_path: Path) -> None:
    """Without a server and without packages it reports what would help."""
    tmp_path.joinpath("none").mkdir()
    servers = tmp_path.parent / f"{tmp_path.name}-servers"
    run = start_demo(CANAL_SERVERS_DIR=str(servers), PATH=str(tmp_path / "none"))
    _, err = run.process.communicate()
    assert run.process.returncode == 1
    assert err.count("\n") == 1
    assert "MYSQL_URL=mysql://user:password@host:port" in err
    assert "apt-get install mariadb-server-core" in err


def test_reader_ended(start_demo) -> None:
    """If nobody reads its output any more it ends without a message."""
    run = start_demo(MYSQL_URL="mysql://nobody:x@127.0.0.1:1")
    assert run.process.stdout
    assert run.process.stderr
    run.process.stdout.close()
    assert run.process.stderr.read() == ""
    assert run.process.wait() == 1


def test_copy() -> None:
    """The copy follows inserts, updates of keys and deletes; differences are found."""
    maker = Maker("book")
    inserts = [maker.insert({"id": number, "n": 5}) for number in range(3)]
    received = maker.message(
        1,
        *inserts,
        *inserts,  # repeating is harmless
        maker.statement("ALTER TABLE book ADD COLUMN later INT"),
        maker.update({"id": 1, "n": 5}, {"id": 9, "n": 6}),
        maker.delete({"id": 2, "n": 5}),
    )
    copy: Copy = {}
    apply(copy, received.changes())
    # A column that was added later is NULL in rows that existed before.
    rows: list[dict[str, object]] = [
        {"id": 0, "n": 5, "later": None},
        {"id": 9, "n": 6, "later": None},
    ]
    assert differences(copy["book"], rows) == []
    (missing,) = differences(copy["book"], rows[:1])
    assert missing.startswith("row 9 is None in the table")
    (wrong,) = differences(copy["book"], [rows[0], rows[1] | {"n": 7}])
    assert wrong.startswith("row 9 is {'id': 9, 'n': 7")
    (unknown,) = differences(copy["book"], [*rows, {"id": 11, "n": 1}])
    assert unknown.endswith("None in the copy")
