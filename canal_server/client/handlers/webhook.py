"""The handler `webhook`: changes as signed requests to a web service.

The signature is that of Standard Webhooks (https://www.standardwebhooks.com), for which
libraries exist in most languages:

    webhook-id           the same when the same changes are sent again
    webhook-timestamp    when the request was sent, in seconds since 1970
    webhook-signature    v1,<Base64 of HMAC-SHA256 of "<id>.<timestamp>.<body>">
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from canal_server.client.handlers.change_json import json_object, json_text
from canal_server.client.handlers.handler import Rejected, RetryLater
from canal_server.doors.web_service import FAILURES, WebTarget, reason_of_failure
from canal_server.errors import CanalError
from canal_server.model.quoted import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.client.change_reader import Change

# Somebody else than the receiver answers with these, or it asks to come back.
UNAVAILABLE: Final = frozenset({408, 425, 429, 502, 503, 504})
SECRET_PREFIX: Final = "whsec_"  # noqa: S105  # of a secret in Base64
_SUCCESS = range(200, 300)
_SERVER_ERRORS = range(500, 600)
_ID_DIGITS: Final = 32
_BODY_BYTES_MAX: Final = 4096  # of an answer; the start of it is in the error


class Webhook:
    """Sends changes in batches, as the JSON object `{"changes": [...]}`, by POST.

    An answer 2xx is a success. After 408, 425, 429, 502, 503 or 504, or without an
    answer, the request is repeated until it succeeds, not before `Retry-After`. After
    another 5xx it is repeated as often as the consumer repeats failures. Any other
    answer rejects the changes.

    The connection stays open between requests. Redirects are not followed.

    Args:
        url: http:// or https://; a user and password in it are sent as Basic
            authentication
        secret: the key of the signature; without it, requests are not signed. With the
            prefix `whsec_` it is in Base64
        batch: how many changes a request has at most
        timeout_s: how long to wait for the connection and for the answer
        clock: returns the time in seconds since 1970

    """

    def __init__(
        self,
        url: str,
        *,
        secret: str = "",
        batch: int = 100,
        timeout_s: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if batch < 1 or timeout_s <= 0:
            raise ValueError("batch and timeout_s must be more than 0")
        self.flush_changes = batch
        try:
            self._target = WebTarget(url)
        except ValueError as error:
            raise ValueError(f"url: {error}") from None
        self._key = _key_of(secret)
        self._timeout_s = timeout_s
        self._clock = clock
        self._changes: list[str] = []
        self._connection: http.client.HTTPConnection | None = None

    def handle(self, change: Change) -> None:
        """Add a change to the batch."""
        self._changes.append(json_text(json_object(change)))

    def flush(self) -> None:
        """Send the batch. Raises RetryLater, Rejected and CanalError."""
        if not self._changes:
            return
        body = f'{{"changes":[{",".join(self._changes)}]}}'
        self._send(body.encode(errors="backslashreplace"))
        self._changes.clear()

    def rollback(self) -> None:
        """Forget the batch."""
        self._changes.clear()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send(self, body: bytes) -> None:
        try:
            status, retry_after, answer = self._post(body)
        except FAILURES as error:
            self.close()
            raise RetryLater(f"{self._target}: {reason_of_failure(error)}") from error
        if status in _SUCCESS:
            return
        text = f"{self._target} answered {status}: {printable(answer.strip())}"
        if status in UNAVAILABLE:
            after_s = seconds_of(retry_after, self._clock())
            raise RetryLater(text, after_s=after_s)
        if status in _SERVER_ERRORS:
            raise CanalError(text)
        raise Rejected(text)

    def _post(self, body: bytes) -> tuple[int, str, str]:
        """Send a request; return the status, Retry-After and start of the answer."""
        headers = self._target.headers | self._signature(body)
        is_new = self._connection is None
        if self._connection is None:
            self._connection = self._target.connect(self._timeout_s)
        try:
            self._connection.request("POST", self._target.path, body, headers)
            response = self._connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            # A server may close a connection that was idle. Else it is unavailable.
            self.close()
            if is_new:
                raise
            return self._post(body)
        answer = response.read(_BODY_BYTES_MAX)
        if not response.isclosed():  # the rest is not worth reading
            self.close()
        retry_after = response.getheader("Retry-After", "")
        return response.status, retry_after, answer.decode(errors="replace")

    def _signature(self, body: bytes) -> dict[str, str]:
        # By the content, which has positions: the same when it is sent again.
        delivery = f"canal_{hashlib.sha256(body).hexdigest()[:_ID_DIGITS]}"
        now = str(int(self._clock()))
        headers = {"webhook-id": delivery, "webhook-timestamp": now}
        if self._key:
            signed = f"{delivery}.{now}.".encode() + body
            digest = hmac.new(self._key, signed, hashlib.sha256).digest()
            headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
        return headers


def seconds_of(retry_after: str, now_s: float) -> float:
    """Return how long to wait by a header Retry-After: seconds, or a date of HTTP."""
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.fromtimestamp(now_s, UTC)).total_seconds())


def _key_of(secret: str) -> bytes:
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(
            f"secret: expected Base64 after {SECRET_PREFIX}, as in Standard Webhooks"
        ) from None
