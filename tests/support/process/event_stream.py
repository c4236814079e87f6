"""A reader of server-sent events over HTTP, which may also not read."""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.parse
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fix_pipeline import UNIT_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


def post(port: int, path: str, body: object = None) -> int:
    """Send a request, perhaps with JSON; returns the status of its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3 * UNIT_S)
    with contextlib.closing(connection):
        if body is None:
            connection.request("POST", path)
        else:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
        return connection.getresponse().status


class Event(NamedTuple):
    """One event: its name, and its data as JSON; a comment has no name."""

    name: str
    data: Any


class EventStream:
    """An answer with events; ends with the context."""

    def __init__(
        self,
        port: int,
        path: str,
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> None:
        if query:
            path += "?" + urllib.parse.urlencode(query)
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=3 * UNIT_S)
        self._http.request("GET", path, headers=dict(headers or {}))
        self._answer = self._http.getresponse()
        self.status = self._answer.status
        self.media_type = self._answer.getheader("content-type")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._answer.close()
        self._http.close()

    def problem(self) -> dict[str, Any]:
        """Return the content of a refusal."""
        assert self.media_type == "application/problem+json"
        return self.content()

    def content(self) -> dict[str, Any]:
        """Return the object of an answer that ends."""
        return dict(json.loads(self._answer.read()))

    def next(self) -> Event | None:
        """Return the next event or comment, None at the end of the answer."""
        name, data = "", None
        while line := self._answer.readline():
            text = line.decode().removesuffix("\n")
            if not text:
                return Event(name, data)
            field, _, value = text.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                assert data is None, "each event has one line of data"
                data = json.loads(value)
            else:
                assert not field, f"unknown field {field}"
        assert not name, "the answer ended within an event"
        return None

    def until(self, *names: str) -> Event:
        """Return the next event with one of these names; others are passed over."""
        while event := self.next():
            if event.name in names:
                return event
        raise AssertionError(f"the answer ended without any of {names}")

    def changes(self, count: int) -> list[dict[str, Any]]:
        """Return so many changes; fails if some were skipped."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            event = self.next()
            assert event is not None, f"the answer ended after {len(found)} changes"
            assert event.name != "skipped", event
            if event.name not in {"", "state"}:
                assert event.data["kind"] == event.name
                found.append(event.data)
        return found

    def until_state(self, *states: str) -> dict[str, Any]:
        """Return the next state of these; changes are passed over."""
        while True:
            found = self.until("state").data
            if found["state"] in states:
                return dict(found)
