"""One client against the server over TCP: the recorded conversation, time limits."""

from __future__ import annotations

import json
import logging
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fix_server import (
    DESTINATION,
    PATIENCE_S,
    FakeInstance,
    Wire,
    make_entry,
    offsets,
)

from canal_server.protocol.auth import scramble, stored_form
from canal_server.protocol.framing import EMPTY_FRAME, frame
from canal_server.protocol.packets import (
    Ack,
    ClientAck,
    ClientAuth,
    ClientRollback,
    Get,
    Handshake,
    Messages,
    Packet,
    PacketType,
    Sub,
    encode_packet,
)
from canal_server.protocol.protobuf import decode
from canal_server.protocol.server_session import ACK_FRAME
from canal_server.runtime.lifecycle import Deadline
from canal_server.server import listener
from canal_server.server.transport import Transport

CONVERSATION = Path(__file__).parent / "conversation.json"
WHO = (DESTINATION, "1001")
LOGIN = frame(encode_packet(PacketType.CLIENTAUTHENTICATION, ClientAuth()))
SUBSCRIBE = frame(encode_packet(PacketType.SUBSCRIPTION, Sub(*WHO)))


def get_frame(size: int = 100, timeout_ms: int = -1) -> bytes:
    """Return the frame of a get."""
    return frame(encode_packet(PacketType.GET, Get(*WHO, size, timeout_ms, 2)))


def logged_in(port: int, auth: bytes = LOGIN) -> Wire:
    """Return a connection that has logged in and subscribed."""
    wire = Wire(port)
    wire.receive()
    for request in (auth, SUBSCRIBE):
        wire.send(request)
        assert wire.receive() == ACK_FRAME
    return wire


# --------------------------------------------------------------------------------
# The recorded conversation
# --------------------------------------------------------------------------------


@pytest.fixture
def instance() -> FakeInstance:
    """Give an instance whose batches are measured in units of 1 KiB."""
    return FakeInstance(DESTINATION, memunit=1024)


def entries_of(steps) -> list[bytes]:
    """Return the entries that batches 1 and 2 of the recording hold."""
    found: list[bytes] = []
    for batch_id in (1, 2):
        for step in steps:
            frame_ = bytes.fromhex(step.get("frame", ""))
            if step["from"] == "server" and frame_:
                packet = decode(Packet, frame_[4:])
                if packet.type == PacketType.MESSAGES:
                    messages = decode(Messages, packet.body)
                    if messages.batch_id == batch_id:
                        found += messages.messages
    return found


def assert_same_meaning(got: bytes, recorded: bytes) -> None:
    """Compare frames: to the byte, but for seeds and the texts of errors."""
    ours, theirs = decode(Packet, got[4:]), decode(Packet, recorded[4:])
    assert (ours.type, ours.version) == (theirs.type, theirs.version)
    if ours.type == PacketType.HANDSHAKE:
        assert len(decode(Handshake, ours.body).seeds) == 8
        assert len(got) == len(recorded)
    elif ours.type == PacketType.ACK and theirs.body:
        assert decode(Ack, ours.body).error_code == decode(Ack, theirs.body).error_code
    else:
        assert got == recorded


def test_recorded_conversation(serve, instance):
    """Requests that a client sent to the Java server get the same answers from ours.

    Where the Java server sent nothing, ours does not, either: another frame would
    be mistaken for the answer to the next request, or remain at the end.
    """
    steps = json.loads(CONVERSATION.read_text())
    compared = 0
    with Wire(serve().port) as wire:
        for step in steps:
            if step["from"] == "client":
                if step["what"].startswith("get 1 KiB"):
                    instance.store.append(*entries_of(steps))
                wire.send(bytes.fromhex(step["frame"]))
            elif "frame" in step:
                assert_same_meaning(wire.receive(), bytes.fromhex(step["frame"]))
                compared += 1
        wire.sock.shutdown(1)  # no more requests
        assert wire.receive() == b""
    assert compared == 15


# --------------------------------------------------------------------------------
# Logging in
# --------------------------------------------------------------------------------


