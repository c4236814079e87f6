"""How a source is reached: address, account, TLS and time-outs.

Leaves out where these come from (`canal_server.config`).
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
    """The account; its password never shows in a text form."""

    user: str
    password: str = field(repr=False)


class TlsMode(Enum):
    """What `sslMode` may say, as in MySQL's own clients."""

    DISABLED = "DISABLED"  # never TLS
    PREFERRED = "PREFERRED"  # TLS when the server offers it
    REQUIRED = "REQUIRED"  # TLS, whoever the server is
    VERIFY_CA = "VERIFY_CA"  # and its certificate is signed by the CA
    VERIFY_IDENTITY = "VERIFY_IDENTITY"  # and made out to the host's name


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS of a connection: paths of PEM files, empty for none.

    An empty `ca` means the CAs of the operating system. PREFERRED sends no client
    certificate: what needs one needs TLS, thus REQUIRED or more.
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
        """Return what REQUIRED and the modes above it need.

        Raises SourceRefused when a file cannot be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            # The certificates that MySQL makes for itself break the strict rules
            # which newer versions of Python apply by default.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.check_hostname = self.mode is TlsMode.VERIFY_IDENTITY
            if self.mode is TlsMode.REQUIRED:
                context.verify_mode = ssl.CERT_NONE
            if self.cert:
                # A password is always given: without one OpenSSL would ask for it
                # on the terminal.
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
    """Whether a password may be encrypted with a key that the other side has sent."""

    REFUSED = "REFUSED"
    LOOPBACK = "LOOPBACK"  # only where it does not leave this machine
    WARNED = "WARNED"  # anywhere, with a warning when it leaves this machine
    ALLOWED = "ALLOWED"


@dataclass(frozen=True, slots=True)
class ServerKey:
    """The RSA key for a password that goes over a connection without TLS.

    `pinned` is the path of the server's own one, a PEM file; with it `retrieval`, the
    question for a key, does not come up.
    """

    pinned: str = ""
    retrieval: KeyRetrieval = KeyRetrieval.LOOPBACK


def server_key(pinned: object, allowed: bool | None) -> ServerKey:
    """Return what the settings of a conf folder mean; `pinned` is a path or None.

    A folder that does not say whether a key may be asked for is one of the Java server,
    which asks: there it goes on, with a warning.
    """
    retrieval = {
        None: KeyRetrieval.WARNED,
        True: KeyRetrieval.ALLOWED,
        False: KeyRetrieval.REFUSED,
    }[allowed]
    return ServerKey(str(pinned or ""), retrieval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """All that is needed to open a connection to a source."""

    address: Address
    credentials: Credentials
    tls: TlsOptions = TlsOptions()
    server_key: ServerKey = ServerKey()
    connect_timeout_s: float = 10.0
    io_timeout_s: float = 30.0  # of one read or write of a query or a login
    # A link that takes or confirms no packet for so long is given up; a server that is
    # slow confirms them.
    link_timeout_s: float = 30.0
    # SO_RCVBUF in bytes. Up to 64 KiB it is left to the system, which sizes the
    # buffer by itself up to several MiB as long as nobody sets it.
    receive_buffer: int = 0
    named_by: str = field(default="", compare=False)  # the setting with the address
