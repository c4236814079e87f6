"""Lines of the log: as JSON, and not without end for what clients cause."""

from __future__ import annotations

import datetime as dt
import io
import json
import logging

from canal_server.cli.log_lines import ClientThrottle, JsonFormatter
from canal_server.cli.start import log_to
from canal_server.runtime.log_context import log_about


def lines_of(messages):
    """Return the log lines for messages of `thread`, `position`, `text`."""
    root, output = logging.getLogger(), io.StringIO()
    handler, level = logging.StreamHandler(output), root.level
    log_to("info", handler)
    root.removeHandler(handler)
    root.setLevel(level)
    for thread, position, text in messages:
        record = logging.LogRecord("a", logging.INFO, "", position, "%s", (text,), None)
        record.threadName = thread
        handler.handle(record)
    return output.getvalue().splitlines()


def test_a_client_cannot_fill_the_disk():
    """A message that clients cause repeatedly is suppressed, and the log says so."""
    found = lines_of(("client-127.0.0.1:1", 1, str(n)) for n in range(100_000))
    assert len(found) == 200
    assert found[198].endswith("] 198")
    assert found[199].endswith("] 199 (similar messages are suppressed for 60 s)")


def test_others_are_logged():
    """Messages of other lines of code, or of our own threads, are not affected."""
    flood = [("client-127.0.0.1:1", 1, "again")] * 1_000
    other = ("client-127.0.0.1:2", 2, "other")
    ours = [("pump-example", 1, "ours")] * 300
    found = lines_of([*flood, other, *ours])
    assert len(found) == 200 + 1 + 300
    assert found[200].endswith("] other")


def test_a_later_message_says_how_many_were_left_out():
    """With the next period messages are logged again."""
    now_s = 0.0
    throttle = ClientThrottle(lambda: now_s)

    def logged():
        record = logging.LogRecord("a", logging.INFO, "", 1, "m", (), None)
        record.threadName = "client-a"
        return record.getMessage() if throttle.filter(record) else ""

    assert sum(bool(logged()) for _ in range(1_000)) == 200
    now_s = 60.0
    assert logged() == "m (800 similar messages suppressed)"
    assert logged() == "m"


def test_json():
    """A line is an object with what it is about; text from outside stays inside it."""
    formatter = JsonFormatter()

    def found(message, level=logging.INFO, **attributes):
        record = logging.LogRecord("a.b", level, "", 1, message, (), None)
        record.__dict__.update(attributes)
        line = formatter.format(record)
        assert "\n" not in line
        return json.loads(line)

    shown = found("one\ntwo \x1b[31m")
    assert shown["message"] == "one\ntwo \x1b[31m"
    assert (shown["level"], shown["logger"]) == ("info", "a.b")
    assert dt.datetime.fromisoformat(shown["time"]).tzinfo
    assert "destination" not in shown
    log_about("shop", 1001)
    try:
        shown = found("x", logging.WARNING, message_name="ring-is-full", batch=7)
    finally:
        log_about("")
    assert (shown["destination"], shown["client_id"]) == ("shop", 1001)
    assert (shown["name"], shown["batch"]) == ("ring-is-full", 7)


def test_json_of_an_exception():
    """A traceback is one text in the object."""
    error = ValueError("no")
    info = (ValueError, error, None)
    record = logging.LogRecord("a", logging.ERROR, "", 1, "m", (), info)
    shown = json.loads(JsonFormatter().format(record))
    assert shown["exception"].endswith("ValueError: no")