def test_log_in_with_password(serve, caplog):
    """A wrong password is refused and logged without it, the right one accepted."""
    server = serve(user="canal", passwd=stored_form("secret"))
    with Wire(server.port) as wire, caplog.at_level(logging.DEBUG):
        seed = decode(Handshake, wire.packet().body).seeds
        for password, code in (("wrong", 400), ("secret", None)):
            auth = ClientAuth("canal", scramble(password, seed))
            wire.send(frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth)))
            assert decode(Ack, wire.packet().body).error_code == code
        wire.send(SUBSCRIBE)
        assert wire.receive() == ACK_FRAME
    assert "auth failed for user 'canal'" in caplog.text
    assert scramble("wrong", seed).decode() not in caplog.text


def test_seeds_differ(serve):
    """Each connection gets its own seed."""
    port = serve().port
    with Wire(port) as one, Wire(port) as two:
        assert one.receive() != two.receive()


def test_client_that_never_logs_in(serve):
    """A connection that does not log in in time is closed."""
    with Wire(serve(handshake_timeout_s=0.05).port) as wire:
        wire.receive()
        assert wire.receive() == b""


def test_client_that_logs_in_byte_by_byte(serve):
    """Single bytes do not prolong the time for the log-in."""
    with Wire(serve(handshake_timeout_s=0.2).port) as wire:
        wire.receive()
        wire.sock.settimeout(0.02)
        closed = False
        for byte in (1000).to_bytes(4) + bytes(900):
            try:
                wire.send(bytes([byte]))
                closed = wire.receive() == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
            if closed:
                break
        assert closed


def test_log_in_that_subscribes_in_vain(serve):
    """When the subscription of a log-in fails, the client can log in again."""
    with Wire(serve().port) as wire:
        wire.receive()
        auth = ClientAuth(destination="nowhere", client_id="1")
        wire.send(frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth)))
        assert decode(Ack, wire.packet().body).error_code == 400
        wire.send(LOGIN)
        assert wire.receive() == ACK_FRAME


# --------------------------------------------------------------------------------
# Requests
# --------------------------------------------------------------------------------


def test_requests_sent_together(serve, instance):
    """Requests that arrive in one piece are answered one after the other."""
    instance.store.append(make_entry(5))
    ack = frame(encode_packet(PacketType.CLIENTACK, ClientAck(*WHO, 1)))
    with Wire(serve().port) as wire:
        wire.receive()
        wire.send(LOGIN + SUBSCRIBE + get_frame() + ack + get_frame())
        assert wire.receive() == ACK_FRAME
        assert wire.receive() == ACK_FRAME
        messages = decode(Messages, wire.packet().body)
        assert (messages.batch_id, offsets(messages.messages)) == (1, [5])
        assert wire.receive() == EMPTY_FRAME


def test_rollback_before_subscription(serve, instances):
    """A rollback to a lazy instance stays silent, so that subscribing works."""
    instances.lazy[DESTINATION] = instances.started.pop(DESTINATION)
    with Wire(serve().port) as wire:
        wire.receive()
        rollback = encode_packet(PacketType.CLIENTROLLBACK, ClientRollback(*WHO))
        wire.send(LOGIN + frame(rollback) + SUBSCRIBE)
        assert wire.receive() == ACK_FRAME
        assert wire.receive() == ACK_FRAME


def test_waiting_get_is_woken(serve, instance):
    """A waiting get is answered when an entry arrives."""
    with logged_in(serve().port) as wire:
        wire.send(get_frame(timeout_ms=0))
        instance.store.wait_for_getters(1)
        instance.store.append(make_entry(7))
        assert offsets(decode(Messages, wire.packet().body).messages) == [7]


def test_waiting_get_ends_with_its_socket(serve, instance):
    """When a client with a waiting get disconnects, nothing is fetched for it."""
    port = serve().port
    with logged_in(port) as wire:
        wire.send(get_frame(timeout_ms=0))
        instance.store.wait_for_getters(1)
    instance.store.wait_for_getters(0)
    instance.store.append(make_entry(7))
    with logged_in(port) as wire:
        # It waits for the turn, which the other get may hold a moment longer.
        wire.send(get_frame(timeout_ms=int(PATIENCE_S * 1000)))
        messages = decode(Messages, wire.packet().body)
        assert (messages.batch_id, offsets(messages.messages)) == (1, [7])


