"""The audit: what is known fails it, and without data it is skipped, not passed.

pip-audit is the real one; it asks a server in this process, by OSV's protocol.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from audit import Finding, verdict
from lock import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSING = "http://127.0.0.1:1/"
OF_DJANGO = {"django": "PYSEC-2011-1"}
OF_OURS = OF_DJANGO | {"sqlglot": "PYSEC-2099-1"}

pytestmark = pytest.mark.slow


@contextmanager
def service(known: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Serve ids of vulnerabilities by package; gives the URL, and what was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            package = query["package"]
            asked.append(f"{package['name']}=={query['version']}")
            answer = {}
            if package["name"] in known:
                events = [{"introduced": "0"}, {"fixed": "99.1"}]
                ranges = [{"type": "ECOSYSTEM", "events": events}]
                affected = {"package": package, "ranges": ranges}
                answer["vulns"] = [
                    {"id": known[package["name"]], "affected": [affected]}
                ]
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", asked
        server.shutdown()


def audit(url: str) -> tuple[int, list[str]]:
    """Run the audit with a service; returns its status and the lines that it prints."""
    command = [sys.executable, str(ROOT / "tools/audit.py"), "-s", "osv"]
    done = subprocess.run(
        [*command, "--osv-url", url], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_nothing_known() -> None:
    """Without vulnerabilities it passes, after it asked for each pinned version."""
    with service(OF_DJANGO) as (url, asked):
        status, lines = audit(url)
    assert status == 0
    assert lines == [f"packages: {len(set(asked)) - 1}, vulnerabilities: 0"]
    server = (ROOT / "deploy/locks/server.txt").read_text()
    assert set(re.findall(r"^[\w.-]+==[\w.]+", server, re.MULTILINE)) <= set(asked)


def test_known() -> None:
    """A vulnerability fails it, and is named with the version that fixes it."""
    with service(OF_OURS) as (url, _):
        status, (known, counted, remedy) = audit(url)
    assert status == 1
    assert re.fullmatch(r"sqlglot [\d.]+: PYSEC-2099-1, fixed in 99\.1", known)
    assert counted.endswith(", vulnerabilities: 1")
    assert "make lock" in remedy


def test_no_data() -> None:
    """A service that knows no vulnerability at all is no audit."""
    with service({}) as (url, asked):
        reason = "the service knows no vulnerability of django==1.2"
        assert audit(url) == (0, [f"audit skipped: {reason}"])
    assert asked == ["django==1.2"]


def test_no_network() -> None:
    """A service that cannot be reached is no audit, and the reason is shown."""
    status, (line,) = audit(REFUSING)
    assert status == 0
    assert line.startswith("audit skipped: ")
    assert "Connection refused" in line


def test_accepted() -> None:
    """An accepted id is not reported, nor by another name; what was skipped is."""
    vulnerability = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": []}
    findings: list[Finding] = [
        {"name": "a", "version": "1", "vulns": [vulnerability]},
        {"name": "b", "skip_reason": "unknown: b"},
    ]
    line = "a 1: PYSEC-1, fixed in no version"
    assert verdict(findings, {}) == ([line], ["unknown: b"])
    assert verdict(findings, {"CVE-1": "a reason"}) == ([], ["unknown: b"])
    assert verdict(findings, {"PYSEC-1": "a reason"}) == ([], ["unknown: b"])
