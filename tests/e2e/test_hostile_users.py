"""Damaged requests of who has logged in, at each port of a server with a real source.

Whatever is sent, nothing crashes, nothing is answered that rights hide, memory does not
grow, and others are served meanwhile.
"""

from __future__ import annotations

import base64
import contextlib
import random
import re
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from admin_connector import Connector
from fix_pipeline import DESTINATION, write_properties
from fix_random import longer
from fix_server import Wire, received_after
from fix_user_limits import (
    HIDDEN,
    ORDERS,
    PASSWORD,
    SECRET,
    client_of,
    write_secrets,
)
from hostile_requests import (
    AdminRequests,
    ClientRequests,
    HttpRequests,
    RangeRequests,
)

from canal_server.client.range_client import RangedClient
from canal_server.daemon.control import ask
from canal_server.protocol.auth import scramble, stored_form
from canal_server.protocol.framing import frame
from canal_server.protocol.packets import (
    Ack,
    ClientAuth,
    Handshake,
    PacketType,
    encode_packet,
)
from canal_server.protocol.protobuf import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from ssl import SSLContext

    from canal_server.protocol.range_messages import RangePosition

ATTACKERS = 3
PHASES = 3  # memory grows in the first ones, while threads and caches are made
ROUNDS = 40  # connections of each attacker in a phase
ROUNDS_CLEAR = 10  # each waits until the server knows that it does not use TLS
REQUESTS_MAX = 12  # of a connection
SILENCE_S = 0.3  # after which a peer of HTTP, whose answer may have no end, closes
READS_MAX = 20  # of an answer of HTTP
GROWTH_MIB = 48.0  # in the last phase
SPARE = "spare"
ADMIN = ("manager", "pass-of-manager")
# What only the other users may know: of `all`, and of the settings.
FILTER = "mark-of-a-filter"
HASHES = [stored_form(each).encode() for each in (PASSWORD, ADMIN[1])]
OF_NOBODY = [*HASHES, PASSWORD.encode(), b"root:", b"PRIVATE KEY", b"Traceback"]
OF_OTHERS = [*OF_NOBODY, FILTER.encode(), SECRET.encode(), b"77777"]


