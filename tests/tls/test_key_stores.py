"""Java's key stores: what is read of them, and how others are refused."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from canal_server.tls.key_stores import (
    client_of_store,
    problem_of_format,
    trusted_of,
)

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "s3cret-of-a-store"


def keytool(*arguments: object) -> None:
    """Run Java's keytool, or skip the test where there is none."""
    program = shutil.which("keytool")
    if program is None:
        pytest.skip("no keytool")
    subprocess.run(
        [program, *map(str, arguments), "-storepass", PASSWORD, "-noprompt"],
        check=True,
        capture_output=True,
    )


def test_trusted_certificates(authority):
    """All certificates of a store are returned in PEM."""
    cert, _ = authority.issue("other")
    store = authority.store("trusted", PASSWORD, authority.ca_file, cert)
    pem = trusted_of(store, PASSWORD)
    assert authority.ca_file.read_text() in pem
    assert cert.read_text() in pem


def test_a_client(authority):
    """The key and its certificate are returned, and when that expires."""
    cert, key = authority.issue("client", days=12)
    found = client_of_store(authority.store("client", PASSWORD, cert, key), PASSWORD)
    assert cert.read_bytes() in found.pem
    assert b"BEGIN PRIVATE KEY" in found.pem
    left = found.expires_at - datetime.now(UTC)
    assert timedelta(days=11) < left < timedelta(days=13)
    assert "PRIVATE" not in repr(found)


def test_what_is_missing(authority):
    """A store without a key is no client's; the error says what to do."""
    store = authority.store("trusted", PASSWORD, authority.ca_file)
    with pytest.raises(ValueError, match="no private key with a certificate; export"):
        client_of_store(store, PASSWORD)


@pytest.mark.parametrize("password", ["", "wrong"])
def test_another_password(authority, password):
    """A wrong password is refused without showing the store's content."""
    store = authority.store("trusted", PASSWORD, authority.ca_file)
    with pytest.raises(ValueError, match="its password is not the configured one"):
        trusted_of(store, password)


def test_what_is_no_store(tmp_path):
    """Another file is refused; a missing one is the caller's error."""
    path = tmp_path / "a.p12"
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="no key store in PKCS #12"):
        trusted_of(path, "")
    with pytest.raises(FileNotFoundError):
        trusted_of(tmp_path / "none", "")


def test_pem_files_have_keys_of_their_own(authority):
    """A PEM file is refused with the keys for it."""
    assert "set it as sslCa, or as sslCert" in problem_of_format(authority.ca_file)


@pytest.mark.parametrize(
    ("head", "kind"), [(b"\xfe\xed\xfe\xed", "JKS"), (b"\xce\xce\xce\xce", "JCEKS")]
)
def test_javas_own_formats(tmp_path, head, kind):
    """They are refused with the command that converts the file."""
    path = tmp_path / "my store.jks"
    path.write_bytes(head + b"\0" * 100)
    with pytest.raises(ValueError, match=f"own format {kind}; convert") as caught:
        trusted_of(path, "")
    assert str(caught.value).endswith(
        f"keytool -importkeystore -srckeystore '{path}' -srcstoretype {kind}"
        f" -destkeystore '{tmp_path}/my store.p12' -deststoretype PKCS12"
    )


def make_jks(path: Path, certificate: Path) -> None:
    """Make a store of Java's own format, as releases before 9 do."""
    keytool("-importcert", "-alias", "ca", "-file", certificate, "-keystore", path,
            "-storetype", "JKS")  # fmt: skip


def test_stores_of_keytool(authority, tmp_path):
    """What keytool writes is read: both kinds, and what it converted."""
    store = tmp_path / "client.p12"
    keytool("-genkeypair", "-alias", "client", "-keyalg", "RSA", "-dname", "CN=client",
            "-keystore", store, "-storetype", "PKCS12")  # fmt: skip
    assert b"BEGIN PRIVATE KEY" in client_of_store(store, PASSWORD).pem

    old, new = tmp_path / "trusted.jks", tmp_path / "trusted.p12"
    make_jks(old, authority.ca_file)
    command = problem_of_format(old).partition("with: keytool ")[2].split()
    keytool(*command, "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    assert trusted_of(new, PASSWORD) == authority.ca_file.read_text()
