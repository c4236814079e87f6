"""Users with limits, from a file to the bytes that clients get of a real source."""

from __future__ import annotations

import base64
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from event_stream import EventStream
from fix_pipeline import DESTINATION, UNIT_S
from fix_store import eventually
from fix_user_limits import HIDDEN, PASSWORD, SECRET, client_of, write_secrets

from canal_server import cli
from canal_server.client import CanalClient
from canal_server.client.range_client import RangedClient
from canal_server.daemon.control import ask
from canal_server.errors import ClientError
from canal_server.protocol.range_messages import Wire
from canal_server.runtime.accounts import own_account


@pytest.fixture
def pipeline(limited_pipeline):
    """Give a running pipeline with users, whose tables have secrets."""
    limited_pipeline.start()
    limited_pipeline.wait_for_status(lambda status: status["state"] == "running")
    return limited_pipeline


SHOWN = [
    ("insert", {"id": 1, "total": Decimal("5.50"), "email": "****", "pin": None}),
    ("update", {"id": 1, "total": Decimal("6.00"), "email": "****", "pin": None}),
    ("ddl", None),
    (
        "insert",
        {"note": 8, "id": 2, "total": Decimal("9.00"), "email": "****", "pin": None},
    ),
    ("delete", None),
]


def shown_to(client) -> list[tuple[str, object]]:
    """Return the changes that a client gets, up to the DELETE."""
    found = []
    for change in client:
        found.append((change.kind, change.after))
        if change.kind == "delete":
            return found
    raise AssertionError("the client ended")


def drained(client) -> bytes:
    """Return the bytes of all batches that a client gets, and ack them."""
    raw = b""
    while message := client.get(100, timeout_s=2):
        raw += bytes(message.body)
        client.ack(message.id)
    return raw


def check_no_secret(raw: bytes) -> None:
    """Check that bytes have what is shown, and nothing else."""
    assert b"orders" in raw
    for secret in HIDDEN:
        assert secret not in raw


def test_a_limited_client(pipeline, authority):
    """A user with limits gets its table, without and with masked columns."""
    with client_of(pipeline, authority, "all", 5) as client:
        client.subscribe(".*\\..*")
    with client_of(pipeline, authority, "limited", 6) as client:
        client.subscribe()
        write_secrets(pipeline)
        assert shown_to(client) == SHOWN

    # No way around: with another filter, or with the cursor of somebody else.
    with client_of(pipeline, authority, "limited", 5) as client:
        client.connect()
        check_no_secret(drained(client))
    with client_of(pipeline, authority, "limited", 6) as client:
        client.subscribe(".*\\..*")
        pipeline.source.execute(
            f"INSERT INTO {pipeline.schema}.secrets VALUES (9, 'x', 'y')"
        )
        pipeline.source.execute(f"DELETE FROM {pipeline.schema}.orders")
        check_no_secret(drained(client))
    with client_of(pipeline, authority, "all", 5) as client:
        client.subscribe(".*\\..*")
        write_again = (
            f"INSERT INTO {pipeline.schema}.secrets VALUES (10, '{SECRET}', 'y')"
        )
        pipeline.source.execute(write_again)
        assert SECRET.encode() in drained(client)


def test_limited_ranges(pipeline, authority):
    """Ranged reads have the same limits in every form, and so do schemas of tables."""
    limited, everything = (
        RangedClient(
            "127.0.0.1", pipeline.server_port, user, PASSWORD, tls=True,
            tls_ca_file=authority.ca_file,
        )
        for user in ("limited", "all")
    )  # fmt: skip
    with limited, everything:
        start = everything.subscribe(DESTINATION, "lake", ".*\\..*").cursor
        write_secrets(pipeline)
        end = start
        while everything.head(DESTINATION, "lake", end, wait_ms=2_000).rows:
            end = everything.head(DESTINATION, "lake", end, wait_ms=2_000).end
        for wire in Wire:
            read = everything.read(DESTINATION, "lake", start, end, wire=wire)
            assert SECRET.encode() in b"".join(read)
            for name in ("lake", ""):
                read = limited.read(DESTINATION, name, start, end, wire=wire)
                check_no_secret(b"".join(map(bytes, read)))
        schema = pipeline.schema
        assert everything.schema(DESTINATION, schema, "secrets").found
        assert not limited.schema(DESTINATION, schema, "secrets").found
        found = limited.schema(DESTINATION, schema, "orders")
        assert [each.name for each in found.columns] == [
            "note", "id", "total", "email", "pin",
        ]  # fmt: skip
        assert "canal.users.file" in found.left_out


