"""The server's certificate: read from PEM files, and again when they change."""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from canal_server.config.schema import ClientCertificates
from canal_server.errors import ConfigError
from canal_server.messages import server_messages

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from canal_server.config.schema import TlsConfig

log = logging.getLogger(__name__)

_REQUESTS: Final = {
    ClientCertificates.NONE: ssl.CERT_NONE,
    ClientCertificates.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientCertificates.REQUIRED: ssl.CERT_REQUIRED,
}
_Stamps = tuple[tuple[int, int, int], ...]


class ServerTls:
    """Contexts for new connections, by the files as they are now; thread-safe.

    Files that were replaced by unusable ones, or only in part, are reported once, and
    the earlier certificate stays in use.
    """

    def __init__(self, config: TlsConfig, *, asks_visitors: bool = False) -> None:
        """Read the files. Raises ConfigError with the key, the file and the reason.

        `asks_visitors`: whether HTTP ports ask for a certificate, which may be a
        log-in there. They never require one: probes and browsers have none.
        """
        self._asks_visitors = asks_visitors
        self.is_required = config.required
        self._config = config
        self._lock = threading.Lock()
        self._stamps = _stamps(config)
        self._contexts = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection of a client."""
        return self._current()[0]

    def web_context(self) -> ssl.SSLContext:
        """Return the context for a new connection to an HTTP port."""
        return self._current()[1]

    def _current(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        with self._lock:
            stamps = _stamps(self._config)
            if stamps != self._stamps:
                self._stamps = stamps
                self._reload()
            return self._contexts

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Return the contexts for clients, and for HTTP. Raises ConfigError."""
        config = self._config
        asks = self._asks_visitors and (
            config.client_certificates is not ClientCertificates.NONE
        )
        kind = ClientCertificates.OPTIONAL if asks else ClientCertificates.NONE
        web = replace(config, client_certificates=kind)
        return load_context(config), load_context(web)

    def _reload(self) -> None:
        try:
            self._contexts = self._load()
        except ConfigError as error:
            server_messages.TLS_RELOAD_FAILED.log(log, error)
            return
        log.info("the TLS certificate was read again: %s", self._config.cert_file)


class FollowingContext(ssl.SSLContext):
    """A context that uses that of a `ServerTls` for each connection to an HTTP port.

    For libraries that accept one context for the life of a port.
    """

    _tls: ServerTls

    @classmethod
    def of(cls, tls: ServerTls) -> FollowingContext:
        """Return a context that follows."""
        made = cls(ssl.PROTOCOL_TLS_SERVER)
        made._tls = tls  # of this class; it has no constructor
        return made

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Return the TLS of a new connection."""
        return self._tls.web_context().wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Return a socket with the TLS of a new connection."""
        return self._tls.web_context().wrap_socket(*args, **options)


def load_context(config: TlsConfig) -> ssl.SSLContext:
    """Return a context by the files. Raises ConfigError."""
    assert config.cert_file is not None, "there is no TLS without"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    expires_at(config.cert_file)
    # A file may hold both.
    key_file = config.key_file or config.cert_file
    _check_readable("canal.tls.keyFile", key_file)
    try:
        context.load_cert_chain(config.cert_file, key_file, _no_pass_phrase)
    except (OSError, ValueError) as error:
        raise _problem("canal.tls.keyFile", key_file, _key_problem(error)) from error
    if config.client_ca_file is not None:
        _check_readable("canal.tls.clientCaFile", config.client_ca_file)
        try:
            context.load_verify_locations(config.client_ca_file)
        except OSError as error:
            raise _problem(
                "canal.tls.clientCaFile",
                config.client_ca_file,
                "no certificates in PEM form; write those of the authorities that sign"
                " clients' certificates",
            ) from error
        context.verify_mode = _REQUESTS[config.client_certificates]
    return context


def expires_at(cert_file: Path) -> datetime:
    """Return when the first certificate of a file expires. Raises ConfigError."""
    from cryptography import x509  # noqa: PLC0415  # 8 MB, for TLS only

    key = "canal.tls.certFile"
    try:
        found = x509.load_pem_x509_certificate(cert_file.read_bytes())
    except OSError as error:
        raise _problem(key, cert_file, f"cannot read: {error.strerror}") from error
    except ValueError as error:
        raise _problem(
            key, cert_file, "no certificate in PEM form; write the server's certificate"
            " and those of the authorities between it and the root",
        ) from error  # fmt: skip
    return found.not_valid_after_utc


def _check_readable(key: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise _problem(key, path, f"cannot read: {error.strerror}") from error


def _key_problem(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "this key does not belong to the certificate in canal.tls.certFile"
    if isinstance(error, ssl.SSLError):
        return "no private key in PEM form"
    return str(error)


def _no_pass_phrase() -> str:
    # Without this, OpenSSL would ask at the terminal.
    raise ValueError("the key has a pass phrase; write it without one")


def _problem(key: str, path: Path, reason: str) -> ConfigError:
    return ConfigError([f"{key} = {path}: {reason}"])


def _stamps(config: TlsConfig) -> _Stamps:
    """Return what changes with the content of the files."""
    found = []
    for path in (config.cert_file, config.key_file, config.client_ca_file):
        if path is not None:
            try:
                stat = path.stat()
            except OSError:  # is being replaced, or deleted: that is reported
                found.append((0, 0, 0))
            else:
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(found)
