"""The rights of users, tried over the wire: every cell of a table."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
from client_entries import row, transaction
from fix_server import PATIENCE_S, FakeInstance, FakeInstances, Wire
from fix_store import eventually

from canal_server.client import CanalClient
from canal_server.errors import ClientError
from canal_server.protocol.auth import scramble, stored_form
from canal_server.protocol.framing import frame
from canal_server.protocol.packets import (
    Ack,
    ClientAuth,
    Get,
    Handshake,
    Messages,
    Packet,
    PacketType,
    Sub,
    Unsub,
    encode_packet,
)
from canal_server.protocol.protobuf import decode
from canal_server.protocol.range_messages import (
    REQUEST_TYPES,
    RangeAck,
    RangeHead,
    RangeLocate,
    RangePlan,
    RangePosition,
    RangeRead,
    RangeRequest,
    RangeSchema,
    RangeStatus,
    RangeSubscribe,
    RangeUnsubscribe,
)
from canal_server.protocol.range_messages import (
    Wire as WireForm,
)
from canal_server.runtime.lifecycle import Deadline
from canal_server.users.user_directory import UsersWatch
from canal_server.users.users_file import parse_users, users_text

DESTINATIONS = ("shop", "stock", "unknown")
USERS = """
users:
  all: {read: [{destination: "*"}], ranges: ["*"], operate: ["*"], observe: ["*"]}
  shop: {read: [{destination: shop}]}
  ranged: {read: [{destination: shop, subscriptions: ["mine_*"]}], ranges: ["*"]}
  observer: {observe: [shop]}
  operator: {operate: [stock]}
  nothing: {}
  client7: {read: [{destination: "s*", clients: [7, 100-200]}]}
