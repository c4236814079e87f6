"""The server's side of a session: log-in, then requests by their rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from canal_server.errors import ProtocolError
from canal_server.model.identity import ClientIdentity
from canal_server.protocol.auth import Credentials, scramble, stored_form
from canal_server.protocol.framing import frame
from canal_server.protocol.packets import (
    Ack,
    ClientAck,
    ClientAuth,
    ClientRollback,
    Get,
    Packet,
    PacketType,
    Sub,
    Unsub,
    encode_packet,
)
from canal_server.protocol.protobuf import decode, encode
from canal_server.protocol.server_session import (
    ERROR_TEXT_MAX,
    Acknowledge,
    Fetch,
    Login,
    Refused,
    Rollback,
    ServerSession,
    State,
    Subscribe,
    Unsubscribe,
    error_frame,
)
from canal_server.users.user_directory import UserDirectory

if TYPE_CHECKING:
    from canal_server.users.rights import User

SEED = bytes.fromhex("0102030405060708")
WHO = ("example", "1001")
IDENTITY = ClientIdentity("example", 1001)


def make_session(credentials: Credentials | None = None) -> ServerSession[User]:
    """Return a session that waits for a log-in."""
    return ServerSession(UserDirectory(None, credentials or Credentials()), SEED, 1000)


def open_session() -> ServerSession[User]:
    """Return a session past the log-in."""
    session = make_session()
    session.logged_in()
    return session


def ask(session: ServerSession[User], kind: PacketType, content: object):
    """Send one request and return what the session makes of it."""
    session.receive_data(frame(encode_packet(kind, content)))
    request = session.next_request()
    assert session.next_request() is None
    return request


def test_greeting():
    """The server greets with its seed."""
    expected = "00000010100118012a0a12080102030405060708"
    assert make_session().greeting.hex() == expected


def test_login():
    """A right log-in opens the session once it is answered."""
    session = make_session(Credentials("canal", stored_form("secret")))
    auth = ClientAuth("canal", scramble("secret", SEED), 60_000, 1500)
    assert ask(session, PacketType.CLIENTAUTHENTICATION, auth) == Login(60, 1.5, None)
    states = [session.state]
    session.logged_in()
    states.append(session.state)
    assert states == [State.EXPECT_LOGIN, State.OPEN]


@pytest.mark.parametrize("timeout", [None, 0, -1])
def test_login_without_timeouts(timeout):
    """A client that names no idle limits gets an hour."""
    auth = ClientAuth(net_read_timeout=timeout, net_write_timeout=timeout)
    request = ask(make_session(), PacketType.CLIENTAUTHENTICATION, auth)
    assert request == Login(3600, 3600, None)


def test_login_again_after_a_wrong_password():
    """A wrong password is refused with 400, and the client may try again."""
    session = make_session(Credentials("canal", stored_form("secret")))
    for password in (b"", b"plain", b"00" * 20):
        refusal = ask(
            session, PacketType.CLIENTAUTHENTICATION, ClientAuth("canal", password)
        )
        assert refusal == Refused(400, "auth failed for user 'canal'", "canal")
    auth = ClientAuth("canal", scramble("secret", SEED))
    assert isinstance(ask(session, PacketType.CLIENTAUTHENTICATION, auth), Login)


def test_frames_before_login():
    """Before a log-in a frame has a small limit, after it the configured one."""
    session = ServerSession(UserDirectory(None, Credentials()), SEED, 1 << 20)
    session.receive_data((61_441).to_bytes(4, "big"))
    with pytest.raises(ProtocolError, match="a frame of 61441 bytes"):
        session.next_request()
    session = ServerSession(UserDirectory(None, Credentials()), SEED, 1 << 20)
    assert isinstance(
        ask(session, PacketType.CLIENTAUTHENTICATION, ClientAuth()), Login
    )
    session.logged_in()
    session.receive_data((1 << 20).to_bytes(4, "big"))
    assert session.next_request() is None


def test_names_in_refusals_are_escaped():
    """What a client names itself cannot forge a line of the log."""
    session = make_session(Credentials("canal", stored_form("secret")))
    auth = ClientAuth("a\n2026 ERROR \x1b[2J\u202e", b"")
    refusal = ask(session, PacketType.CLIENTAUTHENTICATION, auth)
    assert refusal.message == r"auth failed for user 'a\n2026 ERROR \x1b[2J\u202e'"


@pytest.mark.parametrize(
    ("user", "password", "certificate", "text"),
    [
        ("", b"", "", "'': the client names no user"),
        ("", b"", "O=X,CN=a", "'': no user has the certificate 'O=X,CN=a'"),
        ("bot", b"", "O=X,CN=a", "'bot': no user has the certificate 'O=X,CN=a'"),
        ("bot", b"1", "O=X,CN=a", "'bot'"),
    ],
)
def test_what_a_login_lacks(user, password, certificate, text):
    """Whoever names no user, or shows a certificate of nobody, learns that."""
    session = make_session(Credentials("canal", stored_form("secret")))
    session.certificate = certificate
    auth = ClientAuth(user, password)
    refusal = ask(session, PacketType.CLIENTAUTHENTICATION, auth)
    assert refusal.message == f"auth failed for user {text}"


def test_login_whatever_the_packet_type():
    """The first packet is read as a log-in even when it says something else."""
    assert isinstance(ask(make_session(), PacketType.GET, ClientAuth("u")), Login)


def test_nothing_before_login():
    """Before a successful login every request is treated as a login."""
    session = make_session(Credentials("", stored_form("secret")))
    assert isinstance(ask(session, PacketType.GET, Get(*WHO, 100)), Refused)


def test_login_that_subscribes():
    """A log-in that names destination and client id carries a subscription."""
    auth = ClientAuth(destination="example", client_id="7", filter="a")
    login = ask(make_session(), PacketType.CLIENTAUTHENTICATION, auth)
    assert isinstance(login, Login)
    assert login.subscribe == ClientIdentity("example", 7)
    assert login.subscribe.filter == "a"


@pytest.mark.parametrize(
    ("kind", "content", "request_"),
    [
        (PacketType.SUBSCRIPTION, Sub(*WHO, "a"), Subscribe(IDENTITY)),
        (PacketType.UNSUBSCRIPTION, Unsub(*WHO), Unsubscribe(IDENTITY)),
        (PacketType.GET, Get(*WHO, 5, -1, 2), Fetch(IDENTITY, 5, 0.0)),
        (PacketType.CLIENTACK, ClientAck(*WHO, 3), Acknowledge(IDENTITY, 3)),
        (PacketType.CLIENTACK, ClientAck(*WHO, -1), Acknowledge(IDENTITY, -1)),
        (PacketType.CLIENTROLLBACK, ClientRollback(*WHO), Rollback(IDENTITY, 0)),
    ],
)
def test_requests(kind, content, request_):
    """Each packet of a client becomes the request that it asks for."""
    assert ask(open_session(), kind, content) == request_


def test_filter_of_a_subscription():
    """A subscription carries its filter."""
    request = ask(open_session(), PacketType.SUBSCRIPTION, Sub(*WHO, "a\\..*"))
    assert request.identity.filter == "a\\..*"


@pytest.mark.parametrize(
    ("timeout", "unit", "seconds"),
    [
        (-1, 2, 0.0),
        (None, None, None),
        (0, 2, None),
        (-2, 2, None),
        (1000, 2, 1.0),
        (1000, -1, 1.0),
        (1000, 7, 1.0),
        (5_000_000, 0, 0.005),
        (5_000_000, None, 0.005),
        (5000, 1, 0.005),
        (2, 3, 2.0),
        (2, 4, 120.0),
        (2, 5, 7200.0),
        (2, 6, 172800.0),
    ],
)
def test_timeout_of_a_get(timeout, unit, seconds):
    """Timeouts are in the client's unit; -1 does not wait, others below 1 for ever."""
    request = ask(open_session(), PacketType.GET, Get(*WHO, 1, timeout, unit))
    assert request.timeout_s == (seconds and pytest.approx(seconds))