class Scene:
    """The ports of a server, and positions between which it has changes."""

    def __init__(self, pipeline: Any, authority: Any, mode: str) -> None:
        self.pipeline = pipeline
        # How those are connected who do no harm.
        self.options: dict[str, Any] = {"tls": True, "tls_ca_file": authority.ca_file}
        if mode == "clear":
            self.options = {"tls": False, "tls_ca_file": ""}
        self.context: SSLContext = authority.client_context()
        status = ask(pipeline.conf, "status")
        self.http_port = int(str(status["http_port"]))
        self.metrics_port = int(str(status["metrics_port"]))
        self.admin_port = int(str(status["admin_port"]))
        self.positions = self._positions()
        schema = pipeline.schema
        self.tables = ((schema, "orders"), (schema, "x"), ("mysql", "user"))
        self.filters = ("", rf"{schema}\..*", rf"{schema}\.orders", r".*\..*", "(x|y")

    def _positions(self) -> list[RangePosition]:
        with RangedClient(
            "127.0.0.1", self.pipeline.server_port, "all", PASSWORD, **self.options
        ) as client:
            start = client.locate(DESTINATION, "latest")
            write_secrets(self.pipeline)
            end = client.locate(DESTINATION, "latest")
        return [start, end]

    # --- one connection each; they return all that was answered -----------------------

    def frames_clear(self, rng: random.Random) -> bytes:
        """Send requests of clients in clear text."""
        return self._frames(self._client_requests(rng), rng, None)

    def frames_tls(self, rng: random.Random) -> bytes:
        """Send requests of clients with TLS."""
        return self._frames(self._client_requests(rng), rng, self.context)

    def ranges(self, rng: random.Random) -> bytes:
        """Send requests of ranged reads."""
        requests = RangeRequests(
            rng, DESTINATION, self.filters, self.tables, self.positions
        )
        return self._frames(requests, rng, self.context)

    def _client_requests(self, rng: random.Random) -> ClientRequests:
        return ClientRequests(rng, DESTINATION, self.filters, ("5", "6"))

    def _frames(
        self, requests: ClientRequests, rng: random.Random, tls: SSLContext | None
    ) -> bytes:
        with Wire(self.pipeline.server_port, tls) as wire:
            seed = decode(Handshake, wire.packet().body).seeds
            auth = ClientAuth("limited", scramble(PASSWORD, seed))
            wire.send(frame(encode_packet(PacketType.CLIENTAUTHENTICATION, auth)))
            assert not decode(Ack, wire.packet().body).error_code
            return received_after(wire.sock, _some(rng, requests.frame))

    def http(self, rng: random.Random) -> bytes:
        """Send a request to the page and the REST interface."""
        user = rng.choice(("limited", "operator"))
        base = "/api/v1/destinations"
        where = f"{base}/{rng.choice((DESTINATION, SPARE))}"
        paths: list[tuple[str, str, object]] = [
            ("GET", "/", None),
            ("GET", "/api/v1/status", None),
            ("GET", "/api/v1/log-levels", None),
            ("GET", base, None),
            ("GET", where, None),
            ("GET", f"{where}/throughput", None),
            ("GET", f"{where}/positions", None),
            ("GET", f"{where}/subscriptions", None),
            ("GET", f"{where}/tables", None),
            ("GET", f"{where}/tables/{self.pipeline.schema}.orders/history", None),
            ("GET", f"{where}/tail", None),
            ("GET", f"{where}/tail?table=.*%5C..*", None),
            ("PUT", "/api/v1/log-levels", {"level": "info", "destination": SPARE}),
            ("POST", f"{where}/seek", {"to": "latest", "clients": [5]}),
            ("POST", f"{where}/seek", {"to": "oldest", "dry_run": True}),
            ("POST", f"{where}/start", {}),
            ("POST", f"{where}/stop", {}),
            ("DELETE", f"{where}/clients/5", None),
        ]
        return self._http(self.http_port, user, rng, paths)

    def metrics(self, rng: random.Random) -> bytes:
        """Send a request to the port for metrics."""
        paths: list[Any] = [
            ("GET", "/metrics", None),
            ("GET", "/", None),
            ("POST", "/x/y", {}),
        ]
        user = rng.choice(("limited", "operator"))
        found = self._http(self.metrics_port, user, rng, paths)
        assert f'destination="{DESTINATION}"'.encode() not in found
        return found

    def _http(
        self, port: int, user: str, rng: random.Random, paths: list[Any]
    ) -> bytes:
        login = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
        requests = HttpRequests(rng, f"Basic {login}", paths)
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.settimeout(SILENCE_S)
            found = bytearray()
            with contextlib.suppress(OSError):
                sock.sendall(requests.request())
                for _ in range(READS_MAX):
                    found += sock.recv(1 << 16)
            return bytes(found)

    def admin(self, rng: random.Random) -> bytes:
        """Send requests of canal-admin."""
        requests = AdminRequests(rng, SPARE, DESTINATION)
        with contextlib.closing(Connector(self.admin_port)) as connector:
            assert not connector.log_in(*ADMIN).code
            return received_after(connector.sock, _some(rng, requests.frame))


MODES: dict[str, tuple[Callable[[Scene, random.Random], bytes], list[bytes]]] = {
    # In requests of clients, nobody names what is hidden, so no answer has it.
    "clear": (Scene.frames_clear, [*OF_OTHERS, *HIDDEN]),
    "tls": (Scene.frames_tls, [*OF_OTHERS, *HIDDEN]),
    "ranges": (Scene.ranges, [*OF_OTHERS, *HIDDEN]),
    "http": (Scene.http, OF_OTHERS),
    "metrics": (Scene.metrics, OF_OTHERS),
    "admin": (Scene.admin, [*OF_NOBODY, SECRET.encode(), b"77777"]),
}


def _some(rng: random.Random, make: Callable[[], bytes]) -> bytes:
    return b"".join(make() for _ in range(rng.randint(1, REQUESTS_MAX)))


def check_hidden(found: bytes, hidden: list[bytes]) -> None:
    """Check that an answer has nothing of what is hidden."""
    for each in hidden:
        at = found.find(each)
        around = found[max(0, at - 300) : at + 100]
        if at >= 0:  # an assertion would show a part of it only
            raise AssertionError(f"{each!r} in {around!r}")


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


@pytest.fixture(params=MODES)
def mode(request):
    """Give the name of what is attacked, and how."""
    return request.param


