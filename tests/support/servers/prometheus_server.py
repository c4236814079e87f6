"""A real Prometheus from Debian's package, which scrapes each second."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from server_packages import package_tree
from servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_S = 60.0
POLL_S = 0.1


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query; empty while it does not answer."""
        query = urllib.parse.urlencode({"query": expression})
        return list(self._get(f"/api/v1/query?{query}")["result"])

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of a query as soon as there is one."""
        give_up_at = time.monotonic() + WAIT_S
        while time.monotonic() < give_up_at:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                if found := self.query(expression):
                    return found
            time.sleep(POLL_S)
        raise AssertionError(f"no result for {expression}")

    def metadata(self) -> dict[str, str]:
        """Return the type of each metric that was scraped."""
        return {
            name: each[0]["type"]
            for name, each in self._get("/api/v1/metadata").items()
        }

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}{path}", timeout=WAIT_S) as answer:
            return json.load(answer)["data"]


def promtool(*args: str, text: bytes | None = None) -> str:
    """Run promtool and return its output; fails if it finds a problem."""
    tree = package_tree("prometheus", "prometheus")
    done = subprocess.run(
        [*_loader(tree), str(tree / "usr/bin/promtool"), *args],
        input=text,
        capture_output=True,
        check=False,
    )
    output = (done.stdout + done.stderr).decode()
    assert done.returncode in {0, 3}, output  # 3: advice on names
    return output


@contextlib.contextmanager
def prometheus(
    folder: Path, *targets: int, rules: Path | None = None
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes these ports of the loopback interface."""
    tree = package_tree("prometheus", "prometheus")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [
            {
                "job_name": "canal",
                "static_configs": [
                    {"targets": [f"127.0.0.1:{port}" for port in targets]}
                ],
            }
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *_loader(tree),
                str(tree / "usr/bin/prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(port)
    finally:
        process.kill()
        process.wait()


def _loader(tree: Path) -> list[str]:
    """Return the dynamic loader of the tree, for a program of it."""
    loader = next(
        each
        for each in (*tree.glob("lib/*/ld-linux-*"), *tree.glob("usr/lib/*/ld-linux-*"))
    )
    return [
        str(loader),
        "--library-path",
        f"{loader.parent}:{tree}/usr/lib/{loader.parent.name}",
    ]
