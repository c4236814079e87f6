"""Who may read which metrics, where there are users: those of what they may observe."""

from __future__ import annotations

import threading
import time
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from canal_server.tls.certificate_names import names_of
from canal_server.users.audit_log import AuditLog
from canal_server.users.failed_logins import FailedLogins, basic_login
from canal_server.users.login_notes import LoginNotes
from canal_server.users.rights import Right

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.users.rights import User
    from canal_server.users.user_directory import UserDirectory


class MetricsLogin:
    """Decides about scrapes; called by a thread for each."""

    def __init__(
        self,
        users: UserDirectory,
        failed: FailedLogins | None = None,
        *,
        audit: AuditLog | None = None,
    ) -> None:
        self._users = users
        self._audit = audit or AuditLog(None)
        self._logins = LoginNotes(self._audit, "metrics")
        self._failed = failed or FailedLogins()

    def status(
        self, authorization: str, certificate: bytes | None, host: str, port: int = 0
    ) -> HTTPStatus | Callable[[str], bool]:
        """Return OK for who may see everything; waits if passwords were wrong.

        For who may see some destinations, returns whether one is among these; for
        others, why they see nothing. `certificate` is the verified one, in DER.
        """
        user: User | None = None
        how, address = "certificate", f"{host}:{port}"
        if authorization:
            name, password = basic_login(authorization)
            user = self._users.by_password(name, password)
            how = "password"
            if not self._may_answer(host, name, user):
                return HTTPStatus.TOO_MANY_REQUESTS
            if user is None:
                self._audit.note("login_refused", name, address)
        elif certificate is not None:
            user = self._users.by_certificate(names_of(certificate))
        if user is None:
            return HTTPStatus.UNAUTHORIZED
        self._logins.note(user.name, host, port, how)
        if not (user.may_anywhere(Right.OBSERVE) and self._users.is_current(user)):
            self._audit.note_refusal(user.name, address, "GET metrics", None)
            return HTTPStatus.FORBIDDEN
        if user.may_everywhere(Right.OBSERVE):
            return HTTPStatus.OK
        return partial(user.may, Right.OBSERVE)

    def _may_answer(self, address: str, name: str, user: User | None) -> bool:
        """Wait, if passwords were wrong; false if too many wait already."""
        proof = "" if user is None else user.password_hash
        delay_s = self._failed.begin(address, name, proof, time.monotonic())
        if delay_s is None:
            return False
        if delay_s:
            threading.Event().wait(delay_s)
            self._failed.has_waited(address, name, proof)
        return True
