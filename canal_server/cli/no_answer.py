"""What a command reports about a server that accepts connections and does not answer.

The timeout of the connection ends the command; this is printed long before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from canal_server.config.load import load_data_dir
from canal_server.daemon.control import paused_text
from canal_server.errors import CanalError
from canal_server.model.quoted import LINE_MAX, printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

ANSWER_S: Final = 5.0  # after which a missing answer is reported


def no_answer_text(args: argparse.Namespace) -> str:
    """Return that the server does not answer, and why, as far as this machine knows."""
    why = ""
    if args.own_conf is not None:
        with contextlib.suppress(CanalError):
            why = paused_text(load_data_dir(args.own_conf, os.environ))
    why = why or "it is stuck or paused, or its machine is very busy or unreachable"
    return f"{args.host}:{args.port} does not answer: {why}"


@contextlib.contextmanager
def reported(args: argparse.Namespace) -> Iterator[None]:
    """Print on standard error if the block, which asks the server, takes long."""
    answered, lock = threading.Event(), threading.Lock()

    def watch() -> None:
        if answered.wait(ANSWER_S):
            return
        text = printable(no_answer_text(args), LINE_MAX)
        with lock:
            if not answered.is_set():
                print(f"canal-server {args.command}: {text}", file=sys.stderr)

    threading.Thread(target=watch, name="no-answer", daemon=True).start()
    try:
        yield
    finally:
        with lock:  # afterwards the result is all that is printed
            answered.set()
