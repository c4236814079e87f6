"""Reads and checks the settings of the server itself: its ports and its clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.config.conf_paths import anchored
from canal_server.config.key_reading import fields_of, read_all
from canal_server.config.key_tables import SERVER_KEYS
from canal_server.config.password_forms import is_given
from canal_server.config.problems import find
from canal_server.config.queue_section import mode_of, read_queue
from canal_server.config.schema import (
    ClientCertificates,
    ManagerConfig,
    ServerConfig,
    ServerMode,
    TlsConfig,
)
from canal_server.runtime.loopback import is_loopback

if TYPE_CHECKING:
    from canal_server.config.problems import Problems
    from canal_server.config.substitution import Lookup


def read_server(
    lookup: Lookup,
    problems: Problems,
    conf_dir: Path,
) -> ServerConfig:
    """Return the settings; relative paths in them start at `conf_dir`."""
    read = {
        field: anchored(conf_dir, value) if isinstance(value, Path) else value
        for field, value in read_all(SERVER_KEYS, lookup, problems, conf_dir).items()
    }
    mode = mode_of(lookup, problems)
    server = ServerConfig(
        **fields_of(read, ""),
        tls=TlsConfig(**fields_of(read, "tls.")),
        manager=ManagerConfig(**fields_of(read, "manager.")),
        queue=read_queue(read, mode, lookup, problems, conf_dir),
    )
    if mode is not ServerMode.TCP and not server.queue.serves_clients:
        server = replace(server, listen=False)
    _check_tls(server.tls, lookup, problems)
    _check_login(server, lookup, problems)
    return server


def _check_login(server: ServerConfig, lookup: Lookup, problems: Problems) -> None:
    """Report a login that is half set, and a port that is open by mistake."""
    for name in ("canal", "canal.http"):
        user = find(lookup, f"{name}.user", problems)
        if user and not is_given(f"{name}.passwd", lookup):
            problems.add(
                user.origin,
                f"{name}.user",
                user.text,
                f"user without {name}.passwd; set that to hex(SHA1(SHA1(password)))",
            )
    anonymous = find(lookup, "canal.anonymous.enable", problems)
    if anonymous and server.anonymous and server.users_file is not None:
        problems.add(
            anonymous.origin,
            "canal.anonymous.enable",
            anonymous.text,
            "with canal.users.file, only its users may log in: remove one of both keys",
        )
    ip = find(lookup, "canal.ip", problems)
    is_open = server.lets_everybody_in and not server.anonymous
    if ip and is_open and not is_loopback(server.ip):
        problems.add(
            ip.origin,
            "canal.ip",
            ip.text,
            "anyone who can reach this address could read all tables: set canal.user"
            " and canal.passwd, or canal.users.file (docs/howto/users.md), or"
            " canal.anonymous.enable to true if everybody may",
        )


def _check_tls(tls: TlsConfig, lookup: Lookup, problems: Problems) -> None:
    """Report keys that need another one. The files are read at the start."""
    for key, is_set, needed, has_needed in (
        ("required", tls.required, "certFile", tls.cert_file),
        ("keyFile", tls.key_file, "certFile", tls.cert_file),
        ("clientCaFile", tls.client_ca_file, "certFile", tls.cert_file),
        (
            "clientCertificates",
            tls.client_certificates is not ClientCertificates.NONE,
            "clientCaFile",
            tls.client_ca_file,
        ),
    ):
        found = find(lookup, f"canal.tls.{key}", problems)
        if is_set and not has_needed and found:
            problems.add(
                found.origin,
                f"canal.tls.{key}",
                found.text,
                f"needs canal.tls.{needed}; set that to a PEM file",
            )
