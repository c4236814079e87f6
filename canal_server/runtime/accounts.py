"""The accounts of the operating system by which local commands run."""

from __future__ import annotations

import os
import pwd
import socket
import struct
from typing import Final

PEER: Final = struct.Struct("iII")  # process, user and group of a local peer


def account_name(uid: int) -> str:
    """Return the name of an account, or its number if it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # as in most containers
        return f"uid {uid}"


def own_account() -> str:
    """Return the account by which this process was started."""
    return account_name(os.getuid())


def peer_account(connection: socket.socket) -> str:
    """Return the account of the process that opened a Unix socket. Raises OSError."""
    sent = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    return account_name(PEER.unpack(sent)[1])
