"""Contexts of clients' connections; loaded only by programs that use TLS."""

from __future__ import annotations

import ssl
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@lru_cache(maxsize=8)
def context_of(ca_file: str, cert_file: str, key_file: str) -> ssl.SSLContext:
    """Return a context by PEM files; those of the system take a while to be read.

    Raises ValueError with the name of the option, and the reason.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ValueError(f"tls_ca_file = {ca_file}: {_file_problem(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_own_certificate(context, cert_file, key_file)
    return context


def load_own_certificate(
    context: ssl.SSLContext, cert_file: str, key_file: str
) -> None:
    """Let a context show a certificate to servers that ask for one; empty: none.

    Raises ValueError with the name of the option, and the reason.
    """
    if key_file and not cert_file:
        raise ValueError(f"tls_key_file = {key_file}: needs tls_cert_file")
    if not cert_file:
        return
    try:
        context.load_cert_chain(cert_file, key_file or None, _no_pass_phrase)
    except (OSError, ValueError) as error:
        files = f"tls_cert_file = {cert_file}"
        if key_file:
            files += f", tls_key_file = {key_file}"
        raise ValueError(f"{files}: {_file_problem(error)}") from error


def own_server_context(cert_file: Path) -> ssl.SSLContext:
    """Return a context for a server on this host whose certificate is in a file.

    It trusts this certificate alone, whatever name the server has. Raises OSError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cert_file)
    return context


def _no_pass_phrase() -> str:
    # Without this, OpenSSL would ask at the terminal.
    raise ValueError("the key has a pass phrase; write it without one")


def _file_problem(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key does not belong to the certificate"
        return "not what is expected in PEM form"
    return str(getattr(error, "strerror", None) or error)
