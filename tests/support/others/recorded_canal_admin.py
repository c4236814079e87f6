"""Answers as a canal-admin 1.1.9 does that hands out settings.

The forms of the answers, with all their fields, were recorded from a canal-admin that
was built from its sources: settings, unchanged settings, an unknown server, a cluster
that does not exist, a wrong password.
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "/api/v1/config/"
INSTANCE = {
    "id": None,
    "clusterId": None,
    "canalCluster": None,
    "serverId": None,
    "nodeServer": None,
    "name": None,
    "content": None,
    "contentMd5": None,
    "status": None,
    "modifiedTime": None,
    "clusterServerId": None,
    "runningStatus": "0",
}
SERVER = {
    "id": 1,
    "clusterId": None,
    "serverId": 1,
    "name": "canal.properties",
    "status": None,
    "modifiedTime": "2026-11-27 10:08:11",
}


def hash_of(password: str) -> str:
    """Return hex(SHA1(SHA1(password)))."""
    return hashlib.sha1(hashlib.sha1(password.encode()).digest()).hexdigest()


def md5_of(text: str) -> str:
    """Return the sum by which a text counts as unchanged."""
    return hashlib.md5(text.encode()).hexdigest()


class RecordedCanalAdmin:
    """What it has, which a test may change, and the requests that it got."""

    def __init__(self, server: str, **instances: str) -> None:
        self.server = server
        self.instances = dict(instances)
        self.is_registered = True
        self.clusters: list[str] = []
        self.raw: bytes | None = None  # sent instead of each answer
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.user, self.passwd = "admin", hash_of("secret")
        self.port = 0

    def answer(self, path: str, query: dict[str, str], headers) -> object:
        """Return the answer to a request."""
        self.requests.append((path, query))
        if (headers["user"], headers["passwd"]) != (self.user, self.passwd):
            message = f"auth :{headers['user']} is failed"
            return {"code": 50000, "message": message, "data": None}
        kind, _, name = path.partition("/")
        data: dict[str, object] | None = None
        if kind == "server_polling":
            cluster = query["cluster"]
            if query["register"] == "1" and not query["md5"]:
                if cluster and cluster not in self.clusters:
                    message = f"auto cluster : {cluster} is not found."
                    return {"code": 50000, "message": message, "data": None}
                self.is_registered = True
            if self.is_registered and query["md5"] != md5_of(self.server):
                data = {**SERVER, "content": self.server}
        elif kind == "instances_polling" and self.is_registered:
            names = ",".join(self.instances)
            content = None if query["md5"] == md5_of(names) else names
            data = {**INSTANCE, "content": content}
        elif kind == "instance_polling" and name in self.instances:
            text = self.instances[name]
            content = None if query["md5"] == md5_of(text) else text
            data = {**INSTANCE, "id": 1, "name": name, "content": content}
        return {"code": 20000, "message": None, "data": data}

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[None]:
        """Serve on a port of the loopback interface, 0: any free one."""
        admin = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answer."""
                parts = urlsplit(self.path)
                pairs = parse_qs(parts.query, keep_blank_values=True)
                query = {name: values[0] for name, values in pairs.items()}
                path = unquote(parts.path.removeprefix(PREFIX))
                answer = admin.answer(path, query, self.headers)
                body = admin.raw or json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Write nothing to standard error."""

        with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()
