"""Opens a TCP connection so that `stop` ends the attempt."""

from __future__ import annotations

import os
import select
import socket
from errno import EINPROGRESS
from typing import TYPE_CHECKING

from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from canal_server.client.connection.interruption import Interrupt


def open_socket(
    host: str, port: int, timeout_s: float, interrupt: Interrupt
) -> socket.socket:
    """Connect to the first address of a host that accepts; `timeout_s` for each.

    Raises OSError, of the last address: InterruptedError, TimeoutError, others.
    """
    last: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            _connect(sock, address, Deadline(timeout_s), interrupt)
        except InterruptedError:
            sock.close()
            raise
        except OSError as error:
            sock.close()
            last = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise last or OSError(f"{host} has no address")


def _connect(
    sock: socket.socket, address: object, deadline: Deadline, interrupt: Interrupt
) -> None:
    sock.setblocking(False)
    failure = sock.connect_ex(address)  # type: ignore[arg-type]  # of getaddrinfo
    if failure == EINPROGRESS:
        interrupt.wait(sock, select.POLLOUT, deadline)
        failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failure:
        raise OSError(failure, os.strerror(failure))
