"""Checks of this machine: data folder, disk, ports, time zone, and ZooKeeper."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canal_server.admin.admin_server import is_in_clear_text, stays_closed
from canal_server.cli.check.user_checks import check_users
from canal_server.config.open_ports import (
    ALL_ADDRESSES,
    metrics_address,
    metrics_are_open,
    page_is_open,
)
from canal_server.config.schema import GIB, MIB, Wiring
from canal_server.daemon.control import ControlError, NoServer, ask
from canal_server.errors import ConfigError, ZooKeeperError
from canal_server.ha.cluster_view import look
from canal_server.model.check_results import fail, ok, skip, warn
from canal_server.model.quoted import printable
from canal_server.server.listener import listen
from canal_server.server.process_zone import unknown_zone, zone_name
from canal_server.tls.certificates import check_expiry_of
from canal_server.tls.server_tls import expires_at, load_context

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.config.schema import (
        DaemonConfig,
        InstanceConfig,
        ServerConfig,
        TlsConfig,
    )
    from canal_server.model.check_results import CheckResult

ANSWER_S: Final = 5.0  # for the running server, and for ZooKeeper
FREE_BYTES_MIN: Final = 64 * MIB
FREE_BYTES_LOW: Final = GIB
KEY: Final = "canal.file.data.dir"


@dataclass(frozen=True, slots=True)
class Running:
    """The server that uses a data folder; `conf` is empty if it does not say."""

    pid: int
    conf: str
    port: int | None
    metrics_port: int | None
    http_port: int | None = None

    def is_of(self, conf_dir: Path) -> bool:
        """Return whether it runs with a conf folder, under whatever path."""
        return not self.conf or Path(self.conf).resolve() == conf_dir.resolve()


def running_server(data_dir: Path) -> Running | None:
    """Ask the server of a data folder; None: none runs. Raises ControlError."""
    if not data_dir.is_dir():
        return None
    try:
        status: dict[str, Any] = ask(data_dir, "status", ANSWER_S)
    except NoServer:
        return None
    return Running(
        status["pid"],
        status.get("conf", ""),
        status.get("port"),
        status.get("metrics_port"),
        status.get("http_port"),
    )


def check_host(config: DaemonConfig) -> tuple[list[CheckResult], Running | None]:
    """Return what the checks find, and our own server if it runs."""
    running: Running | None = None
    results = []
    try:
        running = running_server(config.data_dir)
        results.append(data_folder(config.data_dir, config.conf_dir, running))
    except ControlError as error:
        results.append(fail("data_folder", f"{KEY} = {config.data_dir}: {error}"))
    results.append(check_disk(config.data_dir))
    if running is not None and not running.is_of(config.conf_dir):
        running = None  # it has the folder, but is not ours
    results += [
        check_port(config.server, running),
        check_metrics_port(config.server, running),
        check_http_port(config.server, running),
        *check_open_ports(config.server),
        *check_tls(config.server.tls),
        *check_users(config),
        time_zone(zone_name(), unknown_zone()),
        *check_zookeepers(config.instances),
    ]
    return results, running


def check_tls(config: TlsConfig) -> list[CheckResult]:
    """Check the files of TLS, and for how long the certificate is valid."""
    if config.cert_file is None:
        return []
    try:
        load_context(config)
        ends = expires_at(config.cert_file)
    except ConfigError as error:
        return [fail("tls", problem, "") for problem in error.problems]
    shown = f"canal.tls.certFile = {config.cert_file}"
    remedy = "replace it; a running server reads it again"
    days = config.expiry_warning_days
    return [check_expiry_of("tls", shown, ends, days, remedy)]


# --- the data folder ------------------------------------------------------------------


def data_folder(path: Path, conf_dir: Path, running: Running | None) -> CheckResult:
    """Check that the folder can be written and that no other server uses it."""
    name, shown = "data_folder", f"{KEY} = {path}"
    if running is not None and not running.is_of(conf_dir):
        return fail(
            name,
            f"{shown}: the server of {running.conf} (process {running.pid}) uses it",
            f"stop that server, or set another {KEY}",
        )
    existing = _existing(path)
    if not existing.is_dir():
        return fail(name, f"{shown}: {existing} is not a folder", f"set another {KEY}")
    if not os.access(existing, os.W_OK | os.X_OK):
        return fail(
            name,
            f"{shown}: {existing} cannot be written by this user",
            f"run chown on {existing}, or set another {KEY}",
        )
    if running is not None:
        return ok(name, f"{shown} is in use by this server (process {running.pid})")
    if existing != path:
        return ok(name, f"{shown} does not exist and can be created")
    return ok(name, f"{shown} can be written, and no server uses it")


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    return next((each for each in (path, *path.parents) if each.exists()), path)


def check_disk(path: Path) -> CheckResult:
    """Check the free space of the file system that holds a folder."""
    try:
        free = shutil.disk_usage(_existing(path)).free
    except OSError as error:
        return skip("disk", f"the free space of {path}", str(error.strerror))
    return disk(path, free)


def disk(path: Path, free_bytes: int) -> CheckResult:
    """Check an amount of free space."""
    text = f"{free_bytes / MIB:,.0f} MiB are free for {path}"
    remedy = f"free disk space, or set another {KEY}"
    if free_bytes < FREE_BYTES_MIN:
        return fail("disk", f"only {text}", remedy)
    if free_bytes < FREE_BYTES_LOW:
        return warn("disk", f"only {text}", remedy)
    return ok("disk", text)


# --- ports ----------------------------------------------------------------------------


def check_port(server: ServerConfig, running: Running | None) -> CheckResult:
    """Check that the port for clients is free, or held by our own server."""
    name, what = "port", f"canal.port = {server.port}"
    if not server.listen:
        return ok(name, "no port for clients is opened")
    if server.port == 0:
        return ok(name, f"{what}: any free port")
    if running is not None and running.port == server.port:
        return ok(name, f"{what} is held by this server (process {running.pid})")
    try:
        listen(server.ip, server.port).close()
    except ConfigError as error:
        return fail(name, "; ".join(error.problems))
    return ok(name, f"{what} is free")


def check_metrics_port(server: ServerConfig, running: Running | None) -> CheckResult:
    """Check the port for metrics."""
    held = None if running is None else running.metrics_port
    key = "canal.metrics.pull.port"
    address = metrics_address(server), server.metrics_port
    return _extra_port("metrics_port", key, address, held)


def check_http_port(server: ServerConfig, running: Running | None) -> CheckResult:
    """Check the port of the page and the REST interface."""
    held = None if running is None else running.http_port
    address = (server.http_ip, server.http_port)
    return _extra_port("http_port", "canal.http.port", address, held)


def check_open_ports(server: ServerConfig) -> Iterator[CheckResult]:
    """Warn of ports that others may use without a login, or in clear text."""
    if stays_closed(server):
        yield warn(
            "admin_port",
            f"canal.admin.port = {server.admin_port}: stays closed, as"
            " canal.users.file is set and the password of canal-admin is public",
            "set canal.admin.passwd to that of another password",
        )
    if is_in_clear_text(server):
        yield warn(
            "admin_port",
            f"canal.admin.port = {server.admin_port}: other hosts reach it in clear"
            " text, in spite of canal.tls.required",
            "let canal-admin connect by a tunnel to a loopback address",
        )
    if page_is_open(server):
        yield warn(
            "open_page",
            f"canal.http.ip = {server.http_ip}: anyone who can reach"
            f" {server.http_ip or ALL_ADDRESSES} can read the page, with names of"
            " tables and statements that change them",
            "set canal.http.user and canal.http.passwd, or canal.users.file, or another"
            " canal.http.ip",
        )
    if metrics_are_open(server):
        ip = metrics_address(server)
        key = "canal.metrics.ip" if server.metrics_ip else "canal.ip"
        yield warn(
            "open_metrics",
            f"{key} = {ip}: anyone who can reach it can read the metrics",
            "set canal.users.file, or canal.metrics.ip to an address that only"
            " Prometheus reaches",
        )


def _extra_port(
    name: str, key: str, address: tuple[str, int], held: int | None
) -> CheckResult:
    """Check a port without which a server starts, with a warning."""
    ip, port = address
    if port < 0:
        return ok(name, f"{key} = {port}: turned off")
    if port == 0:
        return ok(name, f"{key} = 0: any free port")
    if held == port:
        return ok(name, f"{key} = {port} is held by this server")
    try:
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        socket.create_server((ip, port), family=family).close()
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]
        return warn(
            name,
            f"{key} = {port}: cannot listen on {ip}:{port}: {why}",
            f"set another {key}, or -1 for none",
        )
    return ok(name, f"{key} = {port} is free")


# --- the time zone, and ZooKeeper -----------------------------------------------------


def time_zone(name: str, unknown: str = "") -> CheckResult:
    """Check that the zone in which TIMESTAMP columns are written has a name.

    `unknown` is the value of TZ if it is no zone.
    """
    if unknown:
        return warn(
            "time_zone",
            f"TZ={printable(unknown)} is no time zone of this machine: TIMESTAMP"
            " columns are written in UTC",
            "set the environment variable TZ to a zone that `timedatectl"
            " list-timezones` lists, or to UTC",
        )
    if name:
        return ok("time_zone", f"TIMESTAMP columns are written in the zone {name}")
    return warn(
        "time_zone",
        "the time zone of this machine, in which TIMESTAMP columns are written, has no"
        " name: readers cannot distinguish an hour that occurs twice",
        "set the environment variable TZ, such as TZ=UTC",
    )


def check_zookeepers(instances: Sequence[InstanceConfig]) -> Iterator[CheckResult]:
    """Check that each ZooKeeper of the settings answers."""
    for servers in dict.fromkeys(
        each.position.zookeeper_servers
        for each in instances
        if each.position.wiring is Wiring.ZOOKEEPER
    ):
        try:
            look(servers, (), ANSWER_S)
        except ZooKeeperError as error:
            yield fail(
                "zookeeper", str(error), "check canal.zkServers and that it runs"
            )
        else:
            yield ok("zookeeper", f"ZooKeeper at {servers} answers")
