"""Who may use the HTTP port: log-ins, names of this host, requests of other sites."""

from __future__ import annotations

import asyncio
import hmac
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from canal_server.protocol.auth import Credentials, stored_form
from canal_server.runtime.loopback import is_loopback
from canal_server.users.failed_logins import DELAY_MAX_S, FailedLogins, basic_login
from canal_server.users.login_notes import LoginNotes
from canal_server.users.rights import EVERYTHING, ReadRule, Right, User
from canal_server.users.user_directory import UserDirectory
from canal_server.web.problem_details import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from canal_server.users.audit_log import AuditLog

OPEN_PATHS: Final = ("/healthz", "/readyz")  # orchestrators send no login
PATH_MAX: Final = 200  # characters of one in the audit
_READING: Final = ("GET", "HEAD")
_LOGIN: Final = {"WWW-Authenticate": 'Basic realm="canal-server", charset="UTF-8"'}
_IS_OPEN: Final = "the port is open to other hosts"
_SET_LOGIN: Final = "set canal.http.user and canal.http.passwd, or canal.users.file"
_OWN_SITES: Final = ("same-origin", "none")  # of the header that browsers send


def _all_rights(name: str) -> User:
    every = (EVERYTHING,)
    read = (ReadRule(EVERYTHING),)
    return User(name, read=read, ranges=every, operate=every, observe=every)


_ANYBODY: Final = _all_rights("")
_OBSERVER: Final = User("", observe=(EVERYTHING,))


