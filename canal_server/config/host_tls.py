"""Checks the TLS settings of a source: files that are missing or contradict others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canal_server.config.schema import HostConfig


def check_host(host: HostConfig, prefix: str, note: Callable[[str, str], None]) -> None:
    """Report each problem to `note` with its key; keys begin with `prefix`.

    The files of passwords and the content of certificates are not checked here.
    """
    for word, path in (
        ("sslCa", host.ssl_ca),
        ("sslCert", host.ssl_cert),
        ("sslKey", host.ssl_key),
        ("serverPublicKey", host.server_public_key),
    ):
        if path and not os.access(path, os.R_OK):
            note(prefix + word, f"cannot read {path}; set a PEM file")
    if host.ssl_key and not host.ssl_cert:
        note(
            prefix + "sslKey",
            f"a key without a certificate; also set {prefix}sslCert",
        )
    for word, wrong in _store_problems(host, prefix):
        note(prefix + word, wrong)


def _store_problems(host: HostConfig, prefix: str) -> Iterator[tuple[str, str]]:
    for store, path, word, other in (
        ("trustCertificateKeyStore", host.trust_store, "sslCa", host.ssl_ca),
        ("clientCertificateKeyStore", host.client_store, "sslCert", host.ssl_cert),
    ):
        if path is None:
            continue
        if other is not None:
            yield f"{store}Url", f"{prefix}{word} is set as well; remove one of the two"
        try:
            # Seldom used, and it loads the library for certificates.
            from canal_server.tls.key_stores import problem_of_format  # noqa: PLC0415

            problem = problem_of_format(path)
        except OSError as error:
            problem = f"cannot read {path}: {error.strerror}; set a key store"
        if problem:
            yield f"{store}Url", problem
