"""Who receives a password, over which way, and what a hostile server gets."""

from __future__ import annotations

import logging
import socket
from contextlib import closing, contextmanager

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from fake_mysql import SALT, account, fake_server, greeting, packet, session
from fix_servers import needs
from fix_source_access import PATIENCE_S, access_of

from canal_server.errors import SourceError, SourceRefused
from canal_server.mysql.source_settings import (
    Access,
    Address,
    Credentials,
    KeyRetrieval,
    ServerKey,
    server_key,
)
from canal_server.tls.source_tls import TlsMode, TlsOptions

PASSWORD = "s3cret-password"
SWITCH, MORE = b"\xfe", b"\x01"
DENIED = b"\xff\x15\x04#28000denied"


@pytest.fixture(scope="module")
def hostile() -> rsa.RSAPrivateKey:
    """Yield the key of an attacker in between."""
    return rsa.generate_private_key(65537, 2048)


def pem(key: rsa.RSAPrivateKey) -> bytes:
    """Return the public half as a server sends it."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def answers_of(greeted: bytes, *payloads: bytes) -> list[bytes]:
    """Return a greeting and payloads as packets, each after one of the client's."""
    return [
        greeted,
        *(packet(2 * number, each) for number, each in enumerate(payloads, 1)),
    ]


def conversation(plugin: bytes, key: rsa.RSAPrivateKey, way: str) -> list[bytes]:
    """Return what a hostile server sends to get the password."""
    switch = SWITCH + plugin + b"\0" + SALT + b"\0"
    # sha256_password: right after the greeting the key is sent without a request.
    said = [] if plugin == b"sha256_password" else [MORE + b"\x04"]
    said += [MORE + pem(key), DENIED]
    if way == "switch":
        return answers_of(greeting(), switch, *said)
    return answers_of(greeting(plugin), *said)


def has_password(heard: list[bytes], key: rsa.RSAPrivateKey) -> bool:
    """Return whether the received bytes have the password, in clear or for this key."""
    for received in heard:
        if PASSWORD.encode() in received:
            return True
        try:
            masked = key.decrypt(
                received[4:],
                padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None),
            )
        except ValueError:
            continue
        clear = bytes(byte ^ SALT[at % len(SALT)] for at, byte in enumerate(masked))
        if PASSWORD.encode() in clear:
            return True
    return False


def reach(port: int, key: ServerKey, host: str = "127.0.0.1") -> Access:
    """Return how to reach a fake server without TLS."""
    return Access(
        address=Address(host, port),
        credentials=Credentials("canal", PASSWORD),
        server_key=key,
        io_timeout_s=PATIENCE_S,
    )


WAYS = [
    (plugin, way)
    for plugin in (b"caching_sha2_password", b"sha256_password")
    for way in ("greeting", "switch")
]