def test_limited_tail(pipeline):
    """A tail over HTTP has the limits of who asks for it, and ends with the right."""
    port = int(ask(pipeline.conf, "status")["http_port"])
    text = base64.b64encode(f"limited:{PASSWORD}".encode()).decode()
    path = f"/api/v1/destinations/{DESTINATION}/tail"
    login = {"authorization": f"Basic {text}"}
    with EventStream(port, path, login, table=".*\\..*") as tail:
        tail.until_state("quiet")
        write_secrets(pipeline)
        found = tail.changes(5)
        assert [each["kind"] for each in found] == [kind for kind, _ in SHOWN]
        assert SECRET not in str(found)
        assert found[0]["after"] == {
            "id": "1", "total": "5.50", "email": "****", "pin": None,
        }  # fmt: skip
        assert (
            cli.main(["user", "remove", "--conf", str(pipeline.conf), "limited"]) == 0
        )
        tail.until_state("not_allowed")
        assert tail.next() is None
    with EventStream(port, path, login) as tail:
        assert tail.status == 401


def test_certificates(pipeline, authority):
    """A certificate logs its user in; one of nobody, or of another name, does not."""
    options = {"tls": authority.client_context("bot"), "reconnect_for_s": 0}
    where = "127.0.0.1", pipeline.server_port, DESTINATION
    with CanalClient(*where, 9, **options) as client:
        client.subscribe()
    with CanalClient(*where, 9, "bot", **options) as client:
        client.subscribe()
    for user, name, why in (
        ("all", "bot", "'all'$"),
        ("", "somebody", "no user has the certificate 'CN=somebody'"),
        ("bot", "", "'bot'$"),
    ):
        options["tls"] = authority.client_context(name)
        refused = CanalClient(*where, 9, user, **options)
        with pytest.raises(ClientError, match=f"auth failed for user .*{why}"):
            refused.connect()
        refused.close()


def test_removed_while_connected(pipeline, authority):
    """Who is removed from the file is disconnected, and cannot come again."""
    with client_of(pipeline, authority, "all", 5) as client:
        client.subscribe()
        assert cli.main(["user", "remove", "--conf", str(pipeline.conf), "all"]) == 0
        with pytest.raises((ClientError, OSError)):
            client.get(timeout_s=None)
    refused = client_of(pipeline, authority, "all", 5)
    with pytest.raises(ClientError, match="auth failed for user 'all'"):
        refused.connect()
    refused.close()


def test_removed_while_reading_ranges(pipeline, authority):
    """A head that waits ends with the rights of who waits, and is not repeated."""
    options = {"tls": True, "tls_ca_file": authority.ca_file}
    where = "127.0.0.1", pipeline.server_port, "limited", PASSWORD
    conf = str(pipeline.conf)
    with RangedClient(*where, **options) as ranged:
        start = ranged.subscribe(DESTINATION, "lake", start="latest").cursor
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(
                ranged.head, DESTINATION, "lake", start, wait_ms=2**31 - 1
            )
            with pytest.raises(TimeoutError):
                waiting.result(0.5)  # it waits
            assert cli.main(["user", "remove", "--conf", conf, "limited"]) == 0
            with pytest.raises((ClientError, OSError)):
                waiting.result(UNIT_S)
        with pytest.raises(ClientError, match="auth failed for user 'limited'"):
            ranged.head(DESTINATION, "lake", start)


def events(pipeline) -> list[dict[str, Any]]:
    """Return the events of the audit without what differs from run to run."""
    text = (pipeline.conf / "audit.jsonl").read_text()
    for secret in (SECRET, PASSWORD, "77777", "password:"):
        assert secret not in text
    left_out = ("time", "address", "bytes", "batches", "from", "to")
    return [
        {key: value for key, value in json.loads(line).items() if key not in left_out}
        for line in text.splitlines()
    ]


