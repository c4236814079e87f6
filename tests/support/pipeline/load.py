"""Writing and reading until the server goes, and what may come again after it."""

from __future__ import annotations

import json
import threading

from fix_pipeline import UNIT_S

from canal_server.errors import ClientError


def allow_from(cursor, checker):
    """Note for the checker that the stream begins again, and exactly where.

    `cursor` is the JSON of a stored cursor, or None.
    """
    position = cursor and (
        cursor["postion"]["journalName"],
        cursor["postion"]["position"],
    )
    if position in checker.resumes_at:
        begin = checker.resumes_at[position]
        checker.resume(begin, begin)
    else:
        # The position of a subscription from which nothing was delivered or acked.
        checker.resume()


def stored_cursor(pipeline):
    """Return the cursor in meta.dat, None without one."""
    if not pipeline.meta_file.exists():
        return None
    (client,) = json.loads(pipeline.meta_file.read_text())["clientDatas"]
    return client.get("cursor")


class Load:
    """Writes transactions in the background until it is requested to end.

    As fast as it can, or with pauses where what reads them is to have some time.
    """

    def __init__(self, writer, pause_s=0.0):
        self.writer = writer
        self._pause_s = pause_s
        self._end = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            while not self._end.wait(self._pause_s):
                self.writer.write(5)
        except Exception as error:  # noqa: BLE001  # shown by the test's own thread
            self._error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        if self._error:
            raise self._error


def receive_until_broken(pipeline, checker, rng):
    """Take and ack messages until the server goes."""
    try:
        with pipeline.client() as client:
            while True:
                message = client.get(rng.randint(1, 200), UNIT_S)
                checker.take(message.entries)
                if message:
                    client.ack(message.id)
    except (OSError, ClientError):
        return  # a stopping server refuses, a killed one is not there
