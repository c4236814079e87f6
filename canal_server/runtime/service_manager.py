"""Reports to systemd, or to another service manager, that the server is ready or stops.

The manager names a socket in the variable NOTIFY_SOCKET (sd_notify); without it nothing
is sent.
"""

from __future__ import annotations

import os
import socket
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

_VARIABLE: Final = "NOTIFY_SOCKET"


def notify(state: str, status: str = "") -> None:
    """Send a state, and a line for people. Raises nothing: the manager is not vital."""
    address = os.environ.get(_VARIABLE, "")
    if address[:1] not in {"/", "@"}:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # a socket without a file
    text = f"{state}\nSTATUS={status}" if status else state
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(address)
            sender.sendall(text.encode())
    except OSError:
        return
