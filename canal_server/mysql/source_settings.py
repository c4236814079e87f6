"""How a source is reached: address, account, TLS and timeouts.

Leaves out where these values come from (`canal_server.config`).
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import Enum

from canal_server.errors import SourceRefused


@dataclass(frozen=True, slots=True)
class Address:
    """Host name or IP, and port."""

    host: str
    port: int = 3306

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The account; its password never appears in a text form."""

    user: str
    password: str = field(repr=False)


class TlsMode(Enum):
    """The values of `sslMode`, as in MySQL's own clients."""

    DISABLED = "DISABLED"  # never TLS
    PREFERRED = "PREFERRED"  # TLS when the server offers it
    REQUIRED = "REQUIRED"  # TLS, without a check of the server
    VERIFY_CA = "VERIFY_CA"  # the same, and the CA signed its certificate
    VERIFY_IDENTITY = "VERIFY_IDENTITY"  # the same, and it is issued for the host name


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS of a connection: paths of PEM files, empty for none.

    An empty `ca` means the CAs of the operating system. PREFERRED sends no client
    certificate: a server that needs one needs TLS, so REQUIRED or stricter.
    """

    mode: TlsMode = TlsMode.DISABLED
    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)

    @property
    def required(self) -> bool:
        """Whether a connection without TLS is refused."""
        return self.mode not in (TlsMode.DISABLED, TlsMode.PREFERRED)

    def context(self) -> ssl.SSLContext:
        """Return the context for REQUIRED and the stricter modes.

        Raises SourceRefused when a file cannot be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            # The certificates that MySQL generates break the strict rules that newer
            # versions of Python apply by default.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.check_hostname = self.mode is TlsMode.VERIFY_IDENTITY
            if self.mode is TlsMode.REQUIRED:
                context.verify_mode = ssl.CERT_NONE
            if self.cert:
                # A password is always passed: without one OpenSSL would ask for it on
                # the terminal.
                context.load_cert_chain(
                    self.cert, self.key or None, password=self.key_password
                )
        except (OSError, ValueError) as error:
            files = ", ".join(name for name in (self.ca, self.cert, self.key) if name)
            raise SourceRefused(
                f"the TLS files {files or '(none)'} cannot be used: {error}; "
                "they must be readable PEM files, and the key must fit the certificate"
            ) from error
        return context


class KeyRetrieval(Enum):
    """Whether a password may be encrypted with a key that the server sends."""

    REFUSED = "REFUSED"
    LOOPBACK = "LOOPBACK"  # only to a server on this machine
    WARNED = "WARNED"  # to any server, with a warning when it is remote
    ALLOWED = "ALLOWED"


@dataclass(frozen=True, slots=True)
class ServerKey:
    """The RSA key for a password sent over a connection without TLS.

    `pinned` is the path of the server's own key, a PEM file; with it, `retrieval` has
    no effect, because no key is requested.
    """

    pinned: str = ""
    retrieval: KeyRetrieval = KeyRetrieval.LOOPBACK


def server_key(pinned: object, allowed: bool | None) -> ServerKey:
    """Return the meaning of a conf folder's settings; `pinned` is a path or None.

    A folder that does not say whether a key may be requested comes from the Java
    server, which requests it: it keeps working, with a warning.
    """
    retrieval = {
        None: KeyRetrieval.WARNED,
        True: KeyRetrieval.ALLOWED,
        False: KeyRetrieval.REFUSED,
    }[allowed]
    return ServerKey(str(pinned or ""), retrieval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything needed to open a connection to a source."""

    address: Address
    credentials: Credentials
    tls: TlsOptions = TlsOptions()
    server_key: ServerKey = ServerKey()
    connect_timeout_s: float = 10.0
    io_timeout_s: float = 30.0  # of one read or write of a query or a login
    # A link that accepts or confirms no packet for this long counts as dead; a slow
    # server still confirms packets.
    link_timeout_s: float = 30.0
    # SO_RCVBUF in bytes. Up to 64 KiB it is left to the system, which grows the buffer
    # to several MiB unless a size is set.
    receive_buffer: int = 0
    named_by: str = field(default="", compare=False)  # the setting with the address
