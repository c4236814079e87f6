"""What many destinations cost in one process while nothing happens.

Starts private MySQLs and a canal-server with instances that read them in turn, waits
until each reads, and measures: how long that took; then, once what a start leaves to do
is done, memory, time of the processor, threads and descriptors, which threads take the
time, and how fast metrics, page and status are answered. A server with one instance
before shows what each further one adds.
`python benchmarks/idle_instances.py --help` shows the options; needs the package to be
installed, as `make bench` has it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from server_process import (
    Memory,
    end,
    free_port,
    require_package,
    write_conf,
)
from servers import PrivateServer
from zookeepers import PrivateZooKeeper

from canal_server.daemon.control import ControlError, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from servers import Server

INSTANCES = 100
SECONDS = 60.0
START_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.5
LOOK_SHARE = 0.05  # of the time: the status of many instances keeps the interpreter
SETTLE_SECONDS = 20.0  # until what a start leaves to do is done
MEMORY_MIB_MAX = 1.5  # of an instance beyond the first
CORE_PERCENT_MAX = 5.0
ANSWER_MS_MAX = {100: 100.0, 1000: 200.0}  # by instances
CONNECTIONS = 2  # to the source, of an instance; some more while it starts
ANSWERS = 20  # of each kind
MIB = 1024 * 1024
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Cost:
    """What a server with so many instances took."""

    instances: int
    started_s: float
    percent: float  # of a core
    threads: dict[str, float]  # seconds of the processor, by name
    memory: Memory
    tasks: int
    files: int
    answers_ms: dict[str, list[float]]


def write_settings(
    conf: Path,
    servers: Sequence[Server],
    instances: int,
    zookeeper: str = "",
    settings: Mapping[str, str] | None = None,
) -> list[str]:
    """Write the conf folder; returns the names of the destinations.

    With a ZooKeeper the cursors are there, and each destination has a lease.
    """
    names = [f"idle{number}" for number in range(1, instances + 1)]
    write_conf(
        conf,
        free_port(),
        conf,
        **{
            "canal.destinations": ",".join(names),
            "canal.instance.global.spring.xml": "classpath:spring/"
            + ("default-instance.xml" if zookeeper else "file-instance.xml"),
            "canal.zkServers": zookeeper,
            "canal.auto.scan": "true",
            **(settings or {}),
        },
    )
    for name, server in zip(names, itertools.cycle(servers)):
        (conf / name).mkdir()
        (conf / name / "instance.properties").write_text(
            f"canal.instance.master.address = {server.host}:{server.port}\n"
            f"canal.instance.dbUsername = {server.user}\n"
            f"canal.instance.dbPassword = {server.password}\n"
        )
    return names


@contextmanager
def running(conf: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server within the context; its log goes to a file in the folder."""
    command = [sys.executable, "-m", "canal_server", "start", "--conf", str(conf)]
    with (conf / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=conf, stdout=log, stderr=log)
    try:
        yield process
    except BaseException as error:
        error.add_note((conf / "log").read_text()[-3000:])
        raise
    finally:
        end(process)


