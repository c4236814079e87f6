"""The port for Prometheus of a running mirror, and what feeds it.

Nothing here talks to Spark, the source or the lake when metrics are asked for: threads
look those up at intervals, and the stages report the rest.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from canal_server import __version__
from canal_server.config.schema import TlsConfig
from canal_server.doors.prometheus.metrics_server import MetricsServer
from canal_server.doors.prometheus.metrics_text import MetricsText
from canal_server.errors import ConfigError
from canal_server.messages.mirror import mirror_run_messages
from canal_server.mirror.follow.source_end import SourceEnd
from canal_server.mirror.report.lake_samples import LakeSamples
from canal_server.mirror.report.mirror_counts import MessageCounter, MirrorCounts
from canal_server.mirror.report.mirror_metrics import MirrorReading, mirror_metrics
from canal_server.mirror.report.process_memory import memory_bytes
from canal_server.mirror.state.state import TablesNow
from canal_server.runtime.lifecycle import Deadline
from canal_server.runtime.refusal_log import Refusals
from canal_server.tls.server_tls import ServerTls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.client.range_client import RangePosition
    from canal_server.doors.prometheus.metric_families import Metric
    from canal_server.mirror.lake.lake_storage import Folder
    from canal_server.mirror.settings.mirror_settings import (
        MetricsSettings,
        MirrorSettings,
    )
    from canal_server.runtime.lifecycle import Stop

log = logging.getLogger(__name__)

END_S: Final = 5.0  # for the threads
_LOGGERS: Final = "canal_server"
# The names of the server's keys in messages about the files.
_KEYS: Final = {
    "canal.tls.certFile": "metrics.tls_cert_file",
    "canal.tls.keyFile": "metrics.tls_key_file",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What the main loop has seen last."""

    tables: TablesNow
    is_caught_up: bool = False
    warnings: int = 0
    lacks_executors: bool = False


class Watching:
    """Serves the metrics of a mirror while it runs; `with` starts and ends it."""

    def __init__(
        self,
        settings: MirrorSettings,
        folder: Folder,
        counts: MirrorCounts,
        applied: Callable[[], RangePosition | None],
        stop: Stop,
    ) -> None:
        """Set what is shown; `applied` returns the stream's position.

        Raises ConfigError for files of TLS.
        """
        self._settings = settings
        self._counts = counts
        self._applied = applied
        self._stop = stop
        self._shown = Shown(TablesNow())
        self._messages = MessageCounter(counts)
        self._samples = LakeSamples(
            settings, folder, lambda: self._shown.tables.states, stop
        )
        self._end = SourceEnd(settings, stop)
        self._server = _server(settings.metrics, MetricsText(self._collect))

    @property
    def port(self) -> int | None:
        """The port; None if there is none."""
        return self._server.port if self._server is not None else None

    def __enter__(self) -> Self:
        if self._server is not None:
            logging.getLogger(_LOGGERS).addHandler(self._messages)
            self._server.start()
            self._samples.start()
            self._end.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is None:
            return
        self._stop.request()  # also ends the threads
        self._server.request_stop()
        deadline = Deadline(END_S)
        for stage in (self._end, self._samples, self._server):
            stage.join(deadline)
        logging.getLogger(_LOGGERS).removeHandler(self._messages)

    def show(self, shown: Shown) -> None:
        """Show what the main loop has seen."""
        self._shown = shown

    def caught_up(self) -> None:
        """Record that a poll of the stream brought nothing new."""
        self._end.caught_up()

    def _collect(self) -> Iterator[Metric]:
        shown = self._shown
        reading = MirrorReading(
            mirror=self._settings.name,
            destination=self._settings.canal.destination,
            version=__version__,
            counts=self._counts.read(),
            tables=shown.tables,
            sizes=self._samples.sizes,
            verified=self._samples.verified,
            lacking=self._end.lacking(self._applied()),
            is_caught_up=shown.is_caught_up,
            warnings=shown.warnings,
            lacks_executors=shown.lacks_executors,
            memory=memory_bytes(),
        )
        return mirror_metrics(reading)


def _server(settings: MetricsSettings, text: MetricsText) -> MetricsServer | None:
    """Return the port; None if there is none. Raises ConfigError."""
    if settings.port is None:
        return None
    return MetricsServer(
        settings.host,
        settings.port,
        text,
        _tls(settings),
        on_unavailable=_log_unavailable,
        on_failure=_log_failure,
        refusals=Refusals(_log_refusal, _log_refusals),
    )


def _log_unavailable(address: str, reason: str) -> None:
    mirror_run_messages.MIRROR_METRICS_PORT_UNAVAILABLE.log(log, address, reason)


def _log_failure() -> None:
    mirror_run_messages.MIRROR_METRICS_FAILED.log(log, exc_info=True)


def _log_refusal(what: str, level: int) -> None:
    mirror_run_messages.MIRROR_METRICS_REFUSED.log(log, what, level=level)


def _log_refusals(n: int, host: str, period_s: float, last: str, level: int) -> None:
    mirror_run_messages.MIRROR_METRICS_REFUSALS_REPEATED.log(
        log, n, host, period_s, last, level=level
    )


def _tls(settings: MetricsSettings) -> ServerTls | None:
    if not settings.tls_cert_file:
        return None
    key = settings.tls_key_file
    config = TlsConfig(
        cert_file=Path(settings.tls_cert_file), key_file=Path(key) if key else None
    )
    try:
        return ServerTls(config)
    except ConfigError as error:
        raise ConfigError(list(map(_in_settings, error.problems))) from error


def _in_settings(problem: str) -> str:
    for theirs, ours in _KEYS.items():
        problem = problem.replace(theirs, ours)
    return problem
