"""Requests as a logged-in client sends them, with damage at each level.

A part of them stays whole, so that damaged ones meet the states that a server can be
in: subscribed, with open batches, with a cursor.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from damaged_entries import damaged

from canal_server.admin.admin_messages import (
    AdminPacket,
    AdminPacketType,
    InstanceAdmin,
    LogAdmin,
    ServerAdmin,
)
from canal_server.protocol.framing import frame
from canal_server.protocol.packets import (
    ClientAck,
    ClientRollback,
    Compression,
    Get,
    Packet,
    PacketType,
    Sub,
    Unsub,
)
from canal_server.protocol.protobuf import encode
from canal_server.protocol.range_messages import (
    REQUEST_TYPES,
    RangeAck,
    RangeHead,
    RangeLocate,
    RangePlan,
    RangePosition,
    RangeRead,
    RangeSchema,
    RangeStatus,
    RangeSubscribe,
    RangeUnsubscribe,
    Wire,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

NUMBERS = (
    0, 1, -1, 2, 4, 5, 120, 2**15, 2**31 - 1, -(2**31), 2**32, 2**40, 2**63 - 1,
    -(2**63),
)  # fmt: skip
TEXTS = (
    "", "x", "5", "6", "7", "-1", " 5", "5 ", "99999", "\u0665", "..", "../x", "/", "*",
    "?", "[", "a:b", "\0", "\n", "\x1b[31m", "\u202e", "ä", "𝄞", "%s%n", "{0}", "'",
    '"', "(", "(?", "[[:alpha:]]", ".*", r".*\..*", "latest", "earliest", "acked",
    "time:0", "time:99999999999999999999", "time:-1", "file:x:4", "file::", "gtid:",
    "gtid:x:1-", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9223372036854775806",
    "0-1-1", "x" * 5000, "a," * 3000,
)  # fmt: skip


class ClientRequests:
    """Frames of the port for clients."""

    def __init__(
        self,
        rng: random.Random,
        destination: str,
        filters: Sequence[str],
        client_ids: Sequence[str],
    ) -> None:
        self._rng = rng
        self._destination = destination
        self._filters = filters
        self._client_ids = client_ids

    def frame(self) -> bytes:
        """Return one frame, which may be damaged."""
        return _framed(self._rng, *self._typed(self._request()))

    def _typed(self, request: object) -> tuple[type, int, object]:
        kinds: dict[type, PacketType] = {
            Sub: PacketType.SUBSCRIPTION,
            Unsub: PacketType.UNSUBSCRIPTION,
            Get: PacketType.GET,
            ClientAck: PacketType.CLIENTACK,
            ClientRollback: PacketType.CLIENTROLLBACK,
            **REQUEST_TYPES,
        }
        return Packet, kinds[type(request)], request

    def _request(self) -> object:
        rng = self._rng
        who = self._destination, rng.choice(self._client_ids)
        get = Get(
            *who,
            rng.choice((1, 3, 100)),
            rng.choice((-1, 0, 5)),
            rng.choice((None, 0, 2)),
            rng.choice((None, True, False)),
        )
        batch = rng.choice((0, 1, 2, 3, rng.choice(NUMBERS)))
        return rng.choice(
            [
                Sub(*who, rng.choice(self._filters)),
                Sub(*who, rng.choice(self._filters)),
                get,
                get,
                ClientAck(*who, batch),
                ClientRollback(*who, batch),
                Unsub(*who),
            ]
        )


class RangeRequests(ClientRequests):
    """Frames of ranged reads, between two positions."""

    def __init__(
        self,
        rng: random.Random,
        destination: str,
        filters: Sequence[str],
        tables: Sequence[tuple[str, str]],
        positions: Sequence[RangePosition],
    ) -> None:
        super().__init__(rng, destination, filters, ())
        self._tables = tables
        self._positions = positions

    def _request(self) -> object:
        rng = self._rng
        name = rng.choice(("lake", "lake", "other", ""))
        who = self._destination, name
        start, end = self._position(), self._position()
        wire, filter_ = rng.choice(list(Wire)), rng.choice(self._filters)
        return rng.choice(
            [
                RangeSubscribe(*who, filter_, rng.choice(TEXTS), rng.random() < 0.5),
                RangeSubscribe(*who, filter_, "earliest"),
                RangeHead(*who, start, rng.choice((0, 1)), 0, rng.choice((0, 5))),
                RangePlan(*who, start, end, rng.choice((1, 2, 1024)), filter_),
                RangeRead(*who, start, end, wire, filter_),
                RangeRead(*who, self._positions[0], self._positions[-1], wire, filter_),
                RangeAck(*who, start),
                RangeSchema(self._destination, *rng.choice(self._tables), start),
                RangeLocate(*who, rng.choice(TEXTS)),
                RangeUnsubscribe(*who),
                RangeStatus(self._destination),
            ]
        )

    def _position(self) -> RangePosition:
        position = self._rng.choice(self._positions)
        if self._rng.random() < 0.3:
            position = with_another_field(self._rng, position)
        return position


class AdminRequests:
    """Frames of the port for canal-admin, which stop no destination but `spare`."""

    def __init__(self, rng: random.Random, spare: str, destination: str) -> None:
        self._rng = rng
        self._spare = spare
        self._destination = destination

    def frame(self) -> bytes:
        """Return one frame, which may be damaged."""
        rng = self._rng
        action = rng.choice(("check", "stop", "start", "restart", "release"))
        log = LogAdmin(
            rng.choice(("server", "instance", rng.choice(TEXTS))),
            rng.choice(("list", "file", rng.choice(TEXTS))),
            rng.choice((self._destination, self._spare, rng.choice(TEXTS))),
            rng.choice(("", "canal.log", "../../users.yml", rng.choice(TEXTS))),
            rng.choice((0, 3, rng.choice(NUMBERS))),
        )
        kind, content = rng.choice(
            [
                (AdminPacketType.SERVER, ServerAdmin(rng.choice(("check", "list")))),
                (AdminPacketType.INSTANCE, InstanceAdmin(self._spare, action)),
                (AdminPacketType.INSTANCE, InstanceAdmin(self._destination, "check")),
                (AdminPacketType.LOG, log),
                (AdminPacketType.LOG, log),
            ]
        )
        return _framed(rng, AdminPacket, kind, content)


def with_another_field(rng: random.Random, message: Any) -> Any:
    """Return a message with one field of another value."""
    field = rng.choice(fields(message))
    value = getattr(message, field.name)
    if isinstance(value, RangePosition):
        return replace(message, **{field.name: with_another_field(rng, value)})
    if isinstance(value, str):
        return replace(message, **{field.name: rng.choice(TEXTS)})
    if isinstance(value, bytes):
        return replace(message, **{field.name: rng.randbytes(rng.randrange(20))})
    return replace(message, **{field.name: rng.choice(NUMBERS)})


def _framed(rng: random.Random, envelope: type, kind: int, content: object) -> bytes:
    choice = rng.random()
    if choice < 0.2:
        content = with_another_field(rng, content)
    body = encode(content)
    if 0.2 <= choice < 0.5:
        body = damaged(rng, body)
    elif 0.5 <= choice < 0.55:
        kind = rng.randrange(90)
    packet = envelope(type=kind, body=body)
    if 0.55 <= choice < 0.6 and envelope is Packet:
        packet = replace(packet, compression=rng.choice([*Compression, 77]))
    data = encode(packet)
    if 0.6 <= choice < 0.68:
        data = damaged(rng, data)
    framed = frame(data)
    return damaged(rng, framed) if choice > 0.97 else framed


class HttpRequests:
    """Requests of HTTP; the log-in stays whole, as wrong ones wait."""

    def __init__(
        self,
        rng: random.Random,
        authorization: str,
        paths: Sequence[tuple[str, str, object]],
    ) -> None:
        self._rng = rng
        self._authorization = authorization
        self._paths = paths

    def request(self) -> bytes:
        """Return the bytes of one request, which may be damaged."""
        rng = self._rng
        method, path, body = rng.choice(self._paths)
        choice = rng.random()
        if choice < 0.1:
            method = rng.choice(("OPTIONS", "HEAD", "TRACE", "PATCH", "DELETE", "X"))
        elif choice < 0.3:
            path = self._other_path(path)
        content = b"" if body is None else json.dumps(body).encode()
        if body is not None and 0.3 <= choice < 0.6:
            content = self._other_body(body)
        headers = ["Host: 127.0.0.1", "Connection: close"]
        if body is not None:
            headers.append("Content-Type: application/json")
        length = len(content)
        if 0.6 <= choice < 0.65:
            length = rng.choice((0, 1, length + 1, 2**31, 2**63, -1))
        if content or length:
            headers.append(f"Content-Length: {length}")
        if 0.65 <= choice < 0.75:
            headers.append(
                rng.choice(
                    (
                        "Transfer-Encoding: chunked",
                        "Content-Encoding: gzip",
                        "Expect: 100-continue",
                        "Upgrade: websocket\r\nConnection: Upgrade",
                        "Range: bytes=0-1",
                        "Origin: http://attacker.example",
                        "X-Forwarded-For: 10.0.0.1",
                        f"Accept: {'x' * 3000}",
                        "If-None-Match: *",
                    )
                )
            )
        head = f"{method} {path} HTTP/1.1\r\n".encode()
        tail = ("\r\n".join(headers) + "\r\n\r\n").encode() + content
        if choice > 0.9:
            head = damaged(rng, head)
        elif choice > 0.8:
            tail = damaged(rng, tail)
        login = f"Authorization: {self._authorization}\r\n".encode()
        return head + login + tail

    def _other_path(self, path: str) -> str:
        rng = self._rng
        parts = path.split("/")
        at = rng.randrange(1, len(parts))
        parts[at] = rng.choice(
            ("", "..", "%2e%2e", "%00", "%ff", "%2F", "*", "x" * 4000, "%F0%9D%84%9E",
             parts[at] + "%20", parts[at].upper())
        )  # fmt: skip
        more = rng.choice(
            ("", "", "?table=(", "?table=%00", "?x=1", "?table=x&table=.*")
        )
        return "/".join(parts) + more

    def _other_body(self, body: object) -> bytes:
        rng = self._rng
        values: list[object] = [*NUMBERS, *TEXTS, None, True, [], {}, 1.5, [[]], ["x"]]
        if isinstance(body, dict) and body and rng.random() < 0.6:
            key = rng.choice(list(body))
            return json.dumps({**body, key: rng.choice(values)}).encode()
        return rng.choice(
            [
                damaged(rng, json.dumps(body).encode()),
                json.dumps(rng.choice(values)).encode(),
                b"[" * 20_000,
                b'{"to":' * 20_000,
                b"NaN",
                b"9" * 5000,
                b'"\xff"',
                b'"\\ud800"',
                b'{"to": "latest", "to": "earliest"}',
                rng.randbytes(50),
            ]
        )