def test_huge_timeout():
    """A timeout beyond what clocks can count is still one that can be waited for."""
    request = ask(open_session(), PacketType.GET, Get(*WHO, 1, 2**63 - 1, 6))
    assert 1e8 < request.timeout_s < 1e9


@pytest.mark.parametrize(("asked", "size"), [(0, 1000), (-5, 1000), (1, 1),
                                             (2**31 - 1, 2**31 - 1)])  # fmt: skip
def test_fetch_size(asked, size):
    """A size of zero or less means 1000; a large one is used as it is."""
    request = ask(open_session(), PacketType.GET, Get(*WHO, asked, -1))
    assert request.size == size


def test_gets_that_alternate():
    """The session does not mistake one get for another."""
    session = open_session()
    for size in (1, 2, 2, 1):
        assert ask(session, PacketType.GET, Get(*WHO, size, -1)).size == size


@pytest.mark.parametrize(
    ("kind", "content", "code"),
    [
        (PacketType.GET, Get("", "1001"), 401),
        (PacketType.GET, Get("example", ""), 401),
        (PacketType.SUBSCRIPTION, Sub("", ""), 401),
        (PacketType.CLIENTACK, ClientAck(*WHO, 0), 402),
        (PacketType.CLIENTACK, ClientAck("", "1001", 0), 401),
        (PacketType.GET, Get("example", "32768"), 400),
        (PacketType.GET, Get("example", "-32769"), 400),
        (PacketType.GET, Get("example", "1_0"), 400),
        (PacketType.GET, Get("example", "\u0661"), 400),
        (PacketType.GET, Get("example", "9" * 900), 400),
        (PacketType.HEARTBEAT, Ack(), 400),
        (PacketType.DUMP, Ack(), 400),
        (PacketType.CLIENTAUTHENTICATION, ClientAuth(), 400),
    ],
)
def test_refusals(kind, content, code):
    """What breaks a rule of the protocol is refused with its code."""
    session = open_session()
    refusal = ask(session, kind, content)
    assert isinstance(refusal, Refused)
    assert refusal.code == code
    assert len(refusal.message) < 200
    assert isinstance(ask(session, PacketType.GET, Get(*WHO, 1)), Fetch)


