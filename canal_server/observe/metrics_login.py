"""Who may read metrics, where there are users: who may observe all destinations."""

from __future__ import annotations

import threading
import time
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from canal_server.tls.certificate_names import names_of
from canal_server.users.failed_logins import FailedLogins, basic_login, group_of
from canal_server.users.rights import Right

if TYPE_CHECKING:
    from canal_server.users.rights import User
    from canal_server.users.user_directory import UserDirectory

DELAYED_MAX: Final = 4  # refusals of one address that wait at a time


class MetricsLogin:
    """Decides about scrapes; called by a thread for each."""

    def __init__(self, users: UserDirectory) -> None:
        self._users = users
        self._failed = FailedLogins()
        self._delayed: Counter[str] = Counter()
        self._lock = threading.Lock()

    def status(
        self, authorization: str, certificate: bytes | None, address: str
    ) -> HTTPStatus:
        """Return OK for a scrape that may be answered; waits with a wrong password.

        `certificate` is the one that was verified, in DER.
        """
        user: User | None = None
        if authorization:
            user = self._users.by_password(*basic_login(authorization))
            if user is None:
                return self._refused(group_of(address))
        elif certificate is not None:
            user = self._users.by_certificate(names_of(certificate))
        if user is None:
            return HTTPStatus.UNAUTHORIZED
        if not user.may_everywhere(Right.OBSERVE):
            return HTTPStatus.FORBIDDEN
        return HTTPStatus.OK

    def _refused(self, host: str) -> HTTPStatus:
        with self._lock:
            delay_s = self._failed.delay_s(host, time.monotonic())
            if self._delayed[host] >= DELAYED_MAX:
                return HTTPStatus.TOO_MANY_REQUESTS
            self._delayed[host] += 1
        threading.Event().wait(delay_s)
        with self._lock:
            self._delayed[host] -= 1
            if not self._delayed[host]:
                del self._delayed[host]
        return HTTPStatus.UNAUTHORIZED