"""
# By user: destinations that it may read, read ranges of, and see the state of.
RIGHTS = {
    "all": (DESTINATIONS, DESTINATIONS, DESTINATIONS),
    "shop": (("shop",), (), ("shop",)),
    "ranged": (("shop",), ("shop",), ("shop",)),
    "observer": ((), (), ("shop",)),
    "operator": ((), (), ("stock",)),
    "nothing": ((), (), ()),
    "client7": (("shop", "stock"), (), ("shop", "stock")),
}
AT = RangePosition(0, "binlog.000001", 4)


def operations(destination: str) -> dict[str, tuple[int, PacketType, object]]:
    """Return each request with the number of the right that it needs."""
    name = "mine_1"
    return {
        "subscribe": (0, PacketType.SUBSCRIPTION, Sub(destination, "7", ".*")),
        "get": (0, PacketType.GET, Get(destination, "7", 10, -1)),
        "unsubscribe": (0, PacketType.UNSUBSCRIPTION, Unsub(destination, "7", "")),
        "range subscribe": (1, *_typed(RangeSubscribe(destination, name))),
        "range head": (1, *_typed(RangeHead(destination, name, AT))),
        "range plan": (1, *_typed(RangePlan(destination, name, AT, AT, 1))),
        "range read": (
            1,
            *_typed(RangeRead(destination, name, AT, AT, WireForm.ENTRY)),
        ),
        "range ack": (1, *_typed(RangeAck(destination, name, AT))),
        "range schema": (1, *_typed(RangeSchema(destination, "d", "t", AT))),
        "range locate": (1, *_typed(RangeLocate(destination, name, "latest"))),
        "range unsubscribe": (1, *_typed(RangeUnsubscribe(destination, name))),
        "status": (2, *_typed(RangeStatus(destination))),
    }


def _typed(request: RangeRequest) -> tuple[PacketType, object]:
    return REQUEST_TYPES[type(request)], request


class Session(Wire):
    """A connection on which a user logs in."""

    def log_in(self, user: str, password: str = "secret", **more: Any) -> Ack:
        """Log in; returns the answer."""
        if not hasattr(self, "seed"):
            self.seed = decode(Handshake, self.packet().body).seeds
        auth = ClientAuth(user, scramble(password, self.seed), **more)
        return self.ask(PacketType.CLIENTAUTHENTICATION, auth)

    def ask(self, kind: PacketType, content: object) -> Ack:
        """Send a request; returns its answer if that is an ack, else an empty one."""
        self.send(frame(encode_packet(kind, content)))
        packet = self.packet()
        return decode(Ack, packet.body) if packet.type is PacketType.ACK else Ack()


@pytest.fixture
def users_file(tmp_path):
    """Give a function that writes users.yml; all users have the password `secret`."""
    path = tmp_path / "users.yml"

    def write(text: str):
        users = parse_users(text, "users.yml")
        stored = stored_form("secret")
        with_passwords = [replace(u, password_hash=stored) for u in users.values()]
        fresh = path.with_suffix(".new")
        fresh.write_text(users_text(with_passwords))
        fresh.chmod(0o600)
        fresh.replace(path)
        return path

    return write


@pytest.fixture
def instances():
    """Give two destinations."""
    return FakeInstances({each: FakeInstance(each) for each in DESTINATIONS[:2]})


@pytest.mark.parametrize("user", RIGHTS)
def test_every_operation(serve, users_file, user):
    """A user may do what the rights say, and nothing else, on every destination."""
    server = serve(users_file=users_file(USERS))
    refused, expected = [], []
    with Session(server.port) as session:
        assert not session.log_in(user).error_code
        for destination in DESTINATIONS:
            requests = operations(destination)
            for name, (right, kind, content) in requests.items():
                answer = session.ask(kind, content)
                if destination not in RIGHTS[user][right]:
                    expected.append((destination, name))
                if "may not" in answer.error_message:
                    refused.append((destination, name))
                    assert f"'{user}'" in answer.error_message
                    assert "canal.users.file" in answer.error_message
    assert refused == expected


def test_unknown_destinations_look_like_forbidden_ones(serve, users_file):
    """A user learns nothing of destinations that it may not read."""
    server = serve(users_file=users_file(USERS))
    with Session(server.port) as session:
        session.log_in("observer")
        texts = {
            session.ask(PacketType.SUBSCRIPTION, Sub(each, "7", "")).error_message
            .replace(each, "…")
            for each in DESTINATIONS
        }  # fmt: skip
        assert len(texts) == 1


def test_client_ids_and_subscriptions(serve, users_file):
    """A user moves no cursor but those that the rights name."""
    server = serve(users_file=users_file(USERS))
    with Session(server.port) as session:
        session.log_in("client7")
        for client_id, may in [(7, True), (8, False), (150, True), (201, False)]:
            sub = Sub("stock", str(client_id), "")
            answer = session.ask(PacketType.SUBSCRIPTION, sub)
            assert (not answer.error_code) is may, client_id
        answer = session.ask(PacketType.GET, Get("stock", "8", 1, -1))
        assert "may not use client id 8 of destination stock" in answer.error_message
    with Session(server.port) as session:
        session.log_in("ranged")
        for name, may in [("mine_1", True), ("others", False)]:
            kind, request = _typed(RangeSubscribe("shop", name))
            answer = session.ask(kind, request)
            assert ("may not use subscription" in answer.error_message) is not may


def test_subscribing_with_the_log_in(serve, users_file):
    """The subscription that is part of a log-in is checked as any other."""
    server = serve(users_file=users_file(USERS))
    with Session(server.port) as session:
        answer = session.log_in("shop", destination="stock", client_id="1")
        assert "may not read destination stock" in answer.error_message
        assert session.ask(PacketType.GET, Get("shop", "1", 1, -1)).error_code
        assert not session.log_in("shop", destination="shop", client_id="1").error_code


@pytest.mark.parametrize("user", ["shop", "nobody", "", "SHOP"])
def test_wrong_passwords(serve, users_file, user):
    """Neither a wrong password nor an unknown name gets in, with the same text."""
    server = serve(users_file=users_file(USERS))
    with Session(server.port) as session:
        answer = session.log_in(user, "wrong")
        none = "" if user else ": the client names no user"
        assert answer.error_message == f"auth failed for user '{user}'{none}"
        assert session.ask(PacketType.GET, Get("shop", "1", 1, -1)).error_code


def test_beside_the_user_of_the_settings(serve, users_file):
    """canal.user stays a user who may read all; a name of the file is its own."""
    path = users_file(USERS)
    server = serve(users_file=path, user="canal", passwd=stored_form("canal's"))
    with Session(server.port) as session:
        assert session.log_in("canal", "secret").error_code
        assert not session.log_in("canal", "canal's").error_code
        assert not session.ask(
            PacketType.SUBSCRIPTION, Sub("stock", "1", "")
        ).error_code

    # Without a name in the settings, every name but those has that password.
    server = serve(users_file=path, passwd=stored_form("canal's"))
    with Session(server.port) as session:
        assert session.log_in("shop", "canal's").error_code
        assert not session.log_in("somebody", "canal's").error_code


def test_rights_that_are_taken_away(serve, users_file):
    """Sessions end whose rights changed, also while a get waits; others go on."""
    path = users_file(USERS)
    server = serve(users_file=path)
    watch = UsersWatch(server.users)
    watch.start()
    try:
        with Session(server.port) as ended, Session(server.port) as other:
            for session, name in ((ended, "shop"), (other, "all")):
                session.log_in(name, destination="shop", client_id="1")
            waiting = encode_packet(PacketType.GET, Get("shop", "1", 1, 3_600_000))
            ended.send(frame(waiting))
            users_file(USERS.replace("destination: shop}", "destination: stock}"))
            while frame_ := ended.receive():  # the get may be answered empty
                assert not decode(Messages, decode(Packet, frame_[4:]).body).messages
            assert not other.ask(PacketType.GET, Get("shop", "1", 1, -1)).error_code
        with Session(server.port) as session:
            answer = session.log_in("shop", destination="shop", client_id="1")
            assert "may not read destination shop" in answer.error_message
    finally:
        watch.request_stop()
        assert watch.join(Deadline(PATIENCE_S))


def test_a_broken_file_changes_nothing(serve, users_file, caplog):
    """A file that became invalid is reported, and the earlier users stay."""
    path = users_file(USERS)
    server = serve(users_file=path)
    path.write_text("users: [")
    with Session(server.port) as session:
        assert not session.log_in("shop").error_code
    assert "the earlier users and rights stay in force" in caplog.text
    users_file("users: {new: {observe: [shop]}}")
    with Session(server.port) as session:
        assert session.log_in("shop").error_code
        assert not session.log_in("new").error_code


def test_connections_per_user(serve, users_file, instances):
    """A user may have so many connections, others are not affected."""
    limited = USERS.replace("shop: {", "shop: {connections: 2, ", 1)
    server = serve(users_file=users_file(limited), per_user_max=3)
    sessions = [Session(server.port) for _ in range(7)]
    try:
        answers = [each.log_in("shop").error_message for each in sessions[:3]]
        assert answers == ["", "", "2 clients are connected as this user, the limit"]
        answers = [each.log_in("all").error_message for each in sessions[3:]]
        assert answers[:3] == ["", "", ""]
        assert answers[3] == "3 clients are connected as this user, the limit"
        with Session(server.port) as one_more:  # it changes no filter either
            who = {"destination": "shop", "client_id": "1", "filter": "x"}
            assert one_more.log_in("all", **who).error_message == answers[3]
        found = instances.started["shop"].meta.subscriptions("shop")
        assert not found
        sessions[0].close()

        def fits() -> bool:
            with Session(server.port) as again:
                return not again.log_in("shop").error_code

        eventually(fits)
    finally:
        for each in sessions:
            each.close()


def test_batches_show_what_a_rule_shows(serve, users_file, instances):
    """Whatever was subscribed, and by whom, bytes of other tables do not leave."""
    every = "destination: '*'"
    rule = "destination: shop, tables: shop\\.orders"
    server = serve(
        users_file=users_file(
            f"users: {{all: {{read: [{{{every}}}]}}, one: {{read: [{{{rule}}}]}}}}"
        )
    )
    begin, *rows, end = transaction(1, 2)
    entries = [begin, *rows, row(3, "secrets"), end]
    instances.started["shop"].store.append(*entries)
    with Session(server.port) as session:
        session.log_in("all", destination="shop", client_id="1", filter=".*")
    with Session(server.port) as session:
        session.log_in("one")
        get = frame(encode_packet(PacketType.GET, Get("shop", "1", 10, -1)))
        session.send(get)
        found = decode(Messages, session.packet().body)
        assert list(found.messages) == [begin, *rows, end]

        # Who subscribes without a filter gets the tables of the rule from the store.
        session.ask(PacketType.SUBSCRIPTION, Sub("shop", "2", ""))
    meta = instances.started["shop"].meta
    filters = {each.client_id: each.filter for each in meta.subscriptions("shop")}
    assert filters == {1: ".*", 2: "shop\\.orders"}


def test_with_our_client(serve, users_file):
    """Our client logs in as a user, and gets the refusal as an error."""
    server = serve(users_file=users_file(USERS))
    with CanalClient(
        "127.0.0.1", server.port, "stock", 7, "client7", "secret", reconnect_for_s=0
    ) as client:
        client.subscribe()
    refused = CanalClient(
        "127.0.0.1", server.port, "shop", 8, "client7", "secret", reconnect_for_s=0
    )
    with refused, pytest.raises(ClientError, match="may not use client id 8"):
        refused.subscribe()


def test_random_rights(serve, users_file, rng):
    """Users with random rights are let do exactly what their rights say."""
    names = ("a", "b", "a_b", "ab")
    patterns = ("*", "a*", "a", "?", "[ab]", "a_*", "none")
    users = {
        f"u{i}": {
            "read": [{"destination": each} for each in rng.sample(patterns, 2)],
            "ranges": rng.sample(patterns, rng.randint(0, 2)),
            "observe": rng.sample(patterns, rng.randint(0, 2)),
        }
        for i in range(10)
    }
    text = users_text(parse_users(str({"users": users}), "random").values())
    server = serve(users_file=users_file(text))
    for user, destination in itertools.product(users, names):
        read = [each["destination"] for each in users[user]["read"]]
        may_read = any(_fits(destination, each) for each in read)
        may_range = may_read and any(
            _fits(destination, each) for each in users[user]["ranges"]
        )
        may_see = may_read or any(
            _fits(destination, each) for each in users[user]["observe"]
        )
        with Session(server.port) as session:
            session.log_in(user)
            for name, (right, kind, content) in operations(destination).items():
                answer = session.ask(kind, content)
                may = (may_read, may_range, may_see)[right]
                assert ("may not" in answer.error_message) is not may, (user, name)


def _fits(name: str, pattern: str) -> bool:
    """Return whether a name matches one of the patterns of this test."""
    known = {"*": ".*", "a*": "a.*", "?": ".", "[ab]": "[ab]", "a_*": "a_.*"}
    return re.fullmatch(known.get(pattern, pattern), name) is not None
