"""The options to connect to a server as a client, and the texts of failures.

What a command does on the server is in its own module.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.conf_options import (
    DEFAULT,
    VARIABLE,
    default_conf,
    destination_of,
)
from canal_server.client.canal import CanalClient
from canal_server.client.connection.login import LoginRefused
from canal_server.client.range_client import RangedClient
from canal_server.config.load import MAIN_FILE, load
from canal_server.errors import ConfigError, ProtocolError
from canal_server.tls.client_context import load_own_certificate, own_server_context
from canal_server.tls.client_tls import ClientTls

if TYPE_CHECKING:
    import argparse
    import ssl

PASSWORD_VARIABLE = "CANAL_PASSWORD"  # noqa: S105  # its name, not its value
HOST: Final = "127.0.0.1"
PORT: Final = 11111
DESTINATION: Final = "example"
_CLOSED: Final = (
    "connection refused; this server delivers to %s, and opens no port for clients: set"
    " canal.mq.serveClients = true in canal.properties and restart it, or %s"
)
_INSTEAD: Final = {  # of a connection
    "unsubscribe": "unsubscribe the client on its page or over HTTP (canal.http.port)",
}
_READ: Final = "read its topics"
_ANY: Final = ("", "0.0.0.0", "::")  # noqa: S104  # wildcard listen addresses


def add_link_options(parser: argparse.ArgumentParser, *, changes: bool = False) -> None:
    """Add the options for the server, the destination and the login.

    `changes`: the command changes something, so that it takes no destination for want
    of a name where several are configured.
    """
    add = parser.add_argument
    several = "; required if there are several" if changes else ""
    add("--conf", metavar="DIR", type=Path, help="folder with the canal.properties of "
        "the server, for the values of omitted options (default: "
        f"${VARIABLE} if set, else {DEFAULT} if it has that file; unused with --host "
        "or --port)")  # fmt: skip
    add("--host", help=f"host of the server (default: {HOST})")
    add("--port", type=int, help=f"port of the server (default: {PORT})")
    add("--destination", help="name (default: the only configured destination, else "
        f"{DESTINATION}{several})")  # fmt: skip
    add("--user", default="", help="user name for the login")
    add("--tls", action="store_true", help="connect with TLS")
    add("--tls-ca-file", default="", metavar="FILE", help="certificates of the trusted "
        "authorities, PEM (default: those of the system)")  # fmt: skip
    add("--tls-cert-file", default="", metavar="FILE", help="certificate to show to "
        "the server, PEM")  # fmt: skip
    add("--tls-key-file", default="", metavar="FILE", help="its private key, PEM "
        "(default: in that file)")  # fmt: skip
    add("--password-file", type=Path, metavar="FILE", help="file with the password for "
        f"the login (default: the password in ${PASSWORD_VARIABLE})")  # fmt: skip


def complete_link(args: argparse.Namespace, *, changes: bool = False) -> None:
    """Fill in omitted options from the conf folder, or with defaults.

    `changes` as in `add_link_options`. `own_conf` becomes the conf folder if the server
    that it describes is the one to connect to, else None; `delivers_to` the kind of
    message queue for which that one opens no port. Raises ConfigError.
    """
    args.delivers_to = ""
    conf = args.conf
    if conf is None and args.host is None and args.port is None:
        folder = default_conf()
        if VARIABLE in os.environ or (folder / MAIN_FILE).is_file():
            conf = folder
    args.own_conf = conf if args.host is None and args.port is None else None
    if conf is not None:
        config = load(conf, os.environ)
        if args.own_conf is not None and not config.server.listen:
            args.delivers_to = config.server.queue.mode.value
        if args.host is None and not args.tls and config.server.tls.required:
            # A named authority is trusted instead of this one certificate.
            args.tls = bool(args.tls_ca_file) or _own_context(
                config.server.tls.cert_file
            )
        if args.host is None and config.server.ip not in _ANY:
            args.host = config.server.ip
        if args.port is None and config.server.port:
            args.port = config.server.port
        names = [each.destination for each in config.instances]
        if args.destination is None and (len(names) == 1 or (changes and names)):
            args.destination = destination_of(config, None).destination
    args.host = args.host or HOST
    args.port = PORT if args.port is None else args.port
    args.destination = args.destination or DESTINATION


def client_of(
    args: argparse.Namespace, client_id: int, timeout_s: float = 30.0, **options: Any
) -> CanalClient:
    """Return a client for the server, which does not reconnect unless `options` say so.

    Raises ConfigError.
    """
    return CanalClient(
        args.host,
        args.port,
        args.destination,
        client_id,
        args.user,
        _password(args.password_file),
        timeout_s,
        **{"reconnect_for_s": 0, **_tls(args), **options},
    )


def ranged_client_of(
    args: argparse.Namespace, connect_timeout_s: float = 30.0, timeout_s: float = 300.0
) -> RangedClient:
    """Return a client for ranged reads from the server. Raises ConfigError."""
    return RangedClient(
        args.host,
        args.port,
        args.user,
        _password(args.password_file),
        connect_timeout_s,
        timeout_s,
        **_tls(args),
    )


def _tls(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a client. Raises ConfigError."""
    own = (args.tls_cert_file, args.tls_key_file)
    try:
        if isinstance(args.tls, bool):
            context = ClientTls(args.tls, args.tls_ca_file, *own).context()
        else:
            context = args.tls
            load_own_certificate(context, *own)
    except ValueError as error:
        text = str(error).replace("tls = true", "--tls")
        text = re.sub(r"\btls_(\w+)_file\b", r"--tls-\1-file", text)
        raise ConfigError([text.replace(" = ", " ")]) from error
    return {} if context is None else {"tls": context}


def _own_context(cert_file: Path | None) -> ssl.SSLContext:
    """Return what connects to the server of the conf folder. Raises ConfigError."""
    assert cert_file is not None, "canal.tls.required needs it"
    try:
        return own_server_context(cert_file)
    except OSError as error:
        why = error.strerror or "no certificate in PEM form"
        raise ConfigError([f"canal.tls.certFile = {cert_file}: {why}"]) from error


def failure_of(args: argparse.Namespace, error: Exception) -> str:
    """Return the message for an error, with the server and the reason."""
    where = f"{args.destination} at {args.host}:{args.port}"
    why = _reason(error, f"{args.host}:{args.port}: ")
    if args.delivers_to and isinstance(error, ConnectionRefusedError):
        why = _CLOSED % (args.delivers_to, _INSTEAD.get(args.command, _READ))
    if isinstance(error, LoginRefused) and not (args.user or args.tls_cert_file):
        why += "; log in with --user and --password-file"
    return f"canal-server {args.command}: {where}: {why}"


def _reason(error: Exception, prefix: str) -> str:
    """Return the reason of an error without its errno and without `prefix`."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; check that the server is running on this port"
    if isinstance(error, ProtocolError):
        return f"not a canal server: {str(error).removeprefix(prefix)}"
    if isinstance(error, OSError):
        return error.strerror or str(error).removeprefix(prefix)
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
