"""The Java original on the same loads, if CANAL_JAVA_HOME names a built deployer.

That folder holds `lib/*.jar` and `conf/`, as the original's release or its
`deployer/target/canal` does. Each run has a destination of its own, which begins with
its first subscription; all are in one process, and the first one warms it up. Java has
the options that the original's own script gives it.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from drain import DrainClient, DrainError, DrainRun, drain
from loads import END_TABLE
from server_process import Memory, end, free_port, write_conf, write_instance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loads import Range
    from servers import Server

VARIABLE = "CANAL_JAVA_HOME"
MAIN_CLASS = "com.alibaba.otter.canal.deployer.CanalLauncher"
# Those of its `bin/startup.sh` on 64 bits, which depend on the version of Java. What
# this one does not know, such as sizes of PermGen, is ignored: nothing would start.
OPTIONS_11 = (
    "-server", "-Xms2g", "-Xmx3g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=250",
    "-XX:+UseGCOverheadLimit", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip
OPTIONS_8 = (
    "-server", "-Xms2g", "-Xmx3g", "-Xmn1g", "-XX:SurvivorRatio=2",
    "-XX:PermSize=96m", "-XX:MaxPermSize=256m", "-XX:MaxTenuringThreshold=15",
    "-XX:+DisableExplicitGC", "-XX:+AggressiveOpts", "-XX:+UseFastAccessorMethods",
    "-XX:+PrintAdaptiveSizePolicy", "-XX:+PrintTenuringDistribution",
)  # fmt: skip
OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions", "-Xss1m", "-XX:-UseBiasedLocking",
    "-XX:-OmitStackTraceInFastThrow", "-XX:+HeapDumpOnOutOfMemoryError",
    "-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true",
    "-Dfile.encoding=UTF-8",
)  # fmt: skip
NEW_OPTIONS_SINCE = 11
START_SECONDS_MAX = 90.0
LOG_TAIL_BYTES = 3000


def java_home() -> Path | None:
    """Return the deployer's folder. Raises SystemExit when it is none."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    home = Path(named)
    if not list(home.glob("lib/canal.deployer-*.jar")) or not (home / "conf").is_dir():
        raise SystemExit(
            f"{VARIABLE}={named}: no built deployer, with "
            "lib/canal.deployer-*.jar and conf/"
        )
    return home.resolve()


def run_java(
    home: Path, server: Server, load: Range, runs: int, *, gtid: bool = False
) -> Iterator[tuple[DrainRun, Memory]]:
    """Drain a load once to warm up and then `runs` times. Raises DrainError."""
    with tempfile.TemporaryDirectory(prefix="canal-java-") as name:
        folder = Path(name)
        destinations = [f"run{number}" for number in range(runs + 1)]
        port = free_port()
        _write_folder(folder, home, port, destinations, (server, load), gtid=gtid)
        process = _spawn(folder, home)
        try:
            for number, destination in enumerate(destinations):
                with DrainClient(
                    ("127.0.0.1", port),
                    destination,
                    alive=lambda: process.poll() is None,
                    timeout_s=START_SECONDS_MAX,
                ) as client:
                    client.subscribe()
                    run = drain(client, END_TABLE.encode())
                if number:
                    yield run, Memory.of(process.pid)
        except DrainError as error:
            written = (folder / "log").read_bytes()[-LOG_TAIL_BYTES:]
            error.add_note(f"the original says:\n{written.decode(errors='replace')}")
            raise
        finally:
            end(process)


@contextmanager
def delivering(
    home: Path,
    server: Server,
    load: Range,
    *,
    main: Mapping[str, str],
    settings: Mapping[str, str],
) -> Iterator[int]:
    """Have a process deliver a load to a message queue; give the id of the process.

    `main` are settings of the server, `settings` those of its only destination.
    """
    with tempfile.TemporaryDirectory(prefix="canal-java-") as name:
        folder = Path(name)
        _write_folder(
            folder,
            home,
            free_port(),
            ["bench"],
            (server, load),
            main={"canal.instance.global.lazy": "false", **main},
            settings=settings,
        )
        # It looks for its connectors beside `conf`.
        (folder / "plugin").symlink_to(home / "plugin")
        process = _spawn(folder, home)
        try:
            yield process.pid
        except BaseException as error:
            written = (folder / "log").read_bytes()[-LOG_TAIL_BYTES:]
            error.add_note(f"the original says:\n{written.decode(errors='replace')}")
            raise
        finally:
            end(process)


@functools.cache
def _options() -> tuple[str, ...]:
    """Return the options that the original's script chooses for this Java."""
    said = subprocess.run(
        ("java", "-version"), capture_output=True, text=True, check=True
    ).stderr
    found = re.search(r'"(\d+)', said)
    is_new = found is not None and int(found[1]) >= NEW_OPTIONS_SINCE
    return *(OPTIONS_11 if is_new else OPTIONS_8), *OPTIONS


def _spawn(folder: Path, home: Path) -> subprocess.Popen[bytes]:
    """Start the original on a folder of its own."""
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [
                "java",
                *_options(),
                f"-XX:HeapDumpPath={folder}/logs",
                f"-Dcanal.conf={folder}/conf/canal.properties",
                f"-Dlogback.configurationFile={folder}/conf/logback.xml",
                "-cp",
                f"{folder}/conf:{home}/lib/*",
                MAIN_CLASS,
            ],
            cwd=folder / "bin",
            stdout=log,
            stderr=log,
        )


def _write_folder(
    folder: Path,
    home: Path,
    port: int,
    destinations: list[str],
    source: tuple[Server, Range],
    *,
    gtid: bool = False,
    main: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Write what the original requires around it: conf, bin, logs.

    Our settings stand after the shipped ones: of a key that is there twice, the last
    value counts.
    """
    conf = folder / "conf"
    shutil.copytree(home / "conf", conf)
    shutil.rmtree(conf / "example", ignore_errors=True)
    for part in ("bin", "logs"):
        (folder / part).mkdir()
    shipped = (conf / "canal.properties").read_text(encoding="latin-1")
    write_conf(
        conf,
        port,
        conf,
        **{
            "canal.destinations": ",".join(destinations),
            "canal.conf.dir": "../conf",
            "canal.auto.scan": "false",
            "canal.instance.global.mode": "spring",
            "canal.instance.global.lazy": "true",
            "canal.serverMode": "tcp",
            "canal.instance.tsdb.enable": "false",
            "canal.instance.parser.parallel": "true",
            "canal.instance.memory.rawEntry": "true",
            "canal.user": "",
            "canal.passwd": "",
            "canal.zkServers": "",
            **(main or {}),
        },
    )
    ours = (conf / "canal.properties").read_text(encoding="latin-1")
    (conf / "canal.properties").write_text(f"{shipped}\n{ours}", encoding="latin-1")
    server, load = source
    for number, destination in enumerate(destinations):
        write_instance(
            conf / destination,
            server,
            load,
            gtid=gtid,
            **{"canal.instance.mysql.slaveId": str(4000 + number), **(settings or {})},
        )
