"""Checks of the file of users: who cannot log in, and rights that allow nothing."""

from __future__ import annotations

import os
import shlex
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from canal_server.config.load import listed_destinations
from canal_server.config.schema import ClientCertificates
from canal_server.errors import ConfigError
from canal_server.model.check_results import fail, ok, warn
from canal_server.model.quoted import quoted
from canal_server.users.users_file import KEY, read_users

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from canal_server.config.schema import DaemonConfig, TlsConfig
    from canal_server.model.check_results import CheckResult
    from canal_server.users.rights import User

NAMES_SHOWN: Final = 5


def check_users(config: DaemonConfig) -> list[CheckResult]:
    """Check the file of users: that each can log in, and that its rights allow some."""
    path = config.server.users_file
    if path is None:
        return []
    shown = f"{KEY} = {path}"
    try:
        users = read_users(path).values()
    except ConfigError as error:
        return [fail("users", problem, "") for problem in error.problems]
    if not users and not config.server.passwd:
        conf = shlex.quote(str(config.conf_dir))
        remedy = f"add one with `canal-server user add --conf {conf}`"
        return [warn("users", f"{shown}: no users, so that nobody can log in", remedy)]
    found = [
        *_idle(shown, users),
        *_unused_certificates(shown, users, config.server.tls),
        *_unused_patterns(shown, users, config),
    ]
    return found or [ok("users", f"{shown}: {len(users)} users")]


def _idle(shown: str, users: Collection[User]) -> Iterator[CheckResult]:
    """Yield who has neither a password nor a certificate, or no rights."""
    idle = [
        each.name
        for each in users
        if not (each.password_hash or each.certificates)
        or not (each.read or each.operate or each.observe)
    ]
    if idle:
        yield warn(
            "users",
            f"{shown}: {len(idle)} users cannot log in, or have no rights:"
            f" {_names(idle)}",
            "give them a password or a certificate, and rights, or remove them",
        )


def _unused_certificates(
    shown: str, users: Collection[User], tls: TlsConfig
) -> Iterator[CheckResult]:
    """Yield who has a certificate and no password where no certificate is asked for.

    The page and the metrics ask for one as soon as there is an authority.
    """
    if tls.client_certificates is not ClientCertificates.NONE:
        return
    idle = [
        each.name
        for each in users
        if each.certificates
        and not each.password_hash
        and (each.read or tls.client_ca_file is None)
    ]
    if idle:
        yield warn(
            "users",
            f"{shown}: the port for clients asks for no certificate, which is the only"
            f" log-in of {_names(idle)}",
            "set canal.tls.clientCertificates = optional, and canal.tls.clientCaFile",
        )


def _unused_patterns(
    shown: str, users: Collection[User], config: DaemonConfig
) -> Iterator[CheckResult]:
    """Yield the patterns of users that match no destination."""
    if config.scan_interval_s or config.instances_managed:
        return  # others may be added while the server runs
    # All of them, although `--destination` may have chosen one.
    names = listed_destinations(config.conf_dir, os.environ)
    names += [each.destination for each in config.instances]
    unused = dict.fromkeys(
        f"{quoted(pattern)} of user {quoted(user.name)}"
        for user in users
        for pattern in (
            *(each.destination for each in user.read),
            *user.ranges,
            *user.operate,
            *user.observe,
        )
        if not any(fnmatchcase(name, pattern) for name in names)
    )
    if unused:
        yield warn(
            "users",
            f"{shown}: rights for destinations that do not exist:"
            f" {', '.join([*unused][:NAMES_SHOWN])}",
            "correct the names, or add them to canal.destinations",
        )


def _names(found: list[str]) -> str:
    return ", ".join(map(quoted, found[:NAMES_SHOWN]))