@pytest.fixture
def scene(limited_pipeline, authority, add_user, monkeypatch, mode):
    """Give a server with all of its ports, and with a second destination."""
    for name in ("METRICS_PULL", "ADMIN"):
        monkeypatch.setenv(f"CANAL_{name}_PORT", "0")
    pipeline = limited_pipeline
    pipeline.main_settings |= {
        "canal.destinations": f"{DESTINATION}, {SPARE}",
        "canal.admin.user": ADMIN[0],
        "canal.admin.passwd": stored_form(ADMIN[1]),
        # Where both are accepted, who is slow to begin TLS is served in clear text.
        "canal.tls.required": str(mode != "clear").lower(),
    }
    pipeline.configure({})
    settings = pipeline.settings | {"canal.instance.filter.regex": r"nothing\..*"}
    write_properties(pipeline.conf / SPARE / "instance.properties", settings)
    add_user(pipeline.conf, "operator", "--operate", SPARE)
    pipeline.start()
    return Scene(pipeline, authority, mode)


class Attackers:
    """Threads that attack until each has had its rounds; the first error counts."""

    def __init__(self, scene: Scene, rng: random.Random, mode: str) -> None:
        self._attack, self._hidden = MODES[mode]
        self._scene = scene
        self.rounds = longer(ROUNDS_CLEAR if mode == "clear" else ROUNDS)
        self._is_over = threading.Event()
        self.answered = 0
        self.errors: list[BaseException] = []
        seeds = [rng.getrandbits(64) for _ in range(ATTACKERS)]
        self._threads = [
            threading.Thread(target=self._run, args=(seed,)) for seed in seeds
        ]
        for each in self._threads:
            each.start()

    def is_one_alive(self) -> bool:
        """Return whether there are rounds left."""
        return any(each.is_alive() for each in self._threads)

    def join(self) -> None:
        """Have them end soon; raises the first error."""
        self._is_over.set()
        for each in self._threads:
            each.join()
        if self.errors:
            raise self.errors[0]

    def _run(self, seed: int) -> None:
        own = random.Random(seed)
        for number in range(self.rounds):
            of_round = own.getrandbits(64)
            try:
                found = self._attack(self._scene, random.Random(of_round))
                check_hidden(found.replace(ORDERS.encode(), b""), self._hidden)
            except BaseException as error:  # noqa: BLE001  # raised by `join`
                error.add_note(f"round {number}, seed {of_round}")
                self.errors.append(error)
                self._is_over.set()
            else:
                self.answered += bool(found)
            if self._is_over.is_set():
                return


@contextlib.contextmanager
def attacked(scene: Scene, rng: random.Random, mode: str) -> Iterator[Attackers]:
    """Attack as long as the context lives, or until all rounds are over."""
    attackers = Attackers(scene, rng, mode)
    try:
        yield attackers
    finally:
        attackers.join()


class Honest:
    """Somebody with all rights, who is served."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self.sent = 0

    def exchange(self, changes: Iterator[Any]) -> None:
        """Write a row of what is hidden, and wait for it; none may be left out."""
        number = 100 + self.sent
        schema, secret = self._pipeline.schema, f"'{SECRET}'"
        self._pipeline.source.execute(
            f"INSERT INTO {schema}.orders (id, card, email, pin)"
            f" VALUES ({number}, {secret}, {secret}, 77777)",
            f"INSERT INTO {schema}.secrets VALUES ({number}, {secret}, 'y')",
        )
        found = next(
            each.after
            for each in changes
            if each.table == "secrets" and each.after and each.after["id"] >= 100
        )
        assert (found["id"], found["codename"]) == (number, SECRET)
        self.sent += 1


@pytest.mark.timeout(longer(300))
def test_hostile_requests(scene, authority, rng, mode):
    """Damaged requests do no harm and show nothing; a client gets all rows."""
    pipeline = scene.pipeline
    honest = Honest(pipeline)
    resident = []
    with client_of(pipeline, authority, "all", 9, **scene.options) as client:
        client.subscribe(rf".*\..*,{FILTER}")
        changes = iter(client)
        for _ in range(PHASES):
            with attacked(scene, rng, mode) as attackers:
                while attackers.is_one_alive():
                    honest.exchange(changes)
            honest.exchange(changes)
            assert attackers.answered > attackers.rounds
            resident.append(rss_mib(pipeline.process.pid))
    print(f"{mode}: {honest.sent} rows meanwhile, resident MiB {resident}")
    assert resident[-1] - resident[-2] < GROWTH_MIB
    log = "".join(pipeline.process.log)
    assert "Traceback" not in log
    assert "internal error" not in log
    pipeline.stop()