def own_host() -> str:
    """Return a non-loopback address of this machine; skips without one."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has a loopback interface only")
        return str(sock.getsockname()[0])


@pytest.mark.parametrize(("plugin", "way"), WAYS)
def test_a_key_of_the_other_side_is_not_used(hostile, plugin, way):
    """A server that sends its own key gets nothing, and is not asked for one."""
    heard: list[bytes] = []
    with (
        fake_server(*conversation(plugin, hostile, way), heard=heard) as port,
        pytest.raises(SourceRefused, match="allowPublicKeyRetrieval") as refused,
    ):
        session(reach(port, ServerKey(retrieval=KeyRetrieval.REFUSED)))
    assert f"127.0.0.1:{port}" in str(refused.value)
    assert PASSWORD not in str(refused.value)
    assert heard
    assert not has_password(heard, hostile)


@pytest.mark.parametrize(("plugin", "way"), WAYS)
def test_a_pinned_key_is_not_replaced(hostile, plugin, way, tmp_path):
    """With a pinned key the password is encrypted for that key, whatever is sent."""
    mine = rsa.generate_private_key(65537, 2048)
    file = tmp_path / "public_key.pem"
    file.write_bytes(pem(mine))
    heard: list[bytes] = []
    answers = conversation(plugin, hostile, way)
    with (
        fake_server(*answers, b"", heard=heard) as port,
        pytest.raises(SourceError),
    ):
        session(reach(port, ServerKey(str(file))))
    assert not has_password(heard, hostile)
    assert has_password(heard, mine)


@pytest.mark.parametrize(("plugin", "way"), WAYS)
def test_a_key_is_asked_for_where_that_is_allowed(hostile, plugin, way):
    """With allowPublicKeyRetrieval the password is sent for any key."""
    heard: list[bytes] = []
    answers = conversation(plugin, hostile, way)
    with fake_server(*answers, heard=heard) as port, pytest.raises(SourceError):
        session(reach(port, ServerKey(retrieval=KeyRetrieval.ALLOWED)))
    assert has_password(heard, hostile)


def test_another_machine_is_not_asked_by_default(hostile, caplog):
    """Off loopback a key is refused, or requested with a warning, by the settings."""
    host = own_host()
    caplog.set_level(logging.WARNING)
    answers = conversation(b"caching_sha2_password", hostile, "greeting")

    heard: list[bytes] = []
    with (
        fake_server(*answers, heard=heard, host=host) as port,
        pytest.raises(SourceRefused, match="allowPublicKeyRetrieval"),
    ):
        session(reach(port, ServerKey(), host))
    assert not has_password(heard, hostile)
    assert not caplog.records

    with (
        fake_server(*answers, heard=heard, host=host) as port,
        pytest.raises(SourceError),
    ):
        session(reach(port, server_key(None, None), host))
    assert "without TLS" in caplog.text
    assert PASSWORD not in caplog.text
    assert has_password(heard, hostile)


@pytest.mark.parametrize("key", [b"", b"no key", b"-----BEGIN PUBLIC KEY-----\n"])
def test_what_is_no_key_is_refused(key):
    """A key that cannot be read is reported as an error of the source."""
    caching = greeting(b"caching_sha2_password")
    answers = answers_of(caching, MORE + b"\x04", MORE + key)
    with (
        fake_server(*answers, b"") as port,
        pytest.raises(SourceRefused, match="must be a public RSA key"),
    ):
        session(reach(port, ServerKey(retrieval=KeyRetrieval.ALLOWED)))


def test_endless_questions_end():
    """A server that never decides is disconnected."""
    again = packet(2, MORE + b"\x03")
    rounds = [packet(number, MORE + b"\x03") for number in range(2, 60)]
    with (
        fake_server(
            greeting(b"caching_sha2_password"), again + b"".join(rounds[1:]), b""
        ) as port,
        pytest.raises(SourceError, match="does not implement"),
    ):
        session(reach(port, ServerKey()))


def test_the_old_hash_is_refused():
    """A server that asks for the hash of MySQL 4.0 does not get it."""
    switch = packet(2, SWITCH + b"mysql_old_password\0" + SALT + b"\0")
    with (
        fake_server(greeting(), switch, b"") as port,
        pytest.raises(SourceRefused, match="in the MySQL 4"),
    ):
        session(reach(port, ServerKey()))


@contextmanager
def uncached(server, name: str, plugin: str):
    """Create an account whose password the server has not cached yet."""
    needs(server, plugin)
    with account(server, name, f"IDENTIFIED WITH {plugin} BY '{PASSWORD}'"):
        server.execute("FLUSH PRIVILEGES")
        yield


def reached(server, name: str, **how: object) -> Access:
    """Return how to reach a real server with such an account."""
    found = access_of(server, user=name, password=PASSWORD)
    return Access(
        address=found.address,
        credentials=found.credentials,
        io_timeout_s=PATIENCE_S,
        **how,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("how", "works"),
    [
        ({"server_key": ServerKey(retrieval=KeyRetrieval.ALLOWED)}, True),
        ({"server_key": ServerKey()}, True),  # on the same machine
        ({"server_key": ServerKey(retrieval=KeyRetrieval.REFUSED)}, False),
        (
            {
                "server_key": ServerKey(retrieval=KeyRetrieval.REFUSED),
                "tls": TlsOptions(TlsMode.REQUIRED),
            },
            True,
        ),
        (
            {
                "server_key": ServerKey(retrieval=KeyRetrieval.REFUSED),
                "tls": TlsOptions(TlsMode.PREFERRED),
            },
            True,
        ),
    ],
)
def test_a_real_server_accepts_it(mysql_server, how, works):
    """A MySQL without a cached password accepts it over TLS or for its own key."""
    name = "sha2keys"
    with uncached(mysql_server, name, "caching_sha2_password"):
        access = reached(mysql_server, name, **how)
        if works:
            with closing(session(access)) as opened:
                assert opened.query("SELECT 1") == [(1,)]
        else:
            with pytest.raises(SourceRefused, match="serverPublicKey"):
                session(access)


def test_a_real_servers_pinned_key(own_server):
    """The file public_key.pem of the server's data folder works, another does not."""
    server = own_server("mysql", [])
    name = "sha2pinned"
    with uncached(server, name, "caching_sha2_password"):
        for file, works in (("ca.pem", False), ("public_key.pem", True)):
            key = ServerKey(str(server.data_folder / file), KeyRetrieval.REFUSED)
            access = reached(server, name, server_key=key)
            if not works:
                with pytest.raises(SourceRefused, match=file):
                    session(access)
                continue
            with closing(session(access)) as opened:
                assert opened.query("SELECT 1") == [(1,)]


def test_a_missing_pinned_key_is_named(hostile):
    """A missing file is refused with its path, and no key is requested."""
    heard: list[bytes] = []
    answers = conversation(b"caching_sha2_password", hostile, "greeting")
    with (
        fake_server(*answers, heard=heard) as port,
        pytest.raises(SourceRefused, match="/nowhere/key"),
    ):
        session(reach(port, ServerKey("/nowhere/key.pem")))
    assert not has_password(heard, hostile)
