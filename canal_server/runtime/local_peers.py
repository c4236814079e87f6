"""Who is at the other end of a Unix socket, as the kernel knows it."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Final

from canal_server.runtime.accounts import account_name

_PEER: Final = struct.Struct("iII")  # process, user and group


def peer_account(connection: socket.socket) -> str:
    """Return the account of the process that opened the socket. Raises OSError."""
    _, uid, _ = _peer(connection)
    return account_name(uid)


def paused_peer_text(connection: socket.socket) -> str:
    """Return that the process is paused, and the remedy; empty when it is not.

    Raises OSError.
    """
    pid, _, _ = _peer(connection)
    try:
        # The state is a letter after the name, which may contain anything.
        status = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""  # it is in another container, or has ended
    if status[:1] not in ([b"T"], [b"t"]):
        return ""
    how = "SIGSTOP" if status[0] == b"T" else "a debugger"
    return f"its process {pid} is paused ({how}); resume it with kill -CONT {pid}"


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    sent = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, gid = _PEER.unpack(sent)
    return pid, uid, gid
