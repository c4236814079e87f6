"""Where alarms go: the log, a web service, a command."""

from __future__ import annotations

import http.server
import json
import logging
import shlex
import socket
import sys
import threading
from dataclasses import replace

import pytest

from canal_server.alarms import alarm_hooks
from canal_server.alarms.alarm_hooks import Alarm, CommandHook, LogHook, WebhookHook
from canal_server.errors import CanalError

ALARM = Alarm(
    state="raised",
    destination="shop",
    kind="failed",
    text="Access denied; it's \u7d05",
    about="",
    time_ms=1_700_000_000_000,
    server="host-1",
)
FIELDS = {
    "state": "raised",
    "destination": "shop",
    "kind": "failed",
    "text": ALARM.text,
    "about": "",
    "time_ms": 1_700_000_000_000,
    "server": "host-1",
}


def test_log(caplog):
    """A raised alarm is a warning with a name, a resolved one is none."""
    caplog.set_level(logging.INFO)
    LogHook().send(ALARM)
    assert f"alarm: destination shop: failed: {ALARM.text}" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING
    LogHook().send(replace(ALARM, state="resolved"))
    assert caplog.records[1].getMessage().startswith("alarm resolved: destination shop")


@pytest.fixture
def service():
    """Give a web service, and the list of what it got."""
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        """Answers by the path."""

        def do_POST(self):  # the library's name
            """Keep the body."""
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(int(self.path[1:4]))
            self.end_headers()

        def log_message(self, *_):
            """Write nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    server.server_close()
    thread.join()


def test_webhook(service):
    """It gets the fields as JSON."""
    url, got = service
    WebhookHook(f"{url}/200").send(ALARM)
    assert got == [FIELDS]


@pytest.mark.parametrize("status", [400, 503])
def test_a_webhook_that_refuses(service, status):
    """The answer is in the error; the URL, which may have a secret, is not."""
    url, _ = service
    with pytest.raises(CanalError, match=f"answered {status}") as caught:
        WebhookHook(f"{url}/{status}?token=hidden").send(ALARM)
    assert "hidden" not in str(caught.value)


def test_a_redirect_is_no_success(service):
    """It is not followed, as the alarm would be lost on its way."""
    url, got = service
    with pytest.raises(CanalError, match="answered 302"):
        WebhookHook(f"{url}/302").send(ALARM)
    assert len(got) == 1


def test_secrets_of_the_url(service):
    """A user and a password are sent as a header, and are in no error."""
    url, got = service
    with_login = url.replace("://", "://ops:hidden@")
    WebhookHook(f"{with_login}/200").send(ALARM)
    assert got == [FIELDS]
    with pytest.raises(CanalError) as caught:
        WebhookHook("http://ops:hidden@127.0.0.1:1/").send(ALARM)
    assert "hidden" not in str(caught.value)


def test_something_else_answers():
    """What is no HTTP is a failure like others."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"no HTTP at all\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        with pytest.raises(CanalError, match=f"127.0.0.1:{port}/: no HTTP at all"):
            WebhookHook(f"http://127.0.0.1:{port}/").send(ALARM)
        thread.join()


def test_a_webhook_that_is_not_there():
    """The reason is in the error."""
    with pytest.raises(CanalError, match="refused"):
        WebhookHook("http://127.0.0.1:1/").send(ALARM)


def python(code) -> str:
    """Return a command that runs some code."""
    return shlex.join([sys.executable, "-c", code])


def test_command(tmp_path):
    """It gets the fields on its standard input and as variables."""
    out = tmp_path / "out"
    code = (
        "import os, sys; open(sys.argv[1], 'w').write(sys.stdin.read() + '|' +"
        " os.environ['CANAL_ALARM_STATE'] + os.environ['CANAL_ALARM_TEXT'])"
    )
    CommandHook(f"{python(code)} {shlex.quote(str(out))}").send(ALARM)
    body, _, variables = out.read_text().partition("|")
    assert json.loads(body) == FIELDS
    assert variables == f"raised{ALARM.text}"


def test_no_shell(tmp_path):
    """Texts of alarms and the command itself are not read by a shell."""
    CommandHook(f"/bin/echo x; touch {tmp_path}/made").send(ALARM)
    assert not (tmp_path / "made").exists()


def test_a_command_that_fails(monkeypatch):
    """Status and last line, a missing program and a time-out are in the error."""
    code = "print('first'); print('no route'); raise SystemExit(3)"
    with pytest.raises(CanalError, match="exit status 3: no route"):
        CommandHook(python(code)).send(ALARM)
    with pytest.raises(CanalError, match="No such file"):
        CommandHook("/nowhere/at/all").send(ALARM)
    monkeypatch.setattr(alarm_hooks, "TIMEOUT_S", 0.01)
    with pytest.raises(CanalError, match="did not end within"):
        CommandHook(python("import time; time.sleep(60)")).send(ALARM)
