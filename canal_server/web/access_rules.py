"""Who may use the HTTP port: a login, names of this host, requests of other sites."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from canal_server.runtime.loopback import is_loopback
from canal_server.web.problem_details import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS: Final = ("/healthz", "/readyz")  # orchestrators send no login
_READING: Final = ("GET", "HEAD")
_LOGIN: Final = {"WWW-Authenticate": 'Basic realm="canal-server", charset="UTF-8"'}
_IS_OPEN: Final = "the port is open to other hosts"
_SET_LOGIN: Final = "set canal.http.user and canal.http.passwd"
_OWN_SITES: Final = ("same-origin", "none")  # of the header that browsers send


@dataclass(frozen=True, slots=True)
class Login:
    """A name and the hash of its password: hex(SHA1(SHA1(password)))."""

    user: str
    password_hash: str = field(repr=False)

    def accepts(self, authorization: str) -> bool:
        """Return whether the header of HTTP's basic authentication is right."""
        scheme, _, encoded = authorization.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            sent = base64.b64decode(encoded, validate=True).decode()
        except ValueError:  # not Base64, or not UTF-8
            return False
        user, _, password = sent.partition(":")
        # SHA-1 is what canal.passwd has; protocol and file stay as they are.
        once = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
        found = hashlib.sha1(once, usedforsecurity=False).hexdigest()
        same_user = hmac.compare_digest(user.encode(), self.user.encode())
        return hmac.compare_digest(found, self.password_hash) and same_user


class AccessRules:
    """Which requests may be made.

    With a login, everything but health checks needs it. Without one, everybody who
    reaches the port may read; actions are for the loopback interface alone, and
    requests must name it as their host, so that no page of another site can use the
    browser of somebody on this host (DNS rebinding).

    Data of tables is for those who may act, and without a login only if clients need
    none either: with `clients_log_in`, this port is no way around their password.
    """

    def __init__(
        self, ip: str, login: Login | None, *, clients_log_in: bool = False
    ) -> None:
        self._login = login
        self._is_loopback = is_loopback(ip)
        self._clients_log_in = clients_log_in

    @property
    def allows_actions(self) -> bool:
        """Return whether anybody may do more than read."""
        return self._login is not None or self._is_loopback

    @property
    def why_no_data(self) -> str | None:
        """Return why nobody may see data of tables; None: who may act may see it."""
        if self._login is not None:
            return None
        if not self._is_loopback:
            return f"data of tables needs a login, as {_IS_OPEN}: {_SET_LOGIN}"
        if self._clients_log_in:
            return (
                "data of tables needs a login, as clients of this server need a"
                f" password or a certificate: {_SET_LOGIN}"
            )
        return None

    def check_data(self, headers: Headers) -> None:
        """Raise a Problem for a request of data of tables that is not allowed.

        It was accepted by `check`.
        """
        why = self.why_no_data
        if why is not None:
            raise Problem(HTTPStatus.FORBIDDEN, why)
        # A page of another site cannot read the answer, but could keep it open.
        if headers.get("sec-fetch-site", "none") not in _OWN_SITES:
            raise Problem(
                HTTPStatus.FORBIDDEN, "a page of another site may not do this"
            )

    def check(self, method: str, headers: Headers) -> None:
        """Raise a Problem for a request that is not allowed."""
        host = headers.get("host", "")
        if self._login is not None:
            if not self._login.accepts(headers.get("authorization", "")):
                raise Problem(
                    HTTPStatus.UNAUTHORIZED,
                    "log in with canal.http.user and its password",
                    headers=_LOGIN,
                )
        elif self._is_loopback and not is_loopback(_host_name(host)):
            raise Problem(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the port has no login, so the URL must name this host as localhost or"
                " 127.0.0.1; set canal.http.user and canal.http.passwd for other names",
            )
        if method in _READING:
            return
        if not self.allows_actions:
            raise Problem(
                HTTPStatus.FORBIDDEN,
                f"actions need a login, as {_IS_OPEN}: {_SET_LOGIN}",
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Problem(
                HTTPStatus.FORBIDDEN, f"a page of {origin[:100]!r} may not do this"
            )


class AccessMiddleware:
    """Refuses what the rules do not allow, before an application sees it."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                self._rules.check(scope["method"], Headers(scope=scope))
            except Problem as problem:
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port; empty if it has none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # an unclosed bracket
        return ""