def test_large_batch(serve, instance, rng):
    """A batch of many megabytes arrives completely."""
    entries = [make_entry(n) + b"\x1a" + b"\x80\x80\x04" + rng.randbytes(1 << 16)
               for n in range(1, 200)]  # fmt: skip
    instance.store.append(*entries)
    with logged_in(serve().port) as wire:
        wire.send(get_frame(size=1 << 20))
        assert list(decode(Messages, wire.packet().body).messages) == entries


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET "])
def test_other_protocols(serve, data, caplog):
    """Bytes that are not a frame close the connection, and the log names the client."""
    with Wire(serve().port) as wire:
        wire.receive()
        wire.send(data + LOGIN)
        assert wire.receive() == b""
    assert "closed the connection of 127.0.0.1:" in caplog.text


def test_unexpected_error_closes_one_connection(serve, instance, caplog):
    """A bug ends that connection with a traceback; others continue."""
    port = serve().port
    with logged_in(port) as wire, logged_in(port) as other:
        instance.store.append(make_entry(5))

        def fail() -> None:
            instance.store.on_fetched = lambda: None
            raise ZeroDivisionError

        instance.store.on_fetched = fail
        wire.send(get_frame())
        assert wire.receive() == b""
        other.send(get_frame())
        assert other.receive() == EMPTY_FRAME
    assert "ZeroDivisionError" in caplog.text


# --------------------------------------------------------------------------------
# Idle limits
# --------------------------------------------------------------------------------


def login_with(read_ms: int, write_ms: int) -> bytes:
    """Return a log-in with idle limits."""
    auth = ClientAuth(net_read_timeout=read_ms, net_write_timeout=write_ms)
    return frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth))


@pytest.mark.parametrize("limits", [(50, 3_600_000), (3_600_000, 50)])
def test_silence(serve, limits):
    """A connection without requests, or without answers, ends after its limit."""
    with logged_in(serve().port, login_with(*limits)) as wire:
        assert wire.receive() == b""


@pytest.mark.parametrize("limits", [(50, 3_600_000), (3_600_000, 50)])
def test_silence_of_a_waiting_get(serve, limits):
    """A waiting get does not extend its connection's limit."""
    with logged_in(serve().port, login_with(*limits)) as wire:
        wire.send(get_frame(timeout_ms=0))
        assert wire.receive() == b""


def test_client_that_only_acks(serve):
    """Acks, which are never answered, do not keep a connection beyond its limit."""
    ack = frame(encode_packet(PacketType.CLIENTACK, ClientAck(*WHO, -1)))
    with logged_in(serve().port, login_with(3_600_000, 50)) as wire:
        wire.sock.settimeout(0.01)
        for _ in range(int(PATIENCE_S / 0.01)):
            try:
                wire.send(ack)
                if wire.receive() == b"":
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
        pytest.fail("the connection outlived its limit")


# --------------------------------------------------------------------------------
# Strangers
# --------------------------------------------------------------------------------


def test_little_is_held_before_login(serve):
    """A stranger's frame is refused by its length, before it is sent."""
    server = serve(passwd=stored_form("secret"))
    with Wire(server.port) as wire:
        wire.receive()
        wire.send((100_000).to_bytes(4, "big"))
        assert wire.receive() == b""


def log_in(wire: Wire, password: str, seed: bytes, user: str = "canal") -> Ack:
    """Send a log-in, and return its answer."""
    auth = ClientAuth(user, scramble(password, seed))
    wire.send(frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth)))
    return decode(Ack, wire.packet().body)


def seed_of(wire: Wire) -> bytes:
    """Return the seed of a connection that was opened just now."""
    return decode(Handshake, wire.packet().body).seeds


@pytest.fixture
def waited(monkeypatch):
    """Give the seconds that log-ins have waited, for which nobody waits."""
    seconds: list[float] = []
    began_s = time.monotonic()
    monkeypatch.setattr(Transport, "wait_for_close", lambda _, s: seconds.append(s))
    clock = SimpleNamespace(monotonic=lambda: began_s + sum(seconds))
    monkeypatch.setattr(listener, "time", clock)
    return seconds


