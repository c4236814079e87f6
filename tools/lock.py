"""Pins all dependencies, with the hashes of their files: `make lock`.

Writes deploy/locks: `server.txt` is what the server runs with, `dev.txt` what the tests
run with, all extras included, and `build.txt` what the image is built with. They hold
for Python 3.11 and later on x86-64 and ARM64. Versions that are pinned stay as they
are: `--upgrade` pins the newest ones, `--upgrade-package NAME` that of one dependency.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
LOCKS = "deploy/locks"
# Describes the image while that is built.
IMAGE_TOOL = "cyclonedx-bom"
# The files name no index: they hold for every mirror.
COMPILE = (
    "compile",
    "--quiet",
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--custom-compile-command=make lock",
)


def build_requirements() -> list[str]:
    """Return what pyproject.toml requires for building the image."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = tables["project"]["optional-dependencies"]["dev"]
    return [
        *tables["build-system"]["requires"],
        *(each for each in tools if Requirement(each).name == IMAGE_TOOL),
    ]


def main(options: Sequence[str]) -> int:
    """Write the three files with these options of uv; returns the exit status."""
    server, dev, build = (f"{LOCKS}/{name}.txt" for name in ("server", "dev", "build"))
    # The tests run with the versions that the server is shipped with.
    sources = {
        server: ["pyproject.toml"],
        dev: ["pyproject.toml", "--extra=dev", f"--constraint={server}"],
        build: ["-", f"--constraint={dev}"],
    }
    for lock, source in sources.items():
        command = [sys.executable, "-m", "uv", "pip", *COMPILE, *source]
        done = subprocess.run(
            [*command, f"--output-file={lock}", *options],
            input="\n".join(build_requirements()),
            cwd=ROOT,
            text=True,
            check=False,
        )
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
