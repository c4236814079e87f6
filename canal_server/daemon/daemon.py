"""The process: the stages in it, and the order of their start and end.

::

    control socket ── started first: it holds the lock of the data folder
    pid file       ── if requested
    destinations   ── the instances, lazy ones at their first client
    server         ── started when the instances can serve clients
    message queue  ── delivers the destinations, if the mode asks for it
    metrics        ── for Prometheus, unless that is turned off
    page           ── the HTTP port, unless that is turned off
    alarms         ── of all destinations
    certificates   ── which may expire soon
    watch          ── of canal-admin, if it hands out settings
    watch          ── of the conf folder, if that is configured

They end in the reverse order. Leaves out the destinations
(`canal_server.daemon.destinations`).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from canal_server import __version__
from canal_server.admin.admin_actions import AdminActions
from canal_server.admin.admin_server import (
    AdminServer,
    credentials_of,
    stays_closed,
)
from canal_server.admin.log_reading import LogReading
from canal_server.alarms.alarm_conditions import AlarmLimits
from canal_server.alarms.alarm_hooks import CommandHook, LogHook, WebhookHook
from canal_server.alarms.alarm_watch import Alarms, AlarmWatch
from canal_server.alarms.open_alarms import FILE_NAME, AlarmFile
from canal_server.config.load import MAIN_FILE, InstanceLoader
from canal_server.config.open_ports import metrics_address
from canal_server.config.schema import ServerMode
from canal_server.cursor_moves.move_plan import MovePlan, plan_move
from canal_server.daemon.cluster_requests import ClusterRequests
from canal_server.daemon.conf_watch import ConfWatch
from canal_server.daemon.control import LOCK_NAME, ControlServer
from canal_server.daemon.cursor_requests import CursorRequests
from canal_server.daemon.destinations import Destinations
from canal_server.daemon.loaded_files import LoadedFiles
from canal_server.daemon.open_port_warnings import warn_of_open_ports
from canal_server.daemon.process_signals import signals
from canal_server.daemon.queue_instances import for_queue
from canal_server.daemon.schema_requests import SchemaRequests
from canal_server.daemon.settings_watch import SettingsWatch
from canal_server.daemon.start_requests import StartRequests
from canal_server.daemon.subscription_requests import SubscriptionRequests
from canal_server.delivery.position_waits import PositionWaits
from canal_server.delivery.queue_delivery import QueueDelivery, reserved_ids
from canal_server.doors.zookeeper import ZooKeepers
from canal_server.errors import CanalError
from canal_server.ha.lease_choice import Leases
from canal_server.messages import daemon_messages
from canal_server.observe.all_metrics import (
    SCRAPES_MAX,
    metrics_server,
    metrics_text,
)
from canal_server.observe.certificate_expiry import CertificateExpiry
from canal_server.observe.certificate_watch import CertificateWatch
from canal_server.observe.readings import Reading
from canal_server.position.offline import read_stored
from canal_server.protocol.auth import Credentials
from canal_server.runtime.lifecycle import Deadline, Stage, Stop
from canal_server.runtime.pid_file import PidFile
from canal_server.runtime.port_connections import http_limits
from canal_server.runtime.service_manager import READY, STOPPING, notify
from canal_server.server.listener import Server
from canal_server.tls.server_tls import ServerTls
from canal_server.users.audit_log import LOCAL, AuditLog
from canal_server.users.user_directory import UserDirectory, UsersWatch
from canal_server.web.access_rules import Login
from canal_server.web.web_server import VISITORS_MAX, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from canal_server.admin.managed_settings import ManagedSettings
    from canal_server.alarms.alarm_hooks import AlarmHook
    from canal_server.config.schema import DaemonConfig
    from canal_server.daemon.destination_life import MakeInstance
    from canal_server.doors.prometheus.metrics_server import MetricsServer
    from canal_server.instance.change_tap import ChangeTap
    from canal_server.instance.instance_metrics import InstanceMetrics, Received
    from canal_server.runtime.log_levels import LogLevels
    from canal_server.source.begin.seek_target import TargetText

log = logging.getLogger(__name__)

DELIVERY_END_S = 3.0  # for what is on its way to a message queue
STOP_TIMEOUT_S = 10.0  # for all stages together; then the process ends without them


class Outcome(Enum):
    """How a run ended."""

    ENDED = auto()
    # A stage did not end in time, so that its threads may still run, or it failed to
    # stop properly.
    FAILED = auto()
    RESTARTS = auto()  # it is to start again, with other settings


class Daemon:
    """Everything one process runs. A stage; `run` drives it."""

    def __init__(
        self,
        config: DaemonConfig,
        make_instance: MakeInstance,
        zookeepers: ZooKeepers | None = None,
        log_levels: LogLevels | None = None,
        *,
        log_dir: Path | None = None,
        settings: ManagedSettings | None = None,
        pid_file: Path | None = None,
    ) -> None:
        """Create without starting; `zookeepers` are those of the instances.

        `log_levels`: what an operator may change; `log_dir`: the folder of log files;
        `settings`: those that canal-admin hands out. Raises ConfigError.
        """
        self._config = config
        self._pid_file = None if pid_file is None else PidFile(pid_file)
        self._log_levels = log_levels
        self._born_s = time.monotonic()
        self.stop = Stop()  # what the control socket and `run` wait on
        self.restarts = False  # whether it stops to start with other settings
        zookeepers = zookeepers or ZooKeepers()
        leases = Leases(
            zookeepers,
            config.server,
            lambda: self.port,
            config.data_dir / LOCK_NAME,
        )
        self._position_waits = PositionWaits()
        self._destinations = Destinations(
            config.instances,
            for_queue(make_instance, config.server.queue, self._position_waits),
            leases.of,
        )
        tls = (
            None
            if config.server.tls.cert_file is None
            else ServerTls(
                config.server.tls,
                asks_visitors=config.server.users_file is not None,
            )
        )
        self._tls = tls
        self._users = UserDirectory(
            config.server.users_file,
            Credentials(config.server.user, config.server.passwd),
        )
        self._audit = AuditLog(config.server.audit_file)
        self._users.on_change(
            lambda: self._audit.note("users", None, "file", users=self._users.names)
        )
        self._server = Server(
            config.server,
            self._destinations,
            tls,
            self._users,
            self._audit,
            reserved=reserved_ids(config.server.queue),
        )
        self._delivery = self._queue_delivery()
        self._certificates = CertificateWatch(
            CertificateExpiry(
                config.server.tls, self._destinations.configs, self.readings
            ).all,
            config.server.tls.expiry_warning_days,
        )
        self._metrics = self._metrics_server()
        self.schemas = SchemaRequests(self._destinations)
        self._web = self._web_server()
        self._admin = self._admin_server(log_dir)
        self._alarms = self._alarm_watch()
        self._watch = _watch(config, self._destinations)
        self._settings_watch = self._watch_of(settings)
        self._loaded_files = LoadedFiles(_files_of_restart(config))
        self._starts = StartRequests(
            config, self._destinations, self._loaded_files, self._delivered
        )
        self._clusters = ClusterRequests(
            self._destinations, zookeepers, config.server, lambda: self.port
        )
        self._subscriptions = SubscriptionRequests(
            self._destinations, self._server, self._audit
        )
        self._cursors = CursorRequests(self._destinations, self._audit)
        self._control = ControlServer(
            config.data_dir,
            {"status": self.status, "stop": self._on_stop_command},
            {
                "positions": self._cursors.positions,
                "seek": self._cursors.seek,
                "subscriptions": self._subscriptions.list_all,
                "unsubscribe": self._subscriptions.remove,
            },
        )
        self._started: list[tuple[str, Stage]] = []

    @property
    def port(self) -> int:
        """Return the port for clients, the real one once started."""
        return self._server.port

    def start(self) -> None:
        """Start all stages in their order.

        Raises CanalError when one cannot start; the earlier ones were stopped then.
        """
        for line in self._config.warnings:
            daemon_messages.CONFIGURATION_WARNING.log(log, line)
        warn_of_open_ports(self._config.server)
        self._audit.open()
        try:
            self._start("control socket", self._control)
            if self._pid_file is not None:
                self._start("pid file", self._pid_file)
            if self._config.server.listen:
                self._server.bind()  # from now on the port may be announced
            self._start("instances", self._destinations)
            if self._config.server.listen:
                self._start("server", self._server)
            if self._delivery is not None:
                self._start("message queue", self._delivery)
            for name, stage in (
                ("watch of users", self._users_watch()),
                ("metrics", self._metrics),
                ("page", self._web),
                ("port for canal-admin", self._admin),
                ("alarms", self._alarms),
                ("watch of certificates", self._certificates),
                ("watch of canal-admin", self._settings_watch),
                ("watch of the conf folder", self._own_watch()),
            ):
                if stage is not None:
                    self._start(name, stage)
        except BaseException:
            self.request_stop()
            self.join(Deadline(STOP_TIMEOUT_S))
            self._server.unbind()
            raise
        log.info(
            "canal-server %s started with %s, data in %s",
            __version__,
            self._config.conf_dir,
            self._config.data_dir,
        )

    def _start(self, name: str, stage: Stage) -> None:
        stage.start()
        self._started.append((name, stage))

    def request_stop(self) -> None:
        """Ask all stages to stop, except the control socket, which ends last.

        Waits until a message queue has confirmed what was sent to it, but not for long:
        that can be acked only while the destinations run.
        """
        self.stop.request()
        if self._delivery is not None:
            self._delivery.request_stop()
            self._delivery.join(Deadline(DELIVERY_END_S))
        for _, stage in reversed(self._started):
            if stage is not self._control:
                stage.request_stop()

    def join(self, deadline: Deadline) -> bool:
        """Wait for all stages in reverse order; log which did not stop properly.

        Called after `request_stop`. The control socket answers until the others ended.
        """
        ended = True
        for name, stage in reversed(self._started):
            if stage is self._control:
                stage.request_stop()
            try:
                if stage.join(deadline):
                    continue
                daemon_messages.STAGE_STOP_TIMED_OUT.log(log, name)
            except CanalError as error:
                # The earlier stages must still end.
                daemon_messages.STAGE_STOP_FAILED.log(log, name, error)
            ended = False
        return ended

    def _queue_delivery(self) -> QueueDelivery | None:
        if self._config.server.queue.mode is ServerMode.TCP:
            return None
        return QueueDelivery(
            self._config.server.queue,
            self._destinations,
            self._server.local_client,
            self._position_waits,
        )

    def _metrics_server(self) -> MetricsServer | None:
        server = self._config.server
        if server.metrics_port < 0:
            return None
        return metrics_server(
            metrics_address(server),
            server.metrics_port,
            metrics_text(
                self.readings,
                __version__,
                is_managed=self._config.instances_managed,
                certificates=self._certificates.found,
            ),
            self._tls if server.tls.metrics else None,
            self._users if self._users.has_file else None,
            audit=self._audit,
            limits=http_limits(SCRAPES_MAX, server.per_address_max, server.pending_max),
        )

    def _web_server(self) -> WebServer | None:
        server = self._config.server
        if server.http_port < 0:
            return None
        login = Login(server.http_user, server.http_passwd)
        return WebServer(
            server.http_ip,
            server.http_port,
            self,
            __version__,
            login if server.http_user else None,
            clients_log_in=server.clients_log_in,
            users=self._users,
            audit=self._audit,
            tls=self._tls if server.tls.http else None,
            limits=http_limits(
                VISITORS_MAX, server.per_address_max, server.pending_max
            ),
        )

    def _admin_server(self, log_dir: Path | None) -> AdminServer | None:
        server = self._config.server
        if server.admin_port < 0 or stays_closed(server):
            return None
        return AdminServer(
            server.ip,
            server.admin_port,
            credentials_of(server),
            AdminActions(self._destinations),
            LogReading(log_dir),
            audit=self._audit,
        )

    def _users_watch(self) -> UsersWatch | None:
        return UsersWatch(self._users) if self._users.has_file else None

    def _own_watch(self) -> ConfWatch | None:
        """Return the watch of the conf folder, if canal-admin's does not use it."""
        return None if self._config.instances_managed else self._watch

    def _watch_of(self, settings: ManagedSettings | None) -> SettingsWatch | None:
        if settings is None:
            return None
        return SettingsWatch(
            settings,
            self._restart,
            self._watch if self._config.instances_managed else None,
            interval_s=self._config.poll_interval_s,
        )

    def _restart(self) -> None:
        """Stop, to start again with other settings; by any thread."""
        self.restarts = True
        self.stop.request()

    def _alarm_watch(self) -> AlarmWatch:
        server = self._config.server
        hooks: list[AlarmHook] = [LogHook()]
        if server.alarm_webhook:
            hooks.append(WebhookHook(server.alarm_webhook))
        if server.alarm_command:
            hooks.append(CommandHook(server.alarm_command))
        limits = AlarmLimits(
            server.alarm_after_s, server.alarm_lag_s, server.alarm_client_lag_s
        )
        file = AlarmFile(self._config.data_dir / FILE_NAME)
        return AlarmWatch(Alarms(limits, hooks, file=file), self.readings)

    def readings(self) -> list[Reading]:
        """Return what each destination shows now: for metrics, page and alarms."""
        return [self._reading_of(*each) for each in self._destinations.readings()]

    def received(self) -> dict[str, Received]:
        """Return how much each destination that runs here has received."""
        return self._destinations.received()

    def reading(self, destination: str) -> Reading:
        """Return what one destination shows now. Raises ClientError."""
        return self._reading_of(*self._destinations.reading(destination))

    def _instances(self) -> list[dict[str, Any]]:
        """Return the status of each destination, with its delivery if there is one."""
        return [self._delivered(each) for each in self._destinations.status()]

    def _delivered(self, status: Mapping[str, object]) -> dict[str, Any]:
        delivery = self._delivery
        return dict(status) if delivery is None else delivery.shown_in(status)

    def _reading_of(
        self, shown: Mapping[str, object], metrics: InstanceMetrics | None
    ) -> Reading:
        status, name = self._delivered(shown), str(shown["destination"])
        self._subscriptions.add_queries([status])
        return Reading(name, status, self._server.requests(name), metrics)

    def status(self) -> dict[str, object]:
        """Return the status of this process for the control socket."""
        instances = self._instances()
        refused = self._watch.refused() if self._watch is not None else {}
        self._subscriptions.add_queries(instances)
        for each in instances:
            each["refused_change"] = refused.pop(str(each["destination"]), "")
        return {
            "pid": os.getpid(),
            "version": __version__,
            "host": socket.gethostname(),
            "conf": str(self._config.conf_dir),
            "uptime_s": round(time.monotonic() - self._born_s, 3),
            "port": self._server.port if self._config.server.listen else None,
            "metrics_port": None if self._metrics is None else self._metrics.port,
            "http_port": None if self._web is None else self._web.port,
            "admin_port": None if self._admin is None else self._admin.port,
            "stopping": self.stop.requested(),
            "instances": instances,
            "refused": refused,  # files that did not become destinations
            "changed_settings": self._loaded_files.changed(),  # need a restart
        }

    def tap(
        self, destination: str, expression: str, on_news: Callable[[], None]
    ) -> ChangeTap | None:
        """Return what follows a destination's changes. Raises CanalError."""
        return self._destinations.tap(destination, expression, on_news)

    def log_levels(self) -> dict[str, object]:
        """Return the levels of the log. Raises CanalError if they are not ours."""
        return self._levels().as_json()

    def set_log_level(self, level: str | None, destination: str = "") -> None:
        """Set a level of the log, as LogLevels does. Raises CanalError."""
        if destination:
            self._destinations.require(destination)
        self._levels().set(level, destination)
        what = f"destination {destination}" if destination else "the server"
        log.info("the log level of %s is %s", what, level or "that of the server")

    def _levels(self) -> LogLevels:
        if self._log_levels is None:
            raise CanalError("the log of this process is not set up by canal-server")
        return self._log_levels

    def plan_move(
        self,
        destination: str,
        to: TargetText,
        *,
        source: str | None,
        client_ids: Collection[int] | None,
    ) -> MovePlan:
        """Return what a move of clients would do. Raises CanalError."""
        config = self._destinations.require(destination)
        cursors = self._destinations.cursors(destination)
        if cursors is None:
            stored = read_stored(config)
            if stored.owner:
                raise CanalError(
                    f"destination {destination} is run by {stored.owner}: move its"
                    " clients there"
                )
            cursors = stored.cursors
        return plan_move(config, cursors, to, source=source, client_ids=client_ids)

    def move(self, plan: MovePlan) -> None:
        """Carry a plan out. Raises CanalError."""
        self._destinations.seek(plan.destination, plan.client_ids, *plan.positions)

    def stop_destination(self, destination: str) -> None:
        """Stop a destination until it is started. Raises ClientError."""
        self._destinations.stop(destination)

    def start_destination(self, destination: str) -> None:
        """Start a stopped, failed or lazy destination, or retry. Raises CanalError."""
        self._starts.start(destination)

    def clusters(self) -> dict[str, Any]:
        """Return the clusters that this server is in."""
        return self._clusters.show()

    def unsubscribe(self, destination: str, client_id: int) -> None:
        """Remove the subscription of a client. Raises ClientError."""
        self._server.unsubscribe(destination, client_id)

    def subscriptions(self, destination: str) -> dict[str, object]:
        """Return a destination's ranged subscriptions, or those that are stored."""
        return self._subscriptions.of(destination)

    def remove_subscription(self, destination: str, name: str) -> None:
        """Remove a ranged subscription that no query reads. Raises CanalError."""
        self._subscriptions.remove_named(destination, name)

    def positions(self, destination: str) -> dict[str, object]:
        """Return the positions of a destination's clients, or those that are stored."""
        return self._cursors.of(destination)

    def _on_stop_command(self) -> dict[str, object]:
        log.info("received a stop command on the control socket, shutting down")
        self.restarts = False
        self._audit.note("stop_server", None, LOCAL, account=self._control.account)
        self.stop.request()
        return {"pid": os.getpid()}


