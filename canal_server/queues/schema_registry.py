"""A registry of schemas with the interface of Confluent's: ids of schemas by subject.

::

    POST /subjects/SUBJECT/versions   {"schema": "…"}  ->  {"id": 1}    registers one
    POST /subjects/SUBJECT            the same                          looks one up
    GET  /subjects                    ->  ["orders-value", …]

An error has a body {"error_code": 409, "message": "…"}.
"""

from __future__ import annotations

import base64
import json
import urllib.parse
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from canal_server.config.schema import SubjectNames
from canal_server.doors.web_service import FAILURES, WebTarget, reason_of_failure
from canal_server.errors import PasswordError
from canal_server.passwords.password_source import revealed
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    SchemaRefusedError,
)
from canal_server.tls.client_context import context_of

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from canal_server.config.schema import RegistryConfig

TIMEOUT_S: Final = 10.0  # for each address
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
IDS_MAX: Final = 100_000  # that are kept
_MESSAGE_MAX: Final = 1000  # characters of an error of the registry
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_OK, _LOGIN, _ABSENT, _CONFLICT, _INVALID = 200, (401, 403), 404, 409, 422
_ABSENT_SCHEMA: Final = (40401, 40403)  # the subject, or the schema below it


class SchemaRegistry:
    """Registers schemas of Avro; for one thread at a time."""

    def __init__(self, config: RegistryConfig) -> None:
        """Set the addresses; connects to nothing."""
        self._config = config
        self._targets = [WebTarget(url) for url in config.urls]
        self._at = 0  # the address that answered last
        self._ids: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, str] = {}

    @property
    def address(self) -> str:
        """Return the address that answered last."""
        return self._config.urls[self._at]

    def id_of(self, topic: str, is_key: bool, record: str, schema: str) -> int:
        """Return the id of the schema of a record in messages of a topic.

        Raises BrokerUnavailableError, and SchemaRefusedError when the registry answers
        that it does not accept the schema, or does not have it.
        """
        subject = self._subject(topic, record, is_key=is_key)
        found = self._ids.get((subject, schema))
        if found is None:
            found = self._ask_id(subject, schema)
            if len(self._ids) >= IDS_MAX:
                self._ids.clear()
                self._schemas.clear()
            self._ids[subject, schema] = found
            self._schemas[found] = schema
        return found

    def schema_of(self, number: int) -> str | None:
        """Return the schema of an id that was asked for here, None: it was not."""
        return self._schemas.get(number)

    def subjects(self) -> int:
        """Return how many subjects there are. Raises BrokerUnavailableError."""
        status, answer = self._request("GET", "/subjects")
        if status != _OK or not isinstance(answer, list):
            raise self._failure(status, answer)
        return len(answer)

    def _subject(self, topic: str, record: str, *, is_key: bool) -> str:
        if self._config.subjects is SubjectNames.RECORD:
            return record
        if self._config.subjects is SubjectNames.TOPIC_RECORD:
            return f"{topic}-{record}"
        return f"{topic}-{'key' if is_key else 'value'}"

    def _ask_id(self, subject: str, schema: str) -> int:
        registers = self._config.registers
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}"
        status, answer = self._request(
            "POST", f"{path}/versions" if registers else path, {"schema": schema}
        )
        number = answer.get("id") if isinstance(answer, dict) else None
        if status == _OK and isinstance(number, int) and 0 <= number < 1 << 32:
            return number
        code = answer.get("error_code") if isinstance(answer, dict) else None
        if status == _CONFLICT:
            raise SchemaRefusedError(
                f"subject {subject}: the schema is not compatible with earlier ones:"
                f" {_message(answer)}"
            )
        if status == _INVALID:
            raise SchemaRefusedError(
                f"subject {subject}: the registry refuses the schema:"
                f" {_message(answer)}"
            )
        if status == _ABSENT and not registers and code in _ABSENT_SCHEMA:
            raise SchemaRefusedError(
                f"subject {subject}: the registry does not have the schema, and"
                " canal.mq.schema.registry.auto.register.schemas = false"
            )
        raise self._failure(status, answer)

    def _failure(self, status: int, answer: Any) -> BrokerUnavailableError:
        reason = f"{status} {_message(answer)}".rstrip()
        if status in _LOGIN:
            reason = f"refuses the login ({reason})"
        elif status == _ABSENT:
            reason = f"does not have this path ({reason}); is one missing in the URL?"
        else:
            reason = f"answers {reason}"
        return BrokerUnavailableError(f"schema registry at {self.address} {reason}")

    def _request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and content of the first answer; errors of a server are none.

        Raises BrokerUnavailableError.
        """
        headers = {"Content-Type": _TYPE, "Accept": f"{_TYPE}, application/json"}
        headers |= self._login()
        data = None if body is None else json.dumps(body).encode()
        tls, problems = self._tls(), []
        for _ in self._targets:
            target = self._targets[self._at]
            try:
                with closing(target.connect(TIMEOUT_S, tls)) as connection:
                    connection.request(
                        method, target.path.rstrip("/") + path, data, headers
                    )
                    with connection.getresponse() as response:
                        status = response.status
                        content = response.read(ANSWER_BYTES_MAX)
                if status < 500:  # noqa: PLR2004  # else another one may do better
                    return status, _parsed(content)
                problem = f"{status} {_message(_parsed(content)) or response.reason}"
            # ValueError: a user that cannot be sent.
            except (*FAILURES, ValueError) as error:
                problem = reason_of_failure(error)
            problems.append(f"{self.address}: {problem}")
            self._at = (self._at + 1) % len(self._targets)
        raise BrokerUnavailableError(
            f"the schema registry does not answer: {'; '.join(problems)}"
        )

    def _login(self) -> dict[str, str]:
        if not self._config.user:
            return {}
        try:
            password = revealed(self._config.password)
        except PasswordError as error:
            raise BrokerUnavailableError(str(error)) from error
        pair = base64.b64encode(f"{self._config.user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}

    def _tls(self) -> ssl.SSLContext | None:
        config = self._config
        if not any(url.startswith("https:") for url in config.urls):
            return None
        try:
            return context_of(
                *map(_path, (config.ca_file, config.cert_file, config.key_file))
            )
        except ValueError as error:
            text = str(error)
            for word, name in (
                ("ca", "caFile"),
                ("cert", "certFile"),
                ("key", "keyFile"),
            ):
                text = text.replace(
                    f"tls_{word}_file", f"canal.mq.schema.registry.{name}"
                )
            raise BrokerUnavailableError(text) from error


def _path(path: Path | None) -> str:
    return "" if path is None else str(path)


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _message(answer: Any) -> str:
    """Return the text of an error of the registry, on one line."""
    text = answer.get("message") if isinstance(answer, dict) else None
    return " ".join(str(text or "").split())[:_MESSAGE_MAX]
