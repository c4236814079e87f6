"""Certificates of an authority that tests make, and files with them."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from canal_server.config.schema import TlsConfig

if TYPE_CHECKING:
    from pathlib import Path

DAY = timedelta(days=1)


class Authority:
    """Signs certificates, and writes PEM files into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.certificate = self._sign(self._name, self._key.public_key(), is_ca=True)
        self.ca_file = self._write(f"{name}.pem", _pem(self.certificate))

    def issue(
        self, name: str, *, days: int = 365, host: str = "127.0.0.1"
    ) -> tuple[Path, Path]:
        """Write a certificate and its key; returns both files."""
        key = ec.generate_private_key(ec.SECP256R1())
        found = self._sign(_name(name), key.public_key(), days=days, host=host)
        encoded = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return (
            self._write(f"{name}.pem", _pem(found)),
            self._write(f"{name}.key", encoded),
        )

    def store(self, name: str, password: str, *files: Path) -> Path:
        """Write a key store in PKCS #12: of a certificate and its key, or of others."""
        read = [path.read_bytes() for path in files]
        key = certificate = None
        if b"PRIVATE KEY" in read[-1]:
            certificate = x509.load_pem_x509_certificate(read[0])
            key = serialization.load_pem_private_key(read[1], None)
            read = []
        data = pkcs12.serialize_key_and_certificates(
            b"client" if key else None,
            key,  # type: ignore[arg-type]  # of a kind that it accepts
            certificate,
            [x509.load_pem_x509_certificate(each) for each in read] or None,
            serialization.BestAvailableEncryption(password.encode()),
        )
        return self._write(f"{name}.p12", data)

    def server(self, name: str = "server", **settings: object) -> TlsConfig:
        """Return settings with a certificate for this host."""
        cert, key = self.issue(name)
        return TlsConfig(cert_file=cert, key_file=key, **settings)  # type: ignore[arg-type]

    def client_context(self, name: str = "", *, days: int = 365) -> ssl.SSLContext:
        """Return the context of a client that trusts it; with a certificate."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if name:
            context.load_cert_chain(*self.issue(name, days=days))
        return context

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        days: int = 365,
        host: str = "",
        is_ca: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        constraints = x509.BasicConstraints(ca=is_ca, path_length=None)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(constraints, critical=True)
        )
        if host:
            addresses: list[x509.GeneralName] = [x509.DNSName("localhost")]
            addresses.append(x509.IPAddress(ipaddress.ip_address(host)))
            names = x509.SubjectAlternativeName(addresses)
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, data: bytes) -> Path:
        path = self._folder / name
        path.write_bytes(data)
        return path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Give an authority."""
    return Authority(tmp_path)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