@pytest.mark.parametrize("client_id", ["-32768", "32767", "+7", "0"])
def test_client_ids(client_id):
    """Client ids are signed decimal numbers of 16 bits."""
    request = ask(open_session(), PacketType.GET, Get("example", client_id, 1))
    assert request.identity.client_id == int(client_id)


def test_heartbeat_is_named():
    """The refusal of an unknown request names its type."""
    refusal = ask(open_session(), PacketType.HEARTBEAT, Ack())
    assert refusal.message == "packet type: HEARTBEAT is NOT supported!"


def test_empty_frame():
    """A frame of length 0 is a packet of type 0, which is refused."""
    session = open_session()
    session.receive_data(bytes(4))
    assert session.next_request() == Refused(400, "packet type: 0 is NOT supported!")


def test_malformed_request():
    """A packet whose body is not a request is refused; the session continues."""
    session = open_session()
    session.receive_data(frame(encode(Packet(type=PacketType.GET, body=b"\x0a\xff"))))
    refusal = session.next_request()
    assert isinstance(refusal, Refused)
    assert "malformed Get" in refusal.message


def test_malformed_packet():
    """Bytes that are not a packet end the session."""
    session = open_session()
    session.receive_data(frame(b"\xff"))
    with pytest.raises(ProtocolError, match="malformed Packet"):
        session.next_request()


def test_frame_beyond_the_limit():
    """A request longer than the limit ends the session before it is read."""
    session = open_session()
    session.receive_data((1001).to_bytes(4))
    with pytest.raises(ProtocolError, match="out of range 0 to 1000"):
        session.next_request()


def test_requests_in_order():
    """Requests that arrive together come out one by one, in their order."""
    session = open_session()
    acks = [encode_packet(PacketType.CLIENTACK, ClientAck(*WHO, n)) for n in (1, 2, 3)]
    session.receive_data(b"".join(map(frame, acks)))
    assert [session.next_request() for _ in range(4)] == [
        *(Acknowledge(IDENTITY, n) for n in (1, 2, 3)),
        None,
    ]


def test_error_text_is_bounded():
    """A refusal's text is cut to a length that a client can be sent."""
    body = decode(Packet, error_frame(400, "x" * 100_000)[4:]).body
    assert decode(Ack, body).error_message == "x" * ERROR_TEXT_MAX
