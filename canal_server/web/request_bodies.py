"""The JSON that requests of the REST interface have."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect

from canal_server.runtime.log_levels import LEVELS
from canal_server.source.begin.seek_target import TargetText, parse_target
from canal_server.web.problem_details import Problem
from canal_server.web.visitor_requests import invalid

if TYPE_CHECKING:
    from starlette.requests import Request

_BYTES_MAX: Final = 64 * 1024
_BODY_S: Final = 10.0  # for a whole body to arrive
_JSON: Final = "application/json"


async def body_of(request: Request) -> dict[str, Any]:
    """Return the object that a request has. Raises Problem.

    Pages of other sites cannot send this type without a question to the server.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != _JSON:
        raise Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send JSON with Content-Type: {_JSON}"
        )
    try:
        async with asyncio.timeout(_BODY_S):
            received = await _received(request)
    except TimeoutError:
        raise Problem(
            HTTPStatus.REQUEST_TIMEOUT, f"the request did not end within {_BODY_S:g} s"
        ) from None
    except ClientDisconnect:  # nobody receives the answer
        raise Problem(HTTPStatus.BAD_REQUEST, "the request was cut off") from None
    try:
        found = json.loads(received)
    except (ValueError, RecursionError) as error:
        raise invalid(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise invalid("expected a JSON object")
    return found


async def _received(request: Request) -> bytes:
    received = bytearray()
    async for part in request.stream():
        received += part
        if len(received) > _BYTES_MAX:
            raise Problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a request has at most {_BYTES_MAX} bytes",
            )
    return bytes(received)


@dataclass(frozen=True, slots=True)
class SeekRequest:
    """A move of clients to another position."""

    to: TargetText
    source: str | None
    client_ids: tuple[int, ...] | None  # None: all
    dry_run: bool

    @classmethod
    def parse(cls, body: dict[str, Any]) -> SeekRequest:
        """Return what an object asks for. Raises Problem."""
        unknown = body.keys() - {"to", "source", "clients", "dry_run"}
        if unknown:
            raise invalid(f"unknown fields: {', '.join(sorted(unknown))[:200]}")
        if "to" not in body:
            raise invalid("to is missing: the new position")
        source, clients = body.get("source"), body.get("clients")
        dry_run = body.get("dry_run", False)
        if not (source is None or isinstance(source, str)):
            raise invalid("source: expected a string")
        if not (clients is None or _are_ids(clients)):
            raise invalid("clients: expected a list of client ids")
        if not isinstance(dry_run, bool):
            raise invalid("dry_run: expected true or false")
        try:
            to = parse_target(str(body["to"]))
        except ValueError as error:
            raise invalid(f"to: {error}") from None
        ids = None if clients is None else tuple(clients)
        return cls(to, source, ids, dry_run)


@dataclass(frozen=True, slots=True)
class LevelRequest:
    """A level of the log; None: the destination has the default again."""

    level: str | None
    destination: str

    @classmethod
    def parse(cls, body: dict[str, Any]) -> LevelRequest:
        """Return what an object asks for. Raises Problem."""
        unknown = body.keys() - {"level", "destination"}
        if unknown:
            raise invalid(f"unknown fields: {', '.join(sorted(unknown))[:200]}")
        destination, level = body.get("destination", ""), body.get("level")
        if not isinstance(destination, str):
            raise invalid("destination: expected a string")
        if level not in LEVELS and not (level is None and destination):
            raise invalid(f"level: expected {', '.join(LEVELS)}")
        return cls(level, destination)


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """A comparison of a table history with the source."""

    tables: tuple[str, ...]  # names or expressions; none: all tables
    source: str | None

    @classmethod
    def parse(cls, body: dict[str, Any]) -> VerifyRequest:
        """Return what an object asks for. Raises Problem."""
        unknown = body.keys() - {"tables", "source"}
        if unknown:
            raise invalid(f"unknown fields: {', '.join(sorted(unknown))[:200]}")
        tables, source = body.get("tables") or [], body.get("source")
        are_texts = isinstance(tables, list) and all(
            isinstance(each, str) for each in tables
        )
        if not are_texts:
            raise invalid("tables: expected a list of strings")
        if not (source is None or isinstance(source, str)):
            raise invalid("source: expected a string")
        return cls(tuple(tables), source)


def _are_ids(values: object) -> bool:
    return isinstance(values, list) and all(type(each) is int for each in values)
