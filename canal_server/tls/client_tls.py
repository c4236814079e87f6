"""TLS of clients of a canal-server: options, and failures in words.

Most programs use no TLS, and do not load Python's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

_WRONG_VERSION: Final = "WRONG_VERSION_NUMBER"  # what clear text is to OpenSSL


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Whether a client uses TLS, and its PEM files.

    The server's certificate must be valid for the name or address that the client
    connects to, and signed by an authority of `ca_file`; empty: of the system. Or
    `enabled` is a context, which decides all of that.
    """

    enabled: bool | ssl.SSLContext = False
    ca_file: str | Path = ""
    cert_file: str | Path = ""  # the client's own, for servers that want one
    key_file: str | Path = ""  # empty: in `cert_file`

    def context(self) -> ssl.SSLContext | None:
        """Return the context of connections, None without TLS.

        Raises ValueError with the name of the option, and the reason.
        """
        # `ssl` is not imported for programs without TLS.
        if not (isinstance(self.enabled, bool) or hasattr(self.enabled, "wrap_socket")):
            raise ValueError(
                f"tls = {self.enabled!r}: expected true, false or an ssl.SSLContext"
            )
        if self.enabled is not True:
            for name in ("ca_file", "cert_file", "key_file"):
                if value := getattr(self, name):
                    raise ValueError(f"tls_{name} = {value}: expected tls = true, too")
            return self.enabled or None
        from canal_server.tls.client_context import context_of  # noqa: PLC0415

        return context_of(str(self.ca_file), str(self.cert_file), str(self.key_file))


def raise_failure(server: str, error: OSError) -> NoReturn:
    """Raise an error of a connection; one of TLS with the server and in words."""
    found = _failure(server, error)
    if found is None:
        raise error
    raise found from error


def _failure(server: str, error: OSError) -> OSError | None:
    reason = getattr(error, "reason", None)  # of errors of TLS
    if reason is None:
        return None
    if verification := getattr(error, "verify_message", None):
        return ConnectionError(
            f"{server}: its TLS certificate is not trusted: {verification}"
        )
    if reason == _WRONG_VERSION:
        return ConnectionError(
            f"{server} answers in clear text: it has no TLS, or refuses the connection"
        )
    return ConnectionError(f"{server}: TLS failed: {in_words(reason)}")


def in_words(reason: str | None) -> str:
    """Return a reason of OpenSSL as text."""
    return (reason or "unknown reason").replace("_", " ").lower()
