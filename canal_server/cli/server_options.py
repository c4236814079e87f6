"""The options with which a command reaches a server as a client, and what goes wrong.

Leaves out what a command does there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canal_server.cli.conf_options import DEFAULT, VARIABLE, default_conf
from canal_server.client.canal import CanalClient
from canal_server.client.range_client import RangedClient
from canal_server.config.load import MAIN_FILE, load
from canal_server.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    import argparse

PASSWORD_VARIABLE = "CANAL_PASSWORD"  # noqa: S105  # its name, not its value
HOST: Final = "127.0.0.1"
PORT: Final = 11111
DESTINATION: Final = "example"
_ANY: Final = ("", "0.0.0.0", "::")  # noqa: S104  # what a server listens on


def add_link_options(parser: argparse.ArgumentParser) -> None:
    """Add where the server is, which destination, and who logs in."""
    add = parser.add_argument
    add("--conf", metavar="DIR", type=Path, help="folder with the canal.properties of "
        "the server: what it has counts where the options below are not given "
        f"(default: {VARIABLE} of the environment, else {DEFAULT} if that has one; "
        "none with --host or --port)")  # fmt: skip
    add("--host", help=f"the server (default: {HOST})")
    add("--port", type=int, help=f"its port (default: {PORT})")
    add("--destination", help="name (default: the only one that is configured, else "
        f"{DESTINATION})")  # fmt: skip
    add("--user", default="", help="name to log in with")
    add("--password-file", type=Path, metavar="FILE", help="file that holds the "
        f"password; without it {PASSWORD_VARIABLE} of the environment")  # fmt: skip


def complete_link(args: argparse.Namespace) -> None:
    """Put what the conf folder says, and defaults, where no option was given.

    Raises ConfigError.
    """
    conf = args.conf
    if conf is None and args.host is None and args.port is None:
        folder = default_conf()
        if VARIABLE in os.environ or (folder / MAIN_FILE).is_file():
            conf = folder
    if conf is not None:
        config = load(conf, os.environ)
        if args.host is None and config.server.ip not in _ANY:
            args.host = config.server.ip
        if args.port is None and config.server.port:
            args.port = config.server.port
        names = [each.destination for each in config.instances]
        if args.destination is None and len(names) == 1:
            (args.destination,) = names
    args.host = args.host or HOST
    args.port = PORT if args.port is None else args.port
    args.destination = args.destination or DESTINATION


def client_of(
    args: argparse.Namespace, client_id: int, timeout_s: float = 30.0
) -> CanalClient:
    """Return a client for the server of the options. Raises ConfigError."""
    return CanalClient(
        args.host,
        args.port,
        args.destination,
        client_id,
        args.user,
        _password(args.password_file),
        timeout_s,
    )


def ranged_client_of(
    args: argparse.Namespace, connect_timeout_s: float = 30.0, timeout_s: float = 300.0
) -> RangedClient:
    """Return a reader of ranges for the server of the options. Raises ConfigError."""
    return RangedClient(
        args.host,
        args.port,
        args.user,
        _password(args.password_file),
        connect_timeout_s,
        timeout_s,
    )


def failure_of(args: argparse.Namespace, error: Exception) -> str:
    """Return the message of an error: the server, and why."""
    where = f"{args.destination} at {args.host}:{args.port}"
    why = _reason(error, f"{args.host}:{args.port}: ")
    return f"canal-server {args.command}: {where}: {why}"


def _reason(error: Exception, said: str) -> str:
    """Return why it failed, without the number of the system's error, and `said`."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is the server running, is this its port?"
    if isinstance(error, ProtocolError):
        return f"that is not canal's protocol: {str(error).removeprefix(said)}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


def _password(file: Path | None) -> str:
    if file is None:
        return os.environ.get(PASSWORD_VARIABLE, "")
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError([f"--password-file {file}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"--password-file {file}: not valid UTF-8"]) from error