def test_wrong_passwords_wait(serve, waited, caplog):
    """Each wrong password waits longer, and so does the right one after them.

    It does not when it was right before, nor on its own. The log has the sum.
    """
    server = serve(user="canal", passwd=stored_form("secret"), handshake_timeout_s=3600)
    for passwords, expected in (
        (["secret"], []),
        ([*["wrong"] * 8, "secret"], [0.25, 0.5, 1, 2, 4, 5, 5, 5]),
        (["wrong"] * 40, [5] * 40),
        (["secret"], []),
        (["wrong", "secret"], [5]),
    ):
        before = len(waited)
        with Wire(server.port) as wire:
            seed = seed_of(wire)
            codes = [log_in(wire, each, seed).error_code for each in passwords]
        assert [bool(code) for code in codes] == [each == "wrong" for each in passwords]
        assert waited[before:] == expected
    assert caplog.text.count("auth failed") == 1
    server.request_stop()
    assert server.join(Deadline(PATIENCE_S))
    assert "48 more refusals for 127.0.0.1" in caplog.text


def test_the_right_password_waits_too(serve, waited):
    """The first time, it waits as a wrong one does; then no more."""
    server = serve(user="canal", passwd=stored_form("secret"), handshake_timeout_s=3600)
    for password in ("wrong", "wrong", "secret", "secret", "wrong", "secret"):
        with Wire(server.port) as wire:
            log_in(wire, password, seed_of(wire))
    assert waited == [0.25, 0.5, 1, 0.25]


@pytest.mark.parametrize(
    ("user", "expected"), [("", [0.25, 0.5, 1]), ("one", [0.25, 0.25])]
)
def test_other_names_are_no_way_around(serve, waited, user, expected):
    """Where any name may log in, all names count as one; otherwise each for itself."""
    server = serve(user=user, passwd=stored_form("secret"), handshake_timeout_s=3600)
    with Wire(server.port) as wire:
        seed = seed_of(wire)
        log_in(wire, "wrong", seed, "two")
        log_in(wire, "wrong", seed, "three")
        assert not log_in(wire, "secret", seed, "one").error_code
    assert waited == expected


def test_who_hangs_up_early_learns_nothing(serve, monkeypatch):
    """The right password of a client that did not wait is not known the next time."""
    waits = iter([False, True, False])  # the second client has disconnected
    waited = []

    def wait(_: Transport, seconds: float) -> bool:
        waited.append(seconds)
        return next(waits)

    monkeypatch.setattr(Transport, "wait_for_close", wait)
    server = serve(user="canal", passwd=stored_form("secret"), handshake_timeout_s=3600)
    for password in ("wrong", "secret", "secret", "secret"):
        with Wire(server.port) as wire:
            log_in(wire, password, seed_of(wire))
    assert waited == [0.25, 0.5, 1]


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_log_ins_without_an_answer(serve, caplog, password):
    """What may not wait any longer is closed without an answer, right or wrong."""
    caplog.set_level(logging.INFO)
    server = serve(user="canal", passwd=stored_form("secret"), handshake_timeout_s=0.5)
    with Wire(server.port) as wire:
        seed = seed_of(wire)
        assert log_in(wire, "wrong", seed).error_code == 400  # after half of the time
        auth = ClientAuth("canal", scramble(password, seed))
        wire.send(frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth)))
        assert wire.receive() == b""
    server.request_stop()
    assert server.join(Deadline(PATIENCE_S))
    assert "too many wrong passwords from its address" in caplog.text


def test_waiting_refusals_hold_up_nobody(serve):
    """While wrong passwords wait, who logged in before does so; a stop ends it."""
    server = serve(user="canal", passwd=stored_form("secret"))
    with Wire(server.port) as wire:
        assert not log_in(wire, "secret", seed_of(wire)).error_code
    wires = []
    for _ in range(8):
        wires.append(Wire(server.port))
        wires[-1].receive()
        auth = ClientAuth("canal", b"00" * 20)
        wires[-1].send(frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth)))
    with Wire(server.port) as wire:
        assert not log_in(wire, "secret", seed_of(wire)).error_code
    server.request_stop()
    assert server.join(Deadline(PATIENCE_S))
    for wire in wires:
        wire.close()