def test_audit(pipeline, authority):
    """Who logged in, what was read, and who moved a cursor is noted, without values."""
    with client_of(pipeline, authority, "all", 5) as client:
        client.subscribe("x\\..*")
    with client_of(pipeline, authority, "limited", 6) as client:
        client.subscribe()
        write_secrets(pipeline)
        shown_to(client)
        client.unsubscribe()
    for _ in range(2):
        with (
            client_of(pipeline, authority, "limited", 7) as client,
            pytest.raises(ClientError, match="may not use client id 7"),
        ):
            client.subscribe()
    refused = client_of(pipeline, authority, "nobody", 6)
    with pytest.raises(ClientError, match="auth failed"):
        refused.connect()
    refused.close()
    options = {"tls": True, "tls_ca_file": authority.ca_file}
    with RangedClient(
        "127.0.0.1", pipeline.server_port, "limited", PASSWORD, **options
    ) as ranged:
        start = ranged.subscribe(DESTINATION, "lake", start="earliest").cursor
        end = ranged.locate(DESTINATION, "latest")
        assert list(ranged.read(DESTINATION, "", start, end))
        ranged.unsubscribe(DESTINATION, "lake")
    conf = str(pipeline.conf)
    seek = [
        "position",
        "seek",
        "--conf",
        conf,
        "--client",
        "5",
        "--to",
        "latest",
        "--yes",
    ]
    assert cli.main(seek) == 0
    assert cli.main(["user", "remove", "--conf", conf, "bot"]) == 0
    port = int(ask(pipeline.conf, "status")["http_port"])
    text = base64.b64encode(f"all:{PASSWORD}".encode()).decode()
    login = {"authorization": f"Basic {text}"}
    url = f"http://127.0.0.1:{port}/api/v1/destinations/{DESTINATION}/stop"
    request = urllib.request.Request(url, b"", headers=login, method="POST")
    with urllib.request.urlopen(request, timeout=UNIT_S) as answer:
        assert answer.status == 202

    def is_complete() -> bool:
        return {"users", "stop"} <= {each["event"] for each in events(pipeline)}

    eventually(is_complete)
    found = [each for each in events(pipeline) if each["event"] != "logout"]
    table = rf"{pipeline.schema}\.orders"
    common = {"user": "limited", "destination": DESTINATION}
    assert found[:4] == [
        {"event": "login", "user": "all", "how": "password"},
        {"event": "subscribe", "user": "all", "destination": DESTINATION,
         "client_id": 5, "filter": "x\\..*"},
        {"event": "login", "user": "limited", "how": "password"},
        {"event": "subscribe", "client_id": 6, "filter": table, **common},
    ]  # fmt: skip
    assert {"event": "unsubscribe", "client_id": 6, **common} in found
    # Sent again in part, or with an unfinished batch: at least what was shown.
    (read,) = [each for each in found if each["event"] == "read"]
    assert read.pop("rows") >= 4
    assert read == {"event": "read", "client_id": 6, "filter": table, **common}
    assert {"event": "login_refused", "user": "nobody"} in found
    (refusal,) = [each for each in found if each["event"] == "access_refused"]
    assert refusal == {
        "event": "access_refused", "action": "use client id 7", "times": 1, **common
    }  # fmt: skip
    (ranged_read,) = [each for each in found if each["event"] == "range_read"]
    assert ranged_read["rows"] >= 4
    assert {
        "event": "range_subscribe",
        "subscription": "lake",
        "filter": "",
        **common,
    } in (found)
    assert [each for each in found if each["event"] == "seek"] == [
        {"event": "seek", "user": None, "account": own_account(),
         "destination": DESTINATION, "client_ids": [5]}
    ]  # fmt: skip
    login = {"event": "login", "user": "all", "how": "password", "service": "http"}
    assert found.count(login) == 1
    assert {"event": "users", "user": None, "users": ["all", "limited"]} in found
    assert {"event": "stop", "user": "all", "destination": DESTINATION} in found
