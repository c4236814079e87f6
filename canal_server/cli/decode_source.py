"""The server whose binlog `decode` reads, and the positions its options select.

The reading itself is in `decode`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import urllib.parse
from typing import Final

from canal_server.capture.source_parts import access_of, standby_access_of
from canal_server.cli.conf_options import default_conf, source_of_destination
from canal_server.config.load import load
from canal_server.config.schema import InstanceConfig
from canal_server.errors import ConfigError, PasswordError
from canal_server.model.moments import moment_ms
from canal_server.mysql.source_settings import (
    Access,
    Address,
    Credentials,
    KeyRetrieval,
    ServerKey,
)
from canal_server.passwords.password_source import PasswordSource
from canal_server.source.begin.seek_target import (
    Kind,
    TargetFinder,
    TargetText,
    before_text,
    inside_text,
    parse_target,
)
from canal_server.source.begin.source_lag import SourceView
from canal_server.source.read.binlog_part import FilePosition
from canal_server.tls.source_tls import TlsMode, TlsOptions

_PORT: Final = 3306
_POSITION: Final = re.compile(r"(?P<file>.+):(?P<offset>\d+)")
_DESTINATION: Final = "decode"  # a name is required, but never shown


def position(text: str) -> FilePosition | TargetText:
    """Parse an argument that is a position, or a target to search a position for."""
    try:
        ms = moment_ms(text)
    except ValueError:
        pass  # not a time
    else:
        return TargetText(Kind.TIME, text, ms)
    try:
        target_text = parse_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None  # the cause adds nothing
    if target_text.kind is not Kind.POSITION:
        return target_text
    found = _POSITION.fullmatch(target_text.text)
    assert found is not None, "parse_target has read it"
    return FilePosition(found["file"], int(found["offset"]))


def source(text: str) -> tuple[Address, str, str]:
    """Parse a URL argument; returns address, user and password."""
    try:
        parts = urllib.parse.urlsplit(text)
        port = parts.port or _PORT
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not a URL: {error}") from error
    if parts.scheme != "mysql" or not parts.hostname or not parts.username:
        raise argparse.ArgumentTypeError("expected mysql://user@host:port")
    unquote = urllib.parse.unquote
    password = unquote(parts.password or "")
    return Address(parts.hostname, port), unquote(parts.username), password


def tls(text: str) -> TlsMode:
    """Parse an argument that is a TLS mode."""
    modes = (TlsMode.DISABLED, TlsMode.PREFERRED, TlsMode.REQUIRED)
    for mode in modes:
        if text.upper() == mode.name:
            return mode
    names = ", ".join(mode.name for mode in modes)
    raise argparse.ArgumentTypeError(f"expected one of {names}")


def access(args: argparse.Namespace) -> Access:
    """Return the access to the source of --source or of a configured destination.

    Raises ConfigError.
    """
    if args.source is None:
        conf = default_conf() if args.conf is None else args.conf
        instance = source_of_destination(load(conf, os.environ), args.destination)
        if not args.standby:
            return access_of(instance.source, instance.destination)
        standby = standby_access_of(instance.source)
        if standby is None:
            name = instance.destination
            raise ConfigError([f"--standby: destination {name} has no standby"])
        return standby
    address, user, password = args.source
    name = args.password_env
    if args.password_file is not None:
        try:
            password = PasswordSource("--password-file", args.password_file).read()
        except PasswordError as error:
            raise ConfigError(
                [f"--password-file {error.value}: {error.problem}"]
            ) from (error)
    elif name is not None:
        if name not in os.environ:
            raise ConfigError(
                [f"--password-env {name}: environment variable is not set"]
            )
        password = os.environ[name]
    return Access(
        address=address,
        credentials=Credentials(user, password),
        tls=TlsOptions(args.tls),
        named_by="--source",
        server_key=ServerKey(
            args.server_public_key,
            KeyRetrieval.ALLOWED
            if args.allow_public_key_retrieval
            else KeyRetrieval.LOOPBACK,
        ),
    )


def resolved(
    source: Access, target_text: FilePosition | TargetText, option: str
) -> FilePosition:
    """Return the binlog position that an option selects, between two transactions.

    Raises SourceError, PositionError.
    """
    if isinstance(target_text, FilePosition):
        target_text = TargetText(
            Kind.POSITION, f"{target_text.file}:{target_text.offset}"
        )
    with SourceView(InstanceConfig(destination=_DESTINATION), source) as view:
        target = TargetFinder(view, option).find(target_text)
    found = FilePosition(
        target.position.journal_name or "", target.position.position or 0
    )
    if target.inside is not None:
        text = inside_text(target_text.text, f"{found.file}:{found.offset}")
        print(f"canal-server decode: {text}", file=sys.stderr)
    elif target.is_before:
        text = before_text(target_text.text, found.file)
        print(f"canal-server decode: {text}", file=sys.stderr)
    return found
