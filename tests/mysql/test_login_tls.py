"""TLS to a real MySQL and MariaDB: key stores, versions, ciphers, pass phrases."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization
from fake_mysql import account, fake_server, greeting, session
from fix_servers import needs
from fix_source_access import PATIENCE_S, access_of

from canal_server.errors import SourceError, SourceRefused
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.passwords.password_source import PasswordSource
from canal_server.tls.source_tls import TlsMode, TlsOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import PrivateServer

    from canal_server.mysql.login_session import Session

STORE_PASSWORD = "s3cret-of-a-store"
VERSION = "SHOW SESSION STATUS LIKE 'Ssl_version'"
CIPHER = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"


@pytest.fixture(
    params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in
            ("mysql", "mariadb")]
)  # fmt: skip
def server(request, own_server, authority) -> PrivateServer:
    """Give a MySQL, then a MariaDB, with a certificate for its address."""
    cert, key = authority.issue("source", days=10)
    started: PrivateServer = own_server(
        request.param,
        [
            f"--ssl-ca={authority.ca_file}",
            f"--ssl-cert={cert}",
            f"--ssl-key={key}",
            "--loose-tls-version=TLSv1.2,TLSv1.3",
        ],
    )
    library = started.execute("SHOW VARIABLES LIKE 'version_ssl_library'")
    if library and "wolfssl" in library[0][1].lower():
        # MariaDB's own packages: those of 10.4 lack something.
        try:
            session(access_of(started, tls=TlsOptions(TlsMode.REQUIRED))).close()
        except SourceRefused as error:
            if "no secure renegotiation" not in str(error):
                raise
            pytest.skip("its TLS library lacks secure renegotiation, and is refused")
    needs(started, "TLS 1.3")
    return started


@contextmanager
def logged_in(
    server: PrivateServer, tls: TlsOptions, **login: Any
) -> Iterator[Session]:
    """Log in, and close the connection after."""
    with closing(session(access_of(server, tls=tls, **login))) as opened:
        yield opened


def test_trusted_certificates(server, authority):
    """The server is verified by a key store as by a PEM file, its name included."""
    store = authority.store("trusted", STORE_PASSWORD, authority.ca_file)
    options = TlsOptions(
        TlsMode.VERIFY_IDENTITY,
        trust_store=str(store),
        trust_store_password=STORE_PASSWORD,
    )
    with logged_in(server, options) as opened:
        assert opened.query(CIPHER)[0][1] != ""
        ends = opened.certificate_expires_at
    assert ends is not None
    assert timedelta(days=9) < ends - datetime.now(UTC) < timedelta(days=10)

    other = authority.issue("other")[0]
    wrong = authority.store("other", STORE_PASSWORD, other)
    with pytest.raises(SourceRefused, match="certificate was rejected"):
        session(access_of(server, tls=replace(options, trust_store=str(wrong))))


def test_the_servers_own_certificate(server, authority):
    """The certificate of the server itself may be the one that is trusted."""
    own = authority.store(
        "own", STORE_PASSWORD, authority.ca_file.parent / "source.pem"
    )
    options = TlsOptions(
        TlsMode.VERIFY_CA, trust_store=str(own), trust_store_password=STORE_PASSWORD
    )
    with logged_in(server, options) as opened:
        assert opened.query("SELECT 1") == [(1,)]


def test_client_certificates(server, authority, tmp_path):
    """An account that requires one accepts it from a store and from an encrypted key.

    PREFERRED shows it as well.
    """
    cert, key = authority.issue("client")
    secret = tmp_path / "phrase"
    secret.write_text(f"{STORE_PASSWORD}\n")
    source = PasswordSource("canal.instance.master.sslKeyPassword.file", secret)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(STORE_PASSWORD.encode()),
        )
    )
    store = TlsOptions(
        TlsMode.REQUIRED,
        client_store=str(authority.store("client", STORE_PASSWORD, cert, key)),
        client_store_password=source,
    )
    files = TlsOptions(
        TlsMode.REQUIRED, cert=str(cert), key=str(encrypted), key_password=source
    )
    login: dict[str, Any] = {"user": "certified", "password": "x"}
    with account(server, "certified", "IDENTIFIED BY 'x' REQUIRE X509"):
        for options in (store, files, replace(store, mode=TlsMode.PREFERRED)):
            with logged_in(server, options, **login) as opened:
                assert opened.query("SELECT 1") == [(1,)]
        with pytest.raises(SourceRefused, match="Access denied"):
            session(access_of(server, tls=TlsOptions(TlsMode.REQUIRED), **login))
    for options in (store, files):
        assert options.expires_at() is not None

    secret.write_text("another\n")
    for options, problem in (
        (store, "the key store .*client.p12: .*its password is not the configured"),
        (files, "client.pem, .*encrypted.key cannot be used: .*pass phrase"),
    ):
        with pytest.raises(SourceRefused, match=problem) as caught:
            session(access_of(server, tls=options, **login))
        assert "another" not in repr(caught.value)


@pytest.mark.parametrize("mode", [TlsMode.PREFERRED, TlsMode.REQUIRED])
def test_versions_and_ciphers(server, mode):
    """What the settings leave out is not used, PREFERRED included."""
    cipher = "ECDHE-ECDSA-AES256-GCM-SHA384"
    for options, query, expected in (
        (TlsOptions(mode, versions=("TLSv1.2",)), VERSION, "TLSv1.2"),
        (TlsOptions(mode, versions=("TLSv1.3",)), VERSION, "TLSv1.3"),
        (TlsOptions(mode), VERSION, "TLSv1.3"),
        (TlsOptions(mode, versions=("TLSv1.2",), ciphers=cipher), CIPHER, cipher),
    ):
        with logged_in(server, options) as opened:
            assert opened.query(query)[0][1] == expected


def test_a_version_that_the_server_lacks(server):
    """It is refused in words, not with another version."""
    server.restart([*server.options, "--tls-version=TLSv1.2"])
    with pytest.raises(SourceError) as caught:
        session(
            access_of(server, tls=TlsOptions(TlsMode.REQUIRED, versions=("TLSv1.3",)))
        )
    assert isinstance(caught.value, SourceRefused)
    assert "no version of TLS that both sides allow" in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        # A ServerHello of TLS 1.1 and of TLS 1.0, and an alert about the version.
        b"\x16\x03\x02\x00\x2a\x02\x00\x00\x26\x03\x02" + bytes(37),
        b"\x16\x03\x01\x00\x2a\x02\x00\x00\x26\x03\x01" + bytes(37),
        b"\x15\x03\x03\x00\x02\x02\x46",
    ],
    ids=["1.1", "1.0", "alert"],
)
@pytest.mark.parametrize("mode", [TlsMode.PREFERRED, TlsMode.REQUIRED])
def test_a_server_with_old_tls_alone(answer, mode):
    """MySQL 5.6 is refused with what to do, and not as one that cannot be reached."""
    with fake_server(greeting(with_tls=True), answer, b"") as port:
        access = Access(
            address=Address("127.0.0.1", port),
            credentials=Credentials("canal", "x"),
            tls=TlsOptions(mode),
            io_timeout_s=PATIENCE_S,
        )
        with pytest.raises(SourceRefused, match="no version of TLS that both sides"):
            session(access)


@pytest.mark.parametrize("mode", [TlsMode.PREFERRED, TlsMode.REQUIRED])
def test_a_server_without_secure_renegotiation(mode):
    """It is refused with what to do, and not as one that cannot be reached."""
    # A ServerHello of TLS 1.2 without extensions.
    hello = b"\x16\x03\x03\x00\x2a\x02\x00\x00\x26\x03\x03" + bytes(33)
    cipher = b"\xc0\x2f\x00"  # ECDHE-RSA-AES128-GCM-SHA256, not compressed
    with fake_server(greeting(with_tls=True), hello + cipher, b"") as port:
        access = Access(
            address=Address("127.0.0.1", port),
            credentials=Credentials("canal", "x"),
            tls=TlsOptions(mode),
            io_timeout_s=PATIENCE_S,
        )
        with pytest.raises(SourceRefused, match="no secure renegotiation"):
            session(access)


def test_unknown_ciphers(server):
    """Ciphers that OpenSSL does not know are refused with the setting."""
    options = TlsOptions(TlsMode.REQUIRED, ciphers="NONE-OF-THESE")
    with pytest.raises(SourceRefused, match="sslCiphers = NONE-OF-THESE"):
        session(access_of(server, tls=options))


def test_a_password_that_is_replaced(server, tmp_path):
    """A file with the password is read for each login."""
    secret = tmp_path / "password"
    secret.write_text("old\n")
    source = PasswordSource("canal.instance.dbPassword.file", secret)
    tls = TlsOptions(TlsMode.REQUIRED)
    with account(server, "changing", "IDENTIFIED BY 'old'"):
        with logged_in(server, tls, user="changing", password=source) as opened:
            assert opened.query("SELECT 1") == [(1,)]
        server.execute("ALTER USER changing IDENTIFIED BY 'new'")
        with pytest.raises(SourceRefused, match="Access denied"):
            session(access_of(server, user="changing", password=source, tls=tls))
        secret.write_text("new\n")
        with logged_in(server, tls, user="changing", password=source) as opened:
            assert opened.query("SELECT 1") == [(1,)]
        secret.unlink()
        with pytest.raises(SourceRefused, match=r"dbPassword.file = .*cannot read"):
            session(access_of(server, user="changing", password=source, tls=tls))
