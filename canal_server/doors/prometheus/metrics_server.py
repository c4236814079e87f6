"""The HTTP port for Prometheus: a stage of the process.

A connection has one request, and a thread. `scrape_peers` limits both.
"""

from __future__ import annotations

import io
import logging
import socket
import ssl
import sys
import threading
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from canal_server.doors.prometheus.scrape_peers import ScrapePeers
from canal_server.runtime.port_connections import http_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from canal_server.doors.prometheus.metrics_text import MetricsText
    from canal_server.runtime.admission import Limits
    from canal_server.runtime.lifecycle import Deadline
    from canal_server.runtime.refusal_log import Refusals
    from canal_server.tls.server_tls import ServerTls

    # OK, or which destinations may be seen, or why none may.
    Verdict = HTTPStatus | Callable[[str], bool]
    StatusOf = Callable[[str, bytes | None, str, int], Verdict]

log = logging.getLogger(__name__)

SCRAPES_MAX: Final = 50
LIMITS: Final = http_limits(SCRAPES_MAX, SCRAPES_MAX, SCRAPES_MAX)
_BACKLOG: Final = 128
_POLL_S: Final = 0.5  # how soon the port ends, and a late connection
_CLIENT: Final = "canal.client"  # its host and port
_CERTIFICATE: Final = "canal.certificate"  # of the client, in a request's environment


class _Server(ThreadingMixIn, WSGIServer):
    """A request in a thread of its own, so that a slow client stops no other."""

    daemon_threads = True
    request_queue_size = _BACKLOG
    tls: ServerTls | None = None
    peers: ScrapePeers
    on_failure: Callable[[], None]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is room for a connection; its thread comes next."""
        return self.peers.admit(request, *client_address[:2])

    def service_actions(self) -> None:
        """Close what is late, at every poll and every connection."""
        self.peers.close_late()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.peers.remove(request)
        super().shutdown_request(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer a request, in its thread; TLS is negotiated first."""
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(_Handler.timeout)
        with self.tls.web_context().wrap_socket(
            request, server_side=True, do_handshake_on_connect=False
        ) as encrypted:
            self.peers.replace(request, encrypted)
            try:
                encrypted.do_handshake()
                super().finish_request(encrypted, client_address)
            finally:
                self.peers.remove(encrypted)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Report an error, unless it is of the client alone."""
        if not isinstance(sys.exception(), OSError):
            self.on_failure()

    def server_bind(self) -> None:
        """Bind, without asking DNS for the name of the host, which may take long."""
        TCPServer.server_bind(self)
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)
        self.setup_environ()


class _ServerIPv6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = 10  # seconds in which something of a request must arrive

    _certificate: bytes | None = None  # of the client, in DER

    def setup(self) -> None:
        """Keep the certificate: a connection that breaks off has none any more."""
        super().setup()
        if isinstance(self.connection, ssl.SSLSocket):
            self._certificate = self.connection.getpeercert(binary_form=True)

    def get_environ(self) -> dict[str, Any]:
        """Return what a request is, with the client's certificate."""
        assert isinstance(self.server, _Server)
        self.server.peers.has_asked(self.connection)
        environ = super().get_environ()
        environ[_CERTIFICATE] = self._certificate
        environ[_CLIENT] = self.client_address[:2]
        return environ

    def get_stderr(self) -> io.StringIO:
        """Return where errors of a peer go that does not read its answer: nowhere."""
        return io.StringIO()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: a scrape is no event."""


class MetricsServer:
    """A stage that serves the metrics at any path, as the Java server does.

    A port that is in use does not prevent the start of the process: that is a warning.
    """

    def __init__(
        self,
        ip: str,
        port: int,
        metrics: MetricsText,
        tls: ServerTls | None = None,
        *,
        on_unavailable: Callable[[str, str], None],
        on_failure: Callable[[], None],
        refusals: Refusals,
        status_of: StatusOf | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        """Serve at this address; port 0: any free one.

        `status_of` decides who may read what: by the header `Authorization`, the
        verified certificate of the client in DER, and its host and port. None:
        everybody reads everything.

        `on_unavailable` logs that the port cannot be opened, and why; `on_failure` logs
        the error that is being handled, and for which a request was not answered.
        `refusals` logs the connections for which `limits` leave no room.
        """
        self._on_unavailable = on_unavailable
        self._on_failure = on_failure
        self._status_of = status_of
        self._peers = ScrapePeers(limits, refusals)
        self._ip = ip
        self._tls = tls
        self._port = port
        self._metrics = metrics
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int | None:
        """The port, once started; None if it could not be opened."""
        return None if self._server is None else self._server.server_port

    def start(self) -> None:
        """Open the port."""
        try:
            kind = _ServerIPv6 if ":" in self._ip else _Server
            self._server = kind((self._ip, self._port), _Handler)
        except OSError as error:
            self._on_unavailable(
                f"{self._ip}:{self._port}", error.strerror or str(error)
            )
            return
        self._server.set_app(self._answer)
        self._server.tls = self._tls
        self._server.peers = self._peers
        self._server.on_failure = self._on_failure
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_POLL_S,),
            name="metrics",
            daemon=True,
        )
        self._thread.start()
        log.info(
            "metrics at %s://%s:%s/metrics",
            "http" if self._tls is None else "https",
            self._ip,
            self._server.server_port,
        )

    def request_stop(self) -> None:
        """Ask the port to close; returns at once."""
        if self._server is not None:
            # `shutdown` waits for the thread, which `join` does.
            threading.Thread(target=self._server.shutdown, daemon=True).start()

    def join(self, deadline: Deadline) -> bool:
        """Wait until the port is closed."""
        if self._thread is None or self._server is None:
            return True
        self._thread.join(deadline.remaining_s())
        if self._thread.is_alive():
            return False
        self._server.server_close()
        self._peers.flush()
        return True

    def _answer(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            start_response("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return [b""]
        found = self._verdict(environ)
        if isinstance(found, HTTPStatus) and found is not HTTPStatus.OK:
            login = [("WWW-Authenticate", 'Basic realm="canal-server"')]
            is_login = found is HTTPStatus.UNAUTHORIZED
            start_response(f"{found.value} {found.phrase}", login if is_login else [])
            return [b""]
        try:
            text = self._metrics.text(None if found is HTTPStatus.OK else found)
        except Exception:  # noqa: BLE001  # the outermost frame of this thread
            self._on_failure()
            start_response("500 Internal Server Error", [])
            return [b""]
        start_response("200 OK", [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)])
        return [text]

    def _verdict(self, environ: WSGIEnvironment) -> Verdict:
        if self._status_of is None:
            return HTTPStatus.OK
        return self._status_of(
            environ.get("HTTP_AUTHORIZATION", ""),
            environ.get(_CERTIFICATE),
            *environ[_CLIENT],
        )
