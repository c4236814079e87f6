"""What both demos need: a source, canal-server on a conf folder, and a clean end."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import time
import uuid
from pathlib import Path
from subprocess import SubprocessError
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import javaproperties
from pymysql.err import MySQLError
from server_data import template_of
from server_folders import cache_folder
from server_spawner import SPAWNER
from servers import PrivateServer, Server, Unavailable, named_or_private

from canal_server.daemon.control import ControlError, ask
from canal_server.errors import CanalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack
    from subprocess import Popen

DESTINATION = "example"
START_SECONDS_MAX, STOP_SECONDS_MAX = 30.0, 15.0
URL = "MYSQL_URL=mysql://user:password@host:port"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoFailed(Exception):  # noqa: N818  # not an error of the code
    """The demo cannot continue; the message says why."""


def run(demo: Callable[[ExitStack], None], *failures: type[Exception]) -> int:
    """Run a demo and release what it holds; returns the exit status."""
    failures += DemoFailed, Unavailable, CanalError, MySQLError
    failures += OSError, SubprocessError
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, errors="replace")
    _on_signals(_interrupt)
    try:
        with contextlib.ExitStack() as stack:
            try:
                demo(stack)
            finally:
                _on_signals(signal.SIG_IGN)
    except KeyboardInterrupt as end:
        (number,) = end.args
        with contextlib.suppress(OSError):
            print(f"\ndemo: ended by {number.name}; all is cleaned up", file=sys.stderr)
        return 128 + int(number)
    except BrokenPipeError:  # nobody reads the output: end without a message
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except failures as error:
        print(f"demo: {_in_one_line(error)}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def signals_delayed() -> Iterator[None]:
    """Delay signals to the end of the body, which must not be interrupted."""
    received: list[int] = []
    _on_signals(lambda number, _: received.append(number))
    try:
        yield
    finally:
        _on_signals(_interrupt)
    if received:
        _interrupt(received[0])


def set_up(
    stack: ExitStack, flavours: Sequence[str], folder: Path | None = None
) -> tuple[Server, str, Path]:
    """Return a source, its new schema, and a folder whose conf folder names both."""
    source = _start_source(stack, flavours)
    schema, ssl_mode = "shop", "DISABLED"
    if not isinstance(source, PrivateServer):
        schema, ssl_mode = f"canal_demo_{uuid.uuid4().hex[:8]}", "PREFERRED"
        drop = ("SET lock_wait_timeout = 20", f"DROP DATABASE IF EXISTS {schema}")
        stack.callback(source.execute, *drop)
    source.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    ((version,),) = source.execute("SELECT VERSION()")
    print(f"  source  {version} on {source.host}:{source.port}, schema {schema}")

    if folder is None:
        with signals_delayed():
            temporary = TemporaryDirectory(ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(temporary))
    conf = folder / "conf"
    (conf / DESTINATION).mkdir(parents=True)
    server = {"canal.ip": "127.0.0.1", "canal.port": "0"}  # 0: any free one
    server |= {"canal.metrics.pull.port": "0", "canal.http.port": "0"}
    server |= {"canal.destinations": DESTINATION, "canal.file.data.dir": str(folder)}
    (conf / "canal.properties").write_text(javaproperties.dumps(server))
    host = f"[{source.host}]" if ":" in source.host else source.host
    instance = {
        "canal.instance.master.address": f"{host}:{source.port}",
        "canal.instance.master.sslMode": ssl_mode,
        "canal.instance.dbUsername": source.user,
        "canal.instance.dbPassword": source.password,
        "canal.instance.filter.regex": rf"{schema}\..*",
        "canal.instance.filter.query.dml": "true",  # no text of MariaDB's statements
        "canal.instance.binlog.format": "ROW",
        "canal.instance.binlog.image": "FULL",
    }
    properties = javaproperties.dumps(instance)
    (conf / DESTINATION / "instance.properties").write_text(properties)
    return source, schema, folder


def start_canal_server(stack: ExitStack, folder: Path) -> tuple[Popen[bytes], int]:
    """Start canal-server; returns its process and port once it reads the source."""
    log = folder / "canal-server.log"
    # Variables with this prefix would override the conf folder.
    unset = [f"-u{name}" for name in os.environ if re.match("(?i)canal[._]", name)]
    start = ["-m", "canal_server", "start", "--conf", str(folder / "conf")]
    with signals_delayed():
        process = SPAWNER.spawn(["env", *unset, sys.executable, *start], folder, log)
        stack.callback(stop, process)
    give_up_at = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < give_up_at:
        with contextlib.suppress(ControlError):
            status = ask(folder, "status")
            (instance,) = status["instances"]
            if instance.get("state") == "running":
                print(f"  server  canal-server on 127.0.0.1:{status['port']}")
                return process, int(status["port"])
            if instance.get("error"):  # it would retry, but the source was up
                raise DemoFailed(f"canal-server reads nothing: {instance['error']}")
        time.sleep(0.02)
    raise DemoFailed(f"canal-server did not start:\n{log.read_text()}")


def stop(process: Popen[bytes]) -> int:
    """Shut canal-server down if it still runs; returns its exit status."""
    process.terminate()
    return process.wait(STOP_SECONDS_MAX)


def _start_source(stack: ExitStack, flavours: Sequence[str]) -> Server:
    """Start the first server that is available."""
    reasons = []
    for flavour in flavours:
        server = named_or_private(flavour)
        stack.callback(server.stop)
        try:
            if isinstance(server, PrivateServer):
                print(f"  a private {flavour}, downloaded once into {cache_folder()}")
                template_of(server.programs)
            with signals_delayed():
                return server.start()
        except Unavailable as error:
            reasons.append(_in_one_line(error))
    hint = f"Set {URL}, or as root: apt-get install mariadb-server-core"
    raise Unavailable(f"{'; '.join(reasons)}. {hint}")


def _on_signals(handler: Callable[[int, object], None] | signal.Handlers) -> None:
    for number in SIGNALS:
        signal.signal(number, handler)


def _interrupt(number: int, _: object = None) -> None:
    _on_signals(signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number))


def _in_one_line(error: Exception) -> str:
    """Return the message and, if the output of a program follows, its last line."""
    first, *output = str(error).splitlines() or [repr(error)]
    return f"{first} {output[-1]}" if output else first