def wait_until_all_read(conf: Path, process: subprocess.Popen[bytes]) -> float:
    """Return the seconds until every instance reads its source."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < START_SECONDS_MAX:
        if process.poll() is not None:
            raise SystemExit("the server has ended")
        asked_s = time.monotonic()
        try:
            instances = ask(conf, "status")["instances"]
        except ControlError:
            instances = []
        look_s = time.monotonic() - asked_s
        if instances and all(each.get("state") == "running" for each in instances):
            return time.monotonic() - began_s
        time.sleep(max(LOOK_SECONDS, look_s / LOOK_SHARE))
    raise SystemExit(f"not all instances read within {START_SECONDS_MAX:g} s")


def seconds_of(stat: Path) -> tuple[str, float]:
    """Return name and seconds of the processor of a process or a thread."""
    text = stat.read_text()
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    return name, (int(fields[11]) + int(fields[12])) / TICKS


def seconds_by_thread(pid: int) -> dict[str, float]:
    """Return the seconds of all threads, those of like names together."""
    found: dict[str, float] = defaultdict(float)
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, seconds = seconds_of(task / "stat")
        found[re.sub(r"\d+", "N", name)] += seconds
    return found


def measure(pid: int, seconds: float) -> tuple[float, dict[str, float]]:
    """Return the percents of a core that were used, and the seconds by thread."""
    before, threads_before = (
        seconds_of(Path(f"/proc/{pid}/stat"))[1],
        (seconds_by_thread(pid)),
    )
    began_s = time.monotonic()
    time.sleep(seconds)  # what is measured is what happens meanwhile
    after = seconds_of(Path(f"/proc/{pid}/stat"))[1]
    percent = (after - before) / (time.monotonic() - began_s) * 100
    threads = seconds_by_thread(pid)
    return percent, {name: threads[name] - threads_before[name] for name in threads}


def answers_ms(conf: Path) -> dict[str, list[float]]:
    """Return the times in which metrics, page and status are answered, in ms."""
    status = ask(conf, "status")
    page = f"http://127.0.0.1:{status['http_port']}/api/v1"
    asked: dict[str, Callable[[], object]] = {
        "metrics": partial(fetch, f"http://127.0.0.1:{status['metrics_port']}/metrics"),
        "page": partial(fetch, f"{page}/destinations"),
        "status over HTTP": partial(fetch, f"{page}/status"),
        "status": partial(ask, conf, "status"),
    }
    found: dict[str, list[float]] = {what: [] for what in asked}
    for _ in range(ANSWERS):
        for what, call in asked.items():
            began_s = time.monotonic()
            call()
            found[what].append((time.monotonic() - began_s) * 1000)
    return found


def fetch(url: str) -> bytes:
    """Return what a URL has."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def run(
    servers: Sequence[Server],
    instances: int,
    seconds: float,
    zookeeper: str = "",
    settings: Mapping[str, str] | None = None,
    *,
    settle_s: float = SETTLE_SECONDS,
) -> Cost:
    """Start a server with so many instances and measure it."""
    with tempfile.TemporaryDirectory(prefix="canal-idle-") as folder:
        conf = Path(folder, "conf")
        write_settings(conf, servers, instances, zookeeper, settings)
        with running(conf) as process:
            started_s = wait_until_all_read(conf, process)
            time.sleep(settle_s)
            percent, threads = measure(process.pid, seconds)
            proc = Path(f"/proc/{process.pid}")
            return Cost(
                instances,
                started_s,
                percent,
                threads,
                Memory.of(process.pid),
                len(list((proc / "task").iterdir())),
                len(list((proc / "fd").iterdir())),
                answers_ms(conf),
            )


def report(first: Cost, found: Cost) -> bool:
    """Print what was measured; returns whether it is within its limits."""
    further = max(1, found.instances - 1)
    each_mib = (found.memory.now - first.memory.now) / further / MIB
    print(f"{found.instances} instances read after {found.started_s:.1f} s")
    print(
        f"resident: {found.memory.now / MIB:.0f} MiB, at most"
        f" {found.memory.highest / MIB:.0f}; {each_mib:.2f} MiB for each beyond the"
        f" first, which takes {first.memory.now / MIB:.0f}"
    )
    print(f"processor: {found.percent:.2f} % of a core")
    print(
        f"threads: {found.tasks}, {(found.tasks - first.tasks) / further:.1f} for each"
        f" beyond the first; descriptors: {found.files},"
        f" {(found.files - first.files) / further:.1f}"
    )
    for name, seconds in sorted(found.threads.items(), key=lambda item: -item[1])[:10]:
        print(f"  {seconds:6.2f} s  {name}")
    for what, ms in found.answers_ms.items():
        print(f"{what}: {statistics.median(ms):.0f} ms, at most {max(ms):.0f}")
    slowest_ms = max(statistics.median(ms) for ms in found.answers_ms.values())
    limits = [ms for most, ms in ANSWER_MS_MAX.items() if found.instances <= most]
    return (
        each_mib <= MEMORY_MIB_MAX
        and found.percent <= CORE_PERCENT_MAX
        and slowest_ms <= min(limits, default=ANSWER_MS_MAX[1000])
    )


def main() -> int:
    """Measure and print; status 1 when it costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--instances", type=int, default=INSTANCES, help="(default: %(default)d)")
    add("--servers", type=int, default=1, help="MySQL servers (default: %(default)d)")
    add("--seconds", type=float, default=SECONDS, help="to measure for")
    add("--heartbeat", type=int, metavar="S", help="seconds, if not the default")
    add("--zookeeper", action="store_true", help="with cursors and leases there")
    args = parser.parse_args()
    print(f"package: {require_package()}")
    connections = CONNECTIONS * args.instances + 100
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                PrivateServer("mysql", [f"--max-connections={connections}"])
            )
            for _ in range(args.servers)
        ]
        zookeeper = ""
        if args.zookeeper:
            zookeeper = stack.enter_context(PrivateZooKeeper()).servers
        settings = {}
        if args.heartbeat:
            key = "canal.instance.network"
            settings[f"{key}.heartbeat.seconds"] = str(args.heartbeat)
            settings[f"{key}.silence.seconds"] = str(3 * args.heartbeat)
        first = run(servers, 1, 1.0, zookeeper, settings, settle_s=1.0)
        found = run(servers, args.instances, args.seconds, zookeeper, settings)
    is_within = report(first, found)
    print("within its limits" if is_within else "more than it may be")
    return int(not is_within)


if __name__ == "__main__":
    raise SystemExit(main())
