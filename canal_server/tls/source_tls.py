"""TLS of connections to a source: modes, files, key stores, versions."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canal_server.errors import PasswordError, SourceRefused
from canal_server.passwords.password_source import revealed

if TYPE_CHECKING:
    from datetime import datetime

    from canal_server.passwords.password_source import Password
    from canal_server.runtime.lifecycle import Stop

VERSIONS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


class TlsMode(Enum):
    """The values of `sslMode`, as in MySQL's own clients."""

    DISABLED = "DISABLED"  # never TLS
    PREFERRED = "PREFERRED"  # TLS when the server offers it
    REQUIRED = "REQUIRED"  # TLS, without a check of the server
    VERIFY_CA = "VERIFY_CA"  # the same, and the CA signed its certificate
    VERIFY_IDENTITY = "VERIFY_IDENTITY"  # the same, and it is issued for the host name


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS of a connection: paths of files, empty for none.

    `ca`, `cert` and `key` are PEM files, the stores are key stores of Java in PKCS #12;
    a store is used instead of the PEM files for the same. Without both, the trusted
    authorities are those of the operating system.
    """

    mode: TlsMode = TlsMode.DISABLED
    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: Password = field(default="", repr=False)
    trust_store: str = ""
    trust_store_password: Password = field(default="", repr=False)
    client_store: str = ""
    client_store_password: Password = field(default="", repr=False)
    versions: tuple[str, ...] = ()  # of VERSIONS; empty: all
    ciphers: str = ""  # of TLS 1.2, as OpenSSL writes them; empty: its usual ones

    @property
    def required(self) -> bool:
        """Whether a connection without TLS is refused."""
        return self.mode not in (TlsMode.DISABLED, TlsMode.PREFERRED)

    @property
    def verifies(self) -> bool:
        """Whether the certificate of the server is verified."""
        return self.mode in (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY)

    def context(self, stop: Stop | None = None) -> ssl.SSLContext:
        """Return the context by the files as they are now.

        Blocks while the command of a password runs. Raises SourceRefused when a file
        cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.mode is TlsMode.VERIFY_IDENTITY
        if not self.verifies:
            context.verify_mode = ssl.CERT_NONE
        # A certificate that is trusted is trusted whoever signed it, as in Java.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # The certificates that MySQL generates break the strict rules that newer
        # versions of Python apply by default.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._set_versions(context)
        self._trust(context, stop)
        self._show_certificate(context, stop)
        return context

    def expires_at(self) -> datetime | None:
        """Return when the certificate of the client expires, None: there is none.

        Raises SourceRefused when it cannot be read.
        """
        from canal_server.tls import certificates, key_stores  # noqa: PLC0415

        path = self.client_store or self.cert
        if not path:
            return None
        try:
            if self.client_store:
                password = revealed(self.client_store_password)
                return key_stores.client_of_store(Path(path), password).expires_at
            return certificates.expiry_of_pem(Path(path).read_bytes())
        except (OSError, ValueError, PasswordError) as error:
            raise _unusable([path], error) from error

    def _set_versions(self, context: ssl.SSLContext) -> None:
        chosen = [VERSIONS[each] for each in self.versions] or list(VERSIONS.values())
        context.minimum_version = min(chosen)
        context.maximum_version = max(chosen)
        if self.ciphers:
            try:
                context.set_ciphers(self.ciphers)
            except ssl.SSLError as error:
                raise SourceRefused(
                    f"sslCiphers = {self.ciphers}: OpenSSL knows none of these ciphers;"
                    " write names as `openssl ciphers` lists them"
                ) from error

    def _trust(self, context: ssl.SSLContext, stop: Stop | None) -> None:
        try:
            if self.trust_store:
                from canal_server.tls import key_stores  # noqa: PLC0415  # seldom

                password = revealed(self.trust_store_password, stop)
                context.load_verify_locations(
                    cadata=key_stores.trusted_of(Path(self.trust_store), password)
                )
            elif self.ca:
                context.load_verify_locations(self.ca)
            elif self.verifies:
                context.load_default_certs()
        except (OSError, ValueError, PasswordError) as error:
            raise _unusable([self.trust_store or self.ca], error) from error

    def _show_certificate(self, context: ssl.SSLContext, stop: Stop | None) -> None:
        """Load the certificate and the key that are shown to the server."""
        try:
            if self.client_store:
                self._load_store(context, stop)
            elif self.cert:
                # A password is always passed: without one OpenSSL would ask for it on
                # the terminal.
                context.load_cert_chain(
                    self.cert,
                    self.key or None,
                    password=revealed(self.key_password, stop),
                )
        except (OSError, ValueError, PasswordError) as error:
            files = [self.client_store] if self.client_store else [self.cert, self.key]
            raise _unusable(files, error) from error

    def _load_store(self, context: ssl.SSLContext, stop: Stop | None) -> None:
        from canal_server.tls import key_stores  # noqa: PLC0415  # seldom used

        password = revealed(self.client_store_password, stop)
        pem = key_stores.client_of_store(Path(self.client_store), password).pem
        # OpenSSL reads keys from files only; this one is in memory.
        descriptor = os.memfd_create("client-key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, pem)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
        finally:
            os.close(descriptor)


def _unusable(files: list[str], error: Exception) -> SourceRefused:
    named = ", ".join(filter(None, files)) or "(none)"
    if isinstance(error, ValueError):
        return SourceRefused(f"the key store {named}: {error}")
    remedy = ""
    if isinstance(error, OSError):
        reason = getattr(error, "reason", "")  # of errors of OpenSSL
        if reason == "KEY_VALUES_MISMATCH":
            error = OSError("the key does not belong to the certificate")
        remedy = (
            "; they must be readable PEM files, the key must fit the certificate, and"
            " its pass phrase must be the configured one"
        )
    return SourceRefused(f"the TLS files {named} cannot be used: {error}{remedy}")
