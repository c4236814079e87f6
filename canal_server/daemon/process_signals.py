"""The signals that end a process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from canal_server.runtime.lifecycle import Stop

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Some tools send one signal twice: to the process, and to its group.
SAME_SIGNAL_S = 0.2


@contextlib.contextmanager
def signals(command: str = "start") -> Iterator[Callable[[Stop], str | None]]:
    """Handle the signals that end a process; a second one ends it at once.

    Yields a function that waits for a signal or a stop; it returns the signal's name
    or None. The handlers acquire no lock, because they may interrupt any line of this
    thread, even one that holds a lock.
    """
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    received: list[int] = []
    received_at_s = 0.0
    ended = f"canal-server {command}: ended by a second signal\n".encode()

    def on_signal(number: int, _: FrameType | None) -> None:
        nonlocal received_at_s
        now_s = time.monotonic()
        received.append(number)
        if len(received) == 1:
            received_at_s = now_s
        elif now_s - received_at_s >= SAME_SIGNAL_S:
            os.write(2, ended)
            os._exit(128 + number)

    def wait(stop: Stop) -> str | None:
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        poll.register(stop, select.POLLIN)
        while not received and not stop.requested():
            poll.poll()
            with contextlib.suppress(BlockingIOError):
                reader.recv(4096)
        return signal.Signals(received[0]).name if received else None

    before = {
        number: signal.signal(number, on_signal)
        for number in SIGNALS
        # `nohup` ignores it: then the process outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    }
    wakeup_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield wait
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()