@pytest.mark.parametrize(
    ("asked_ms", "expected_s"), [(0, 300), (10**9, 300), (7000, 7)]
)
def test_send_timeout_has_a_limit(serve, monkeypatch, asked_ms, expected_s):
    """A client may request less time to accept an answer, not more."""
    set_to = []
    monkeypatch.setattr(
        Transport, "set_send_timeout", lambda _, seconds: set_to.append(seconds)
    )
    server = serve()
    auth = ClientAuth(net_write_timeout=asked_ms)
    logged_in(
        server.port, frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth))
    ).close()
    assert set_to == [10, expected_s]


def test_names_in_the_log_are_escaped(serve, caplog):
    """A destination with control characters is logged on one line."""
    caplog.set_level(logging.DEBUG)
    server = serve()
    with Wire(server.port) as wire:
        wire.receive()
        wire.send(LOGIN)
        wire.receive()
        sub = Sub("x\nERROR forged \x1b[31m", "1001")
        wire.send(frame(encode_packet(PacketType.SUBSCRIPTION, sub)))
        message = decode(Ack, wire.packet().body).error_message
    assert message == r"can't find destination:x\nERROR forged \x1b[31m"
    assert not any("\x1b" in each or "\n" in each for each in caplog.messages)


def subscribe_frame(destination: str = DESTINATION, **fields) -> bytes:
    """Return the frame of a subscription."""
    sub = Sub(destination, "7", **fields)
    return frame(encode_packet(PacketType.SUBSCRIPTION, sub))


LOGS_IN = frame(
    encode_packet(
        PacketType.CLIENTAUTHENTICATION,
        ClientAuth(destination="nowhere", client_id="7", password=b"topsecret"),
    )
)


@pytest.mark.parametrize(
    ("request_", "clients_max", "level", "expected"),
    [
        (
            subscribe_frame(filter="(x"),
            9,
            "WARNING",
            r"the subscribe of client 7 of example at .*: filter '\(x': missing",
        ),
        (
            subscribe_frame("no\nwhere"),
            9,
            "WARNING",
            r"the subscribe of client 7 of no\\nwhere at .*: can't find destination:no",
        ),
        (
            subscribe_frame(),
            0,
            "WARNING",
            "the subscribe of client 7 of example at .*: no room for 7",
        ),
        (
            LOGS_IN,
            9,
            "WARNING",
            "the login of client 7 of nowhere at .*: can't find destination:nowhere",
        ),
        (
            get_frame(),
            9,
            "INFO",
            "the fetch of client 1001 of example at .*: .*should subscribe first",
        ),
    ],
)
def test_refused_requests_are_logged(  # noqa: PLR0917
    serve, instance, caplog, request_, clients_max, level, expected
):
    """The reason of the first one is in the log, the others are logged as a count."""
    caplog.set_level("INFO", "canal_server")
    instance.clients_max = clients_max
    server = serve()
    with Wire(server.port) as wire:
        wire.receive()
        if request_ != LOGS_IN:
            wire.send(LOGIN)
            assert wire.receive() == ACK_FRAME
        for _ in range(10):
            wire.send(request_)
            assert decode(Ack, wire.packet().body).error_code
    server.request_stop()
    assert server.join(Deadline(PATIENCE_S))
    records = [each for each in caplog.records if "refus" in each.getMessage()]
    first, others = [each.getMessage() for each in records]
    assert re.match(f"refused {expected}", first)
    assert others.startswith("9 more refusals for 127.0.0.1 within 60 s; the last one")
    assert {each.levelname for each in records} == {level}
    assert "topsecret" not in caplog.text


def test_refused_log_ins_are_counted(serve):
    """A log-in whose subscription is refused counts as an error of its destination."""
    server = serve()
    auth = ClientAuth(destination=DESTINATION, client_id="7", filter="(")
    with Wire(server.port) as wire:
        wire.receive()
        wire.send(frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth)))
        assert decode(Ack, wire.packet().body).error_code == 400
        wire.send(LOGIN)
        assert wire.receive() == ACK_FRAME
    assert server.requests(DESTINATION).errors == {400: 1}
