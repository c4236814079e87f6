"""The options with which a command reaches a server as a client, and what goes wrong.

Leaves out what a command does there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.client.canal import CanalClient
from canal_server.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    import argparse

PASSWORD_VARIABLE = "CANAL_PASSWORD"  # noqa: S105  # its name, not its value


def add_link_options(parser: argparse.ArgumentParser) -> None:
    """Add where the server is, which destination, and who logs in."""
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="the server (default: %(default)s)")
    add("--port", type=int, default=11111, help="its port (default: %(default)s)")
    add("--destination", default="example", help="name (default: %(default)s)")
    add("--user", default="", help="name to log in with")
    add("--password-file", type=Path, metavar="FILE", help="file that holds the "
        f"password; without it {PASSWORD_VARIABLE} of the environment")  # fmt: skip


def client_of(args: argparse.Namespace, client_id: int) -> CanalClient:
    """Return a client for the server of the options. Raises ConfigError."""
    return CanalClient(
        args.host,
        args.port,
        args.destination,
        client_id,
        args.user,
        _password(args.password_file),
    )


def failure_of(args: argparse.Namespace, error: Exception) -> str:
    """Return what to tell of an error: the server, and why."""
    where = f"{args.destination} at {args.host}:{args.port}"
    why = _reason(error, f"{args.host}:{args.port}: ")
    return f"canal-server {args.command}: {where}: {why}"


def _reason(error: Exception, told: str) -> str:
    """Return why it failed, without the number of the system's error, and `told`."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is the server running, is this its port?"
    if isinstance(error, ProtocolError):
        return f"that is not canal's protocol: {str(error).removeprefix(told)}"
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
        raise ConfigError([f"--password-file {file}: it is not UTF-8"]) from error
