"""The files of the server's certificate: errors, and what happens when they change."""

from __future__ import annotations

import shutil
import ssl
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from canal_server.config.schema import ClientCertificates, TlsConfig
from canal_server.errors import ConfigError
from canal_server.tls.server_tls import ServerTls, load_context


def subject_of(tls: ServerTls, trusted: ssl.SSLContext) -> str:
    """Return the name in the certificate that a client is shown."""
    wire = [ssl.MemoryBIO() for _ in range(2)]
    client = trusted.wrap_bio(wire[0], wire[1], server_hostname="127.0.0.1")
    server = tls.context().wrap_bio(wire[1], wire[0], server_side=True)
    for each in (client, server, client, server):
        try:
            each.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = client.getpeercert(binary_form=True)
    assert found
    subject = x509.load_der_x509_certificate(found).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


@pytest.fixture
def trusted(authority):
    """Give the context of a client."""
    return authority.client_context()


def test_replaced_files(authority, trusted, caplog):
    """The next connection has the new certificate."""
    caplog.set_level("INFO")
    config = authority.server("one")
    tls = ServerTls(config)
    assert subject_of(tls, trusted) == "one"
    for path, new in zip(
        (config.cert_file, config.key_file), authority.issue("two"), strict=True
    ):
        new.replace(path)
    assert subject_of(tls, trusted) == "two"
    assert subject_of(tls, trusted) == "two"
    assert len(caplog.messages) == 1


def test_half_replaced_files(authority, trusted, caplog):
    """A certificate without its key is reported once; the earlier one is used."""
    config = authority.server("one")
    tls = ServerTls(config)
    cert, key = authority.issue("two")
    cert.replace(config.cert_file)
    assert subject_of(tls, trusted) == subject_of(tls, trusted) == "one"
    (message,) = caplog.messages
    assert "does not belong to the certificate" in message
    key.replace(config.key_file)
    assert subject_of(tls, trusted) == "two"
    assert len(caplog.messages) == 1


def test_deleted_files(authority, trusted, caplog):
    """The earlier certificate is used."""
    config = authority.server("one")
    tls = ServerTls(config)
    config.key_file.unlink()
    assert subject_of(tls, trusted) == "one"
    assert "No such file" in caplog.text


def test_one_file(authority, trusted):
    """A file may hold the certificate and the key."""
    cert, key = authority.issue("one")
    cert.write_bytes(cert.read_bytes() + key.read_bytes())
    assert subject_of(ServerTls(TlsConfig(cert_file=cert)), trusted) == "one"


@pytest.mark.parametrize(
    ("key", "wrong", "text"),
    [
        ("cert_file", "missing", "canal.tls.certFile = {path}: cannot read: No such"),
        ("cert_file", "empty", "canal.tls.certFile = {path}: no certificate in PEM"),
        ("cert_file", "other", "canal.tls.keyFile = {key}: this key does not belong"),
        ("key_file", "missing", "canal.tls.keyFile = {path}: cannot read: No such"),
        ("key_file", "empty", "canal.tls.keyFile = {path}: no private key in PEM form"),
        ("key_file", "encrypted", "canal.tls.keyFile = {path}: the key has a pass"),
        ("client_ca_file", "missing", "canal.tls.clientCaFile = {path}: cannot read"),
        ("client_ca_file", "empty", "canal.tls.clientCaFile = {path}: no certificates"),
        ("cert_file", "folder", "canal.tls.certFile = {path}: cannot read: Is a dir"),
    ],
)
def test_unusable_files(authority, tmp_path, key, wrong, text):
    """Each is named by its key, with the reason; nobody is asked for a pass phrase."""
    config = authority.server(
        client_ca_file=authority.ca_file,
        client_certificates=ClientCertificates.REQUIRED,
    )
    load_context(config)
    path = tmp_path / "wrong"
    if wrong == "empty":
        path.write_text("nothing")
    elif wrong == "folder":
        path.mkdir()
    elif wrong == "other":
        shutil.copy(authority.issue("other")[0], path)
    elif wrong == "encrypted":
        loaded = serialization.load_pem_private_key(config.key_file.read_bytes(), None)
        path.write_bytes(
            loaded.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"phrase"),
            )
        )
    expected = text.format(path=path, key=config.key_file)
    with pytest.raises(ConfigError) as refused:
        load_context(replace(config, **{key: path}))
    assert str(refused.value).startswith(expected)
