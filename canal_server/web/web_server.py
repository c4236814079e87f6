"""The HTTP port: a stage of the process."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Route

from canal_server.messages import daemon_messages
from canal_server.observe.port_refusals import http_refusals
from canal_server.runtime.lifecycle import Stop
from canal_server.runtime.port_connections import PortConnections, http_limits
from canal_server.tls.server_tls import FollowingContext
from canal_server.users.audit_log import AuditLog
from canal_server.web.access_rules import AccessMiddleware, AccessRules
from canal_server.web.api import Api, on_failure, on_http_exception, on_problem
from canal_server.web.http_connection import HttpConnection
from canal_server.web.http_door import Door
from canal_server.web.live_tail import Tails
from canal_server.web.message_page import message_page
from canal_server.web.problem_details import Problem
from canal_server.web.throughput import SAMPLE_S, Throughput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from canal_server.runtime.admission import Limits
    from canal_server.runtime.lifecycle import Deadline
    from canal_server.tls.server_tls import ServerTls
    from canal_server.users.user_directory import UserDirectory
    from canal_server.web.access_rules import Login
    from canal_server.web.server_operations import Operations

log = logging.getLogger(__name__)

_BACKLOG: Final = 128
VISITORS_MAX: Final = 100
LIMITS: Final = http_limits(VISITORS_MAX, VISITORS_MAX, VISITORS_MAX)
_KEEP_ALIVE_S: Final = 10
_STOP_S: Final = 2  # for requests that are being answered
_HTML: Final = "text/html; charset=utf-8"
_FILES: Final = {
    "/": ("index.html", _HTML),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/clients.js": ("clients.js", "text/javascript; charset=utf-8"),
    "/cluster.js": ("cluster.js", "text/javascript; charset=utf-8"),
    "/elements.js": ("elements.js", "text/javascript; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/tail.js": ("tail.js", "text/javascript; charset=utf-8"),
}
# Nothing comes from elsewhere, and no other page shows this one in a frame.
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def application(
    operations: Operations,
    throughput: Throughput,
    rules: AccessRules,
    version: str,
    tails: Tails | None = None,
    *,
    audit: AuditLog | None = None,
) -> Starlette:
    """Return the ASGI application; `tails` are those that somebody ends."""
    tails = tails or Tails(operations)
    audit = audit or AuditLog(None)
    api = Api(operations, throughput, version, rules=rules, tails=tails, audit=audit)
    return Starlette(
        routes=[
            *api.routes(),
            *(Route(path, _file(*file)) for path, file in _FILES.items()),
            Route("/messages.html", _fixed(message_page(version), _HTML)),
        ],
        middleware=[Middleware(AccessMiddleware, rules=rules, audit=audit)],
        exception_handlers={
            Problem: on_problem,
            HTTPException: on_http_exception,
            Exception: on_failure,
        },
    )


def _file(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers with a file of the package."""
    folder = resources.files("canal_server.web") / "page"
    return _fixed((folder / name).read_bytes(), media_type)


def _fixed(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint whose answer does not change."""
    response = Response(content, media_type=media_type, headers=_HEADERS)

    async def answer(_: Request) -> Response:
        return response

    return answer


class _Loop(asyncio.SelectorEventLoop):
    """The loop of the port, whose connections come by a door."""

    def __init__(self, connections: PortConnections[Door]) -> None:
        super().__init__()
        self._connections = connections

    async def create_server(
        self, protocol_factory: Any, *args: Any, ssl: Any = None, **options: Any
    ) -> asyncio.Server:
        """Open the port."""

        def make() -> Door:
            return Door(protocol_factory, ssl, self._connections)

        return await super().create_server(make, *args, **options)


class _Config(uvicorn.Config):
    """The settings of the port, with TLS whose files may change."""

    def __init__(self, app: ASGIApp, tls: ServerTls | None, **options: Any) -> None:
        super().__init__(app, **options)
        self._tls = tls

    def load(self) -> None:
        """Complete the settings."""
        super().load()
        if self._tls is not None:
            self.ssl = FollowingContext.of(self._tls)


class WebServer:
    """A stage that serves the page and the REST interface.

    A port that is in use does not prevent the start of the server: that is a warning.
    """

    def __init__(
        self,
        ip: str,
        port: int,
        operations: Operations,
        version: str,
        login: Login | None = None,
        *,
        clients_log_in: bool = False,
        users: UserDirectory | None = None,
        audit: AuditLog | None = None,
        tls: ServerTls | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        """Create without opening the port.

        `clients_log_in`: whether the port for clients needs a password or certificate.
        """
        self._connections: PortConnections[Door] = PortConnections(
            "page and REST interface", limits, http_refusals(), Door.abort
        )
        self._address = ip, port
        self._scheme = "http" if tls is None else "https"
        self._throughput = Throughput(operations.received)
        self._tails = Tails(operations)
        rules = AccessRules(ip, login, clients_log_in=clients_log_in, users=users)
        rules.users.on_change(self._tails.look_again)
        app = application(
            operations, self._throughput, rules, version, self._tails, audit=audit
        )
        self._uvicorn = uvicorn.Server(
            _Config(
                app,
                tls,
                http=HttpConnection,
                log_config=None,
                # Its warnings are about requests that it answers with 400: anybody
                # can send many of them.
                log_level="error",
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                proxy_headers=False,  # anybody can write those
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_STOP_S,
            )
        )
        self._stop = Stop()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int | None:
        """The port, once started; None if it could not be opened."""
        return None if self._listener is None else self._listener.getsockname()[1]

    def start(self) -> None:
        """Open the port."""
        ip, port = self._address
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        try:
            self._listener = socket.create_server(
                (ip, port), family=family, backlog=_BACKLOG
            )
        except OSError as error:
            daemon_messages.HTTP_PORT_UNAVAILABLE.log(
                log, f"{ip}:{port}", error.strerror
            )
            return
        self._threads = [
            threading.Thread(
                target=self._serve, args=(self._listener,), name="http", daemon=True
            ),
            threading.Thread(target=self._sample, name="throughput", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        log.info("page and REST interface at %s://%s:%s/", self._scheme, ip, self.port)

    def request_stop(self) -> None:
        """Ask the port to close; returns at once."""
        self._stop.request()
        self._uvicorn.should_exit = True
        self._tails.end()

    def join(self, deadline: Deadline) -> bool:
        """Wait until the port is closed."""
        for thread in self._threads:
            thread.join(deadline.remaining_s())
            if thread.is_alive():
                return False
        return True

    def _serve(self, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: _Loop(self._connections)) as runner:
            runner.run(self._uvicorn.serve(sockets=[listener]))
        self._connections.flush()

    def _sample(self) -> None:
        while not self._stop.requested():
            try:
                self._throughput.sample()
            except Exception:  # noqa: BLE001  # the outermost frame of this thread
                daemon_messages.THROUGHPUT_FAILED.log(log, exc_info=True)
            self._connections.log_ended()
            self._stop.wait(SAMPLE_S)
