"""How a source is reached: address, account and timeouts.

Leaves out TLS (`source_tls`), and where these values come from (`canal_server.config`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from canal_server.errors import PasswordError, SourceRefused
from canal_server.passwords.password_source import revealed
from canal_server.tls.source_tls import TlsOptions

if TYPE_CHECKING:
    from pathlib import Path

    from canal_server.passwords.password_source import Password
    from canal_server.runtime.lifecycle import Stop


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
    password: Password = field(repr=False)

    def password_bytes(self, stop: Stop | None = None) -> bytes:
        """Return the password as it is now, for one login.

        Blocks while a command runs. Raises SourceRefused when it cannot be read.
        """
        try:
            return revealed(self.password, stop).encode()
        except PasswordError as error:
            raise SourceRefused(f"the password of {self.user}: {error}") from error
        except UnicodeEncodeError:
            # Not chained: the error contains the password.
            raise SourceRefused(
                f"the password of {self.user} has characters that cannot be sent; set"
                " another one"
            ) from None


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
    tls: TlsOptions = field(default_factory=TlsOptions)
    server_key: ServerKey = ServerKey()
    connect_timeout_s: float = 10.0
    io_timeout_s: float = 30.0  # of one read or write of a query or a login
    # A link that accepts or confirms no packet for this long counts as dead; a slow
    # server still confirms packets.
    link_timeout_s: float = 30.0
    # SO_RCVBUF in bytes. Up to 64 KiB it is left to the system, which grows the buffer
    # to several MiB unless a size is set.
    receive_buffer: int = 0
    archive: Path | None = None  # a directory with binlog files that it has purged
    named_by: str = field(default="", compare=False)  # the setting with the address
