"""A web service that takes requests by POST: where it is, and its failures as text."""

from __future__ import annotations

import base64
import http.client
import urllib.parse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

FAILURES: Final = (OSError, http.client.HTTPException)  # of a connection to it


class WebTarget:
    """Where requests go, from a URL; its text does not show the URL's secrets.

    A user and password in the URL are sent as Basic authentication. Redirects are up to
    the caller; `http.client` follows none. Raises ValueError for another URL than
    http:// or https:// with a host.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            self._host, self._port = parts.hostname, parts.port
        except ValueError:  # its text has a part of the URL
            parts = urllib.parse.SplitResult("", "", "", "", "")
            self._host, self._port = None, None
        if parts.scheme not in {"http", "https"} or not self._host:
            raise ValueError("expected http://host/path or https://host/path")
        self._is_secure = parts.scheme == "https"
        self.path = urllib.parse.urlunsplit(
            ("", "", parts.path or "/", parts.query, "")
        )
        self.headers = {"Content-Type": "application/json"}
        if parts.username:
            user = urllib.parse.unquote(parts.username)
            password = urllib.parse.unquote(parts.password or "")
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self.headers["Authorization"] = f"Basic {pair}"

    def connect(
        self, timeout_s: float, tls: ssl.SSLContext | None = None
    ) -> http.client.HTTPConnection:
        """Return a connection, which is opened by the first request.

        `tls` is for https://; None: the authorities of the system are trusted.
        """
        assert self._host is not None
        if self._is_secure:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=tls
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def __str__(self) -> str:
        # Path and query may have a token in them, as those of Slack and Teams do.
        port = f":{self._port}" if self._port else ""
        path = "/" if self.path == "/" else "/…"
        return f"{'https' if self._is_secure else 'http'}://{self._host}{port}{path}"


def reason_of_failure(error: Exception) -> str:
    """Return why there is no answer, from one of FAILURES."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) or type(error).__name__
