"""Until when the certificates are valid that this server shows and is shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canal_server.capture.source_parts import access_of, standby_access_of
from canal_server.doors.prometheus.metric_families import Families
from canal_server.errors import CanalError
from canal_server.tls.server_tls import expires_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from canal_server.config.schema import InstanceConfig, TlsConfig
    from canal_server.doors.prometheus.metric_families import Metric
    from canal_server.observe.readings import Reading
    from canal_server.tls.source_tls import TlsOptions

SERVER: Final = "server"  # on the ports of this server
CLIENT: Final = "client"  # shown to a source
SOURCE: Final = "source"  # shown by a source
_Stamp = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate; `about` says which, after the word certificate."""

    role: str  # SERVER, CLIENT or SOURCE
    destination: str  # empty for that of the server
    name: str  # a file, or the address of a source
    about: str
    expires_at_s: float  # since 1970


class CertificateExpiry:
    """Looks the certificates up: in files, and in what sources last showed.

    Files are read again when they change: a key store may need a command to be opened.
    """

    def __init__(
        self,
        tls: TlsConfig,
        configs: Callable[[], Sequence[InstanceConfig]],
        read: Callable[[], Sequence[Reading]],
    ) -> None:
        """Look nothing up yet; `configs` and `read` return those of destinations."""
        self._tls = tls
        self._configs = configs
        self._read = read
        self._files: dict[_Stamp, float | None] = {}

    def all(self) -> list[Certificate]:
        """Return the certificates; those that cannot be read are left out.

        What uses them reports why. For one thread.
        """
        found = list(self._of_server())
        files: dict[_Stamp, float | None] = {}
        for config in self._configs():
            found += self._of_clients(config, files)
        self._files = files
        return found + shown_by_sources(self._read())

    def _of_server(self) -> Iterator[Certificate]:
        path = self._tls.cert_file
        if path is None:
            return
        try:
            ends = expires_at(path)
        except CanalError:
            return
        about = f"in canal.tls.certFile = {path}"
        yield Certificate(SERVER, "", str(path), about, ends.timestamp())

    def _of_clients(
        self, config: InstanceConfig, files: dict[_Stamp, float | None]
    ) -> Iterator[Certificate]:
        """Yield those of a destination, and put what was read into `files`."""
        shown: dict[str, float] = {}
        for part in config.by_source:
            for tls in _tls_of(part):
                path = tls.client_store or tls.cert
                stamp = _stamp(path)
                if stamp is None:
                    continue
                if stamp not in self._files:
                    self._files[stamp] = _expiry_of(tls)
                ends_s = files[stamp] = self._files[stamp]
                if ends_s is not None:
                    shown[path] = ends_s
        for path, ends_s in shown.items():
            about = f"{path} that destination {config.destination} shows to its source"
            yield Certificate(CLIENT, config.destination, path, about, ends_s)


def certificate_metrics(
    certificates: Sequence[Certificate], now_s: float
) -> Iterator[Metric]:
    """Yield how long each certificate is valid."""
    families = Families()
    for each in certificates:
        families.gauge(
            "canal_certificate_expiry_seconds",
            "For how long a certificate is valid, below 0 when it has expired: of this"
            " server, of a client at a source, or of a source",
            each.expires_at_s - now_s,
            role=each.role,
            destination=each.destination,
            certificate=each.name,
        )
    yield from families.all()


def shown_by_sources(readings: Iterable[Reading]) -> list[Certificate]:
    """Return what the sources of all destinations showed last."""
    return [
        found
        for reading in readings
        for found in _of_sources(reading.destination, reading.status)
    ]


def _of_sources(destination: str, status: Mapping[str, Any]) -> Iterator[Certificate]:
    """Yield what the sources of a destination showed, by its status."""
    sources = status.get("sources")
    for each in sources if isinstance(sources, list) else [status]:
        ends_ms, address = each.get("certificate_expires_ms"), str(each.get("reads"))
        if ends_ms:
            about = f"of {address}, the source of destination {destination},"
            yield Certificate(SOURCE, destination, address, about, ends_ms / 1000)


def _tls_of(config: InstanceConfig) -> Iterator[TlsOptions]:
    if config.source.master.address is not None:
        yield access_of(config.source, config.destination).tls
    standby = standby_access_of(config.source)
    if standby is not None:
        yield standby.tls


def _expiry_of(tls: TlsOptions) -> float | None:
    try:
        ends: datetime | None = tls.expires_at()
    except CanalError:
        return None
    return None if ends is None else ends.timestamp()


def _stamp(path: str) -> _Stamp | None:
    """Return what changes with the content of a file, None: there is none."""
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return path, stat.st_mtime_ns, stat.st_size, stat.st_ino