def _watch(config: DaemonConfig, destinations: Destinations) -> ConfWatch | None:
    """Return the watch of the conf folder, None if that is not configured.

    Raises ConfigError.
    """
    if not config.scan_interval_s:
        return None
    loader = InstanceLoader(config.conf_dir, os.environ)
    return ConfWatch(loader, destinations, interval_s=config.scan_interval_s)


def _files_of_restart(config: DaemonConfig) -> list[Path]:
    """Return the files whose changes count after a restart only."""
    main = config.conf_dir / MAIN_FILE
    if config.scan_interval_s or config.instances_managed:
        return [main]
    return [main, *(each.file for each in config.instances if each.file is not None)]


def run(
    config: DaemonConfig,
    make_instance: MakeInstance,
    zookeepers: ZooKeepers | None = None,
    log_levels: LogLevels | None = None,
    *,
    log_dir: Path | None = None,
    settings: ManagedSettings | None = None,
    pid_file: Path | None = None,
    on_ready: Callable[[], None] | None = None,
) -> Outcome:
    """Run until a signal or the control socket ends it; main thread only.

    `on_ready` is called when the server serves clients. Raises CanalError when the
    start fails.
    """
    daemon = Daemon(
        config,
        make_instance,
        zookeepers,
        log_levels,
        log_dir=log_dir,
        settings=settings,
        pid_file=pid_file,
    )
    with signals() as wait:
        daemon.start()
        listens = config.server.listen
        notify(READY, f"serving clients on port {daemon.port}" if listens else "")
        if on_ready is not None:
            on_ready()
        name = wait(daemon.stop)
        if name:
            log.info("received %s, shutting down (repeat to force)", name)
        if name or not daemon.restarts:
            notify(STOPPING)
        daemon.request_stop()
        ended = daemon.join(Deadline(STOP_TIMEOUT_S))
    log.info("shut down")
    if not ended:
        return Outcome.FAILED
    return Outcome.RESTARTS if daemon.restarts and not name else Outcome.ENDED
