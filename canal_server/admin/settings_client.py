"""Asks canal-admin for the settings that it hands out.

The paths, parameters and answers are those of canal-admin (server.md 10.2); unlike the
Java server, this one escapes the values of parameters.
"""

from __future__ import annotations

import hashlib
import json
import urllib.parse
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.doors.web_service import FAILURES, WebTarget, reason_of_failure
from canal_server.errors import CanalError

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S: Final = 5.0  # as in the Java server
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_OK: Final = 20_000
_MESSAGE_MAX: Final = 200  # characters


class SettingsError(CanalError):
    """canal-admin cannot be reached, or does not hand out settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """What a server is for canal-admin: an address and the port for canal-admin."""

    ip: str
    port: int
    register: bool = False  # add it if it is missing there
    cluster: str = ""
    name: str = ""


class SettingsClient:
    """One canal-admin, and this server's login there.

    Each method returns the text of the settings, None if it still has the MD5 sum that
    is given, or if there are none. They block for `TIMEOUT_S` per read at most, and
    raise SettingsError.
    """

    def __init__(
        self, address: str, user: str, passwd: str, identity: ServerIdentity
    ) -> None:
        """Create it; `passwd` is hex(SHA1(SHA1(password)))."""
        self.address = address
        self._headers = {"user": user, "passwd": passwd}
        self._identity = identity

    def server(self, md5: str = "") -> str | None:
        """Return canal.properties; without an MD5 sum, register this server."""
        me = self._identity
        return self._ask(
            "server_polling",
            {
                "ip": me.ip,
                "port": str(me.port),
                "md5": md5,
                "register": "1" if me.register else "0",
                "cluster": me.cluster,
                "name": me.name,
            },
        )

    def destinations(self, md5: str = "") -> str | None:
        """Return the names of this server's destinations, separated by commas."""
        me = self._identity
        return self._ask(
            "instances_polling", {"md5": md5, "ip": me.ip, "port": str(me.port)}
        )

    def destination(self, name: str, md5: str = "") -> str | None:
        """Return the instance.properties of a destination."""
        path = f"instance_polling/{urllib.parse.quote(name, safe='')}"
        return self._ask(path, {"md5": md5})

    def _ask(self, path: str, parameters: Mapping[str, str]) -> str | None:
        target = WebTarget(
            f"{self.address}/api/v1/config/{path}?{urllib.parse.urlencode(parameters)}"
        )
        try:
            with closing(target.connect(TIMEOUT_S)) as connection:
                connection.request("GET", target.path, headers=self._headers)
                with connection.getresponse() as response:
                    status, reason = response.status, response.reason
                    body = response.read(ANSWER_BYTES_MAX + 1)
        # ValueError: a host or a user that cannot be sent.
        except (*FAILURES, ValueError) as error:
            raise SettingsError(
                f"cannot reach canal-admin at {self.address}:"
                f" {reason_of_failure(error)}"
            ) from error
        if len(body) > ANSWER_BYTES_MAX:
            raise self._refusal(path, f"more than {ANSWER_BYTES_MAX} bytes")
        return self._content(path, f"{status} {reason}", body)

    def _content(self, path: str, status: str, body: bytes) -> str | None:
        try:
            answer = json.loads(body)
            code, data = answer["code"], answer.get("data")
            content = None if data is None else data["content"]
            message = str(answer.get("message"))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self._refusal(
                path, f"{status}, which is not an answer of canal-admin"
            ) from None
        if code != _OK:
            raise self._refusal(path, message)
        if content is not None and not isinstance(content, str):
            raise self._refusal(path, "settings that are not text")
        return content

    def _refusal(self, path: str, answer: str) -> SettingsError:
        shown = "".join(each if each.isprintable() else "?" for each in answer)
        return SettingsError(
            f"canal-admin at {self.address} answered {path.partition('/')[0]}:"
            f" {shown[:_MESSAGE_MAX]}"
        )


def md5_of(content: str) -> str:
    """Return the sum by which canal-admin knows a text: hex, of its UTF-8."""
    return hashlib.md5(content.encode(), usedforsecurity=False).hexdigest()