@dataclass(frozen=True, slots=True)
class Login:
    """A name and the hash of its password: hex(SHA1(SHA1(password)))."""

    user: str
    password_hash: str = field(repr=False)

    def accepts(self, user: str, password: str) -> bool:
        """Return whether a name and a password are right."""
        same_user = hmac.compare_digest(user.encode(), self.user.encode())
        return (
            hmac.compare_digest(stored_form(password), self.password_hash) and same_user
        )


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sent a request; `why_no_data` is why rows are not shown to anybody."""

    user: User
    why_no_data: str | None = None

    def may(self, right: Right, destination: str) -> bool:
        """Return whether the visitor has a right for a destination."""
        if right is Right.READ and self.why_no_data is not None:
            return False
        return self.user.may(right, destination)

    def check(self, right: Right, destination: str) -> None:
        """Raise a Problem unless the visitor has a right for a destination."""
        if right is Right.READ and self.why_no_data is not None:
            raise Problem(HTTPStatus.FORBIDDEN, self.why_no_data)
        if not self.user.may(right, destination):
            raise self.refused(f"{right.value} destination {destination[:100]!r}")

    def check_everywhere(self, right: Right) -> None:
        """Raise a Problem unless the visitor has a right for all destinations."""
        if not self.user.may_everywhere(right):
            raise self.refused(f"{right.value} all destinations")

    def refused(self, what: str) -> Problem:
        """Return the problem of a request that the visitor may not make."""
        if not self.user.name:
            return Problem(
                HTTPStatus.FORBIDDEN,
                f"actions need a login, as {_IS_OPEN}: {_SET_LOGIN}",
            )
        return Problem(
            HTTPStatus.FORBIDDEN,
            f"user {self.user.name!r} may not {what}: rights are in the server's"
            " canal.users.file",
        )


class AccessRules:
    """Which requests may be made, and by whom.

    With a login or users, everything but health checks needs one. Without, everybody
    who reaches the port may read; actions are for the loopback interface alone, and
    requests must name it as their host, so that no page of another site can use the
    browser of somebody on this host (DNS rebinding).

    Data of tables needs the right to read, and without a login is only shown if clients
    need none either: with `clients_log_in`, this port is no way around their password.
    """

    def __init__(
        self,
        ip: str,
        login: Login | None,
        *,
        clients_log_in: bool = False,
        users: UserDirectory | None = None,
        failed_logins: FailedLogins | None = None,
    ) -> None:
        self._login = login
        self.users = users or UserDirectory(None, Credentials())
        self._failed_logins = failed_logins or FailedLogins()
        self._operator = None if login is None else _all_rights(login.user)
        self._is_loopback = is_loopback(ip)
        self._stranger = _stranger(
            is_loopback=self._is_loopback, clients_log_in=clients_log_in
        )

    @property
    def needs_login(self) -> bool:
        """Return whether there are users or a login."""
        return self._login is not None or self.users.has_file

    def visitor(
        self, headers: Headers, certificate_names: Sequence[str] = ()
    ) -> Visitor:
        """Return who sent a request. Raises a Problem if nobody may."""
        if self.needs_login:
            return Visitor(self._user(headers, certificate_names))
        if self._is_loopback and not is_loopback(_host_name(headers.get("host", ""))):
            raise Problem(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the port has no login, so the URL must name this host as localhost or"
                f" 127.0.0.1; {_SET_LOGIN} for other names",
            )
        return self._stranger

    def is_current(self, visitor: Visitor) -> bool:
        """Return whether a visitor has the same rights still."""
        user = visitor.user
        return user in (_ANYBODY, _OBSERVER, self._operator) or (
            self.users.is_current(user)
        )

    async def delay(self, address: str, headers: Headers, *, is_right: bool) -> None:
        """Wait before a log-in with a password is answered, right or wrong.

        Raises a Problem when too many of this name and address wait already: guesses at
        the same time would be no slower otherwise, and hold all connections.
        """
        name, password = basic_login(headers["authorization"])
        proof = stored_form(password) if is_right else ""
        delay_s = self._failed_logins.begin(address, name, proof, time.monotonic())
        if delay_s is None:
            raise Problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many wrong passwords for this name from this address",
                headers={"Retry-After": f"{DELAY_MAX_S:.0f}"},
            )
        if delay_s:
            await asyncio.sleep(delay_s)
            self._failed_logins.has_waited(address, name, proof)

    def _user(self, headers: Headers, certificate_names: Sequence[str]) -> User:
        """Return the user who logs in. Raises a Problem."""
        authorization = headers.get("authorization", "")
        found = None
        if authorization:
            name, password = basic_login(authorization)
            found = self.users.by_password(name, password)
            if found is None and self._login is not None:
                known = self._login.accepts(name, password)
                found = self._operator if known else None
        elif certificate_names:
            found = self.users.by_certificate(certificate_names)
        if found is None:
            which = "canal.http.user" if self._login is not None else ""
            of_file = "a user of canal.users.file" if self.users.has_file else ""
            names = " or ".join(filter(None, (which, of_file)))
            raise WrongLogin(
                HTTPStatus.UNAUTHORIZED,
                f"log in as {names}, with the password",
                headers=_LOGIN,
            )
        return found


def check_action(method: str, headers: Headers, visitor: Visitor) -> None:
    """Raise a Problem for an action that a visitor may not request, wherever it is."""
    if method in _READING:
        return
    if not visitor.user.operate:
        raise visitor.refused("act")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
        raise Problem(
            HTTPStatus.FORBIDDEN, f"a page of {origin[:100]!r} may not do this"
        )


class WrongLogin(Problem):  # a Problem
    """Nobody has logged in, or the password is wrong."""


def check_site(headers: Headers) -> None:
    """Raise a Problem for a request that a page of another site makes.

    It cannot read the answer, but could keep it open.
    """
    if headers.get("sec-fetch-site", "none") not in _OWN_SITES:
        raise Problem(HTTPStatus.FORBIDDEN, "a page of another site may not do this")


class AccessMiddleware:
    """Refuses who may not be here, and notes for an application who sent a request.

    The visitor is `visitor` of the request's state.
    """

    def __init__(self, app: ASGIApp, rules: AccessRules, audit: AuditLog) -> None:
        self._app = app
        self._audit = audit
        self._logins = LoginNotes(audit, "http")
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            found = self._who(scope)
            headers = Headers(scope=scope)
            if self._rules.needs_login and "authorization" in headers:
                host, port = scope.get("client") or ("?", 0)
                is_right = not isinstance(found, WrongLogin)
                try:
                    await self._rules.delay(host, headers, is_right=is_right)
                    found = self._who(scope)  # rights may have changed meanwhile
                except Problem as too_many:
                    found = too_many
                if isinstance(found, WrongLogin):  # not if there are too many
                    name, _ = basic_login(headers["authorization"])
                    self._audit.note("login_refused", name, f"{host}:{port}")
            if isinstance(found, Problem):
                await found.response()(scope, receive, send)
                return
            scope["state"]["visitor"] = found
            if found.user.name:
                how = "password" if "authorization" in headers else "certificate"
                host, port = scope.get("client") or ("?", 0)
                self._logins.note(found.user.name, host, port, how)
            send = self._noting_refusals(scope, found, send)
            try:
                check_action(scope["method"], headers, found)
            except Problem as refused:
                await refused.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _noting_refusals(self, scope: Scope, visitor: Visitor, send: Send) -> Send:
        """Return `send`, which notes in the audit what a user may not do."""

        async def noting(message: Message) -> None:
            if message.get("status") == HTTPStatus.FORBIDDEN and visitor.user.name:
                host, port = scope.get("client") or ("?", 0)
                self._audit.note_refusal(
                    visitor.user.name,
                    f"{host}:{port}",
                    f"{scope['method']} {scope['path'][:PATH_MAX]}",
                    None,
                )
            await send(message)

        return noting

    def _who(self, scope: Scope) -> Visitor | Problem:
        """Return who sent a request, or why it is refused."""
        state = scope.setdefault("state", {})
        names = state.get("certificate_names", ())
        try:
            return self._rules.visitor(Headers(scope=scope), names)
        except Problem as problem:
            return problem


def _stranger(*, is_loopback: bool, clients_log_in: bool) -> Visitor:
    """Return who needs no login."""
    if not is_loopback:
        why = f"data of tables needs a login, as {_IS_OPEN}: {_SET_LOGIN}"
        return Visitor(_OBSERVER, why)
    if clients_log_in:
        return Visitor(
            _ANYBODY,
            "data of tables needs a login, as clients of this server need a password"
            f" or a certificate: {_SET_LOGIN}",
        )
    return Visitor(_ANYBODY)


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port; empty if it has none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # an unclosed bracket
        return ""
