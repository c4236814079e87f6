"""Changes as requests to a real HTTP server, which fails now and then."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import subprocess
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from change_messages import Maker, changes_of

from canal_server.client.consume import Consumer, DeadLetters
from canal_server.client.consume import consumer as consumer_module
from canal_server.client.handlers import Rejected, RetryLater
from canal_server.client.handlers.webhook import Webhook, seconds_of
from canal_server.errors import CanalError

LOST = 299  # the request is executed, and the answer lost
SECRET = "geheim-4711"
NOW = 1_764_150_000.0


class Receiver:
    """A server on a free port; `answer` decides about each request."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.ids: list[int] = []  # that were accepted
        self.connections = 0
        self.answer = lambda ids: 200
        self.headers: dict[str, str] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                receiver.connections += 1
                super().setup()

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers), body))
                ids = [each["after"]["id"] for each in json.loads(body)["changes"]]
                status = receiver.answer(ids)
                if status is not None and status < 300:
                    receiver.ids += ids
                if status in (None, LOST):  # the connection breaks
                    self.close_connection = True
                    return
                text = f"status {status}\n".encode()
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def close(self) -> None:
        """End it."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver():
    """Give a server."""
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def _short_delays(monkeypatch):
    """Delays are as in the product, but shorter."""
    monkeypatch.setattr(consumer_module, "_FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(consumer_module, "_DELAY_MAX_S", 0.002)


@pytest.fixture
def hook(receiver):
    """Return a function that makes a handler for the server."""
    made = []

    def make(url=None, **options) -> Webhook:
        made.append(Webhook(url or receiver.url, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def maker():
    """Give what makes messages."""
    return Maker()


def send(handler, message) -> None:
    """Handle a message and flush."""
    for change in changes_of(message):
        handler.handle(change)
    handler.flush()


def test_a_request(receiver, hook, maker):
    """Changes arrive in one request, on a connection that stays open."""
    handler = hook(receiver.url + "?a=b")
    send(handler, maker.inserts(1, 1, 2))
    send(handler, maker.inserts(2, 3))
    handler.flush()  # there is nothing to send
    assert receiver.ids == [1, 2, 3]
    assert receiver.connections == 1
    (path, headers, body), _ = receiver.requests
    assert path == "/hook?a=b"
    assert headers["Content-Type"] == "application/json"
    assert "webhook-signature" not in headers
    first = json.loads(body)["changes"][0]
    assert (first["kind"], first["table"], first["position"]) == (
        "insert", "orders", 110
    )  # fmt: skip


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        (SECRET, SECRET.encode()),
        ("whsec_" + base64.b64encode(b"\x00\xff key").decode(), b"\x00\xff key"),
    ],
)
def test_the_signature(receiver, hook, maker, secret, key):
    """The receiver can compute it from id, timestamp and body, as the standard says."""
    handler = hook(secret=secret, clock=lambda: NOW)
    send(handler, maker.inserts(1, 1))
    ((_, headers, body),) = receiver.requests
    assert headers["webhook-timestamp"] == "1764150000"
    signed = f"{headers['webhook-id']}.1764150000.".encode() + body
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert "." not in headers["webhook-id"]


def test_the_id(receiver, hook):
    """The same changes have the same id when they are sent again, others another."""
    handler = hook()
    for message in (
        Maker().inserts(1, 1),
        Maker().inserts(9, 1),
        Maker().inserts(1, 2),
    ):
        send(handler, message)
    first, again, other = (headers["webhook-id"] for _, headers, _ in receiver.requests)
    assert first == again != other


def test_batches(receiver, hook, maker):
    """The consumer flushes when a batch is full."""
    consumer = Consumer(hook(batch=2))
    assert consumer.process(maker.inserts(1, 1, 2, 3, 4, 5))
    sizes = [len(json.loads(body)["changes"]) for *_, body in receiver.requests]
    assert sizes == [2, 2, 1]
    assert receiver.ids == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (408, RetryLater), (425, RetryLater), (429, RetryLater), (502, RetryLater),
        (503, RetryLater), (504, RetryLater), (500, CanalError), (501, CanalError),
        (400, Rejected), (404, Rejected), (410, Rejected), (302, Rejected),
    ],
)  # fmt: skip
def test_answers(receiver, hook, maker, status, error):
    """Each kind of answer has its error, with the status and the start of the text.

    The path is not shown, as it may be a secret.
    """
    receiver.answer = lambda ids: status
    handler = hook()
    with pytest.raises(CanalError) as caught:
        send(handler, maker.inserts(1, 1))
    assert type(caught.value) is error
    shown = f"{receiver.url.removesuffix('/hook')}/…"
    assert str(caught.value) == f"{shown} answered {status}: status {status}"
    handler.rollback()
    receiver.answer = lambda ids: 204
    send(handler, maker.inserts(1, 2))
    assert receiver.ids == [2]
    assert receiver.connections == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("17", 17), (formatdate(NOW + 60, usegmt=True), 60), ("", 0), ("soon", 0),
     (formatdate(NOW - 60, usegmt=True), 0)],
)  # fmt: skip
def test_retry_after(receiver, hook, maker, header, seconds):
    """The server says how long to wait: in seconds or as a date."""
    assert seconds_of(header, NOW) == seconds
    receiver.answer = lambda ids: 503
    receiver.headers = {"Retry-After": header}
    with pytest.raises(RetryLater) as caught:
        send(hook(clock=lambda: NOW), maker.inserts(1, 1))
    assert caught.value.after_s == seconds


def test_a_server_that_closed_an_idle_connection(receiver, hook, maker):
    """The request is sent again at once, on a new connection."""
    handler = hook()
    receiver.headers = {"Connection": "close"}
    send(handler, maker.inserts(1, 1))
    receiver.headers = {}
    send(handler, maker.inserts(2, 2))
    assert receiver.ids == [1, 2]


def test_a_connection_that_breaks(receiver, hook, maker):
    """Without an answer, the changes are repeated."""
    answers = iter([None, None, 200])
    receiver.answer = lambda ids: next(answers)
    handler = hook()
    for _ in range(2):
        with pytest.raises(RetryLater, match=r"http://127\.0\.0\.1"):
            send(handler, maker.inserts(1, 1))
        handler.rollback()
    send(handler, maker.inserts(1, 1))
    assert receiver.ids == [1]


def test_nobody_listens(hook, maker):
    """The error says so, without the password of the URL, its path and its query."""
    handler = hook("http://user:pa55@127.0.0.1:1/x?token=pa55")
    with pytest.raises(RetryLater) as caught:
        send(handler, maker.inserts(1, 1))
    assert str(caught.value) == "http://127.0.0.1:1/…: Connection refused"


def test_a_server_that_is_silent(receiver, hook, maker):
    """The time is limited."""
    answered = threading.Event()
    receiver.answer = lambda ids: answered.wait(30) and 200
    handler = hook(timeout_s=0.05)
    with pytest.raises(RetryLater, match="timed out"):
        send(handler, maker.inserts(1, 1))
    answered.set()


def test_authentication(receiver, hook, maker):
    """User and password of the URL are sent as Basic authentication."""
    handler = hook(receiver.url.replace("//", "//us%20er:p%40ss@"))
    send(handler, maker.inserts(1, 1))
    ((_, headers, _),) = receiver.requests
    sent = base64.b64decode(headers["Authorization"].removeprefix("Basic "))
    assert sent == b"us er:p@ss"


def test_a_certificate_that_is_not_trusted(receiver, hook, maker, tmp_path):
    """With https, the server has to prove who it is."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-keyout", key, "-out", certificate],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("no openssl")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    receiver.server.socket = context.wrap_socket(
        receiver.server.socket, server_side=True
    )
    handler = hook(receiver.url.replace("http:", "https:"))
    with pytest.raises(RetryLater, match=r"CERTIFICATE_VERIFY_FAILED|self.signed"):
        send(handler, maker.inserts(1, 1))
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("ftp://h/x", {}, "url: expected http://host/path"),
        ("h/x", {}, "url: expected http://host/path"),
        ("http://h", {"batch": 0}, "batch and timeout_s must be more than 0"),
        ("http://h", {"secret": "whsec_x!"}, "secret: expected Base64 after whsec_"),
    ],
)
def test_wrong_options(url, options, problem):
    """An option that cannot be used is refused, and its value not shown."""
    with pytest.raises(ValueError, match=problem) as caught:
        Webhook(url, **options)
    assert "x!" not in str(caught.value)


@pytest.mark.usefixtures("_short_delays")
def test_a_server_that_fails_now_and_then(receiver, hook, maker, tmp_path, rng):
    """Nothing is lost: a change arrives in its order, or is a dead letter with why.

    The server forgets answers, is overloaded, breaks, and refuses some changes.
    """
    poison = {number for number in range(400) if rng.random() < 0.02}

    def answer(ids):
        if rng.random() < 0.3:
            return rng.choice((None, 500, 503, 429))
        if poison.intersection(ids):
            return 422
        return LOST if rng.random() < 0.1 else 200

    receiver.answer = answer
    letters = DeadLetters(tmp_path / "dead.jsonl")
    consumer = Consumer(hook(batch=16), retries=30, dead_letters=letters)
    for start in range(0, 400, 40):
        assert consumer.process(maker.inserts(start, *range(start, start + 40)))
    letters.close()
    lines = letters.path.read_text().splitlines()
    dead = list(map(json.loads, lines))
    assert [each["after"]["id"] for each in dead] == sorted(poison)
    for each in dead:
        assert each["error"]["type"] == "Rejected"
        assert "answered 422" in each["error"]["message"]
    good = [number for number in range(400) if number not in poison]
    assert list(dict.fromkeys(receiver.ids)) == good
