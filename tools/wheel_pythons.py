"""The Pythons of this machine for which wheels can be built."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_CLASSIFIER = "Programming Language :: Python :: "
_ASK = """
import json, sys, sysconfig
print(json.dumps([list(sys.version_info[:2]), sysconfig.get_path("include")]))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python with the headers that compiled modules need."""

    version: str  # such as 3.11
    program: Path

    @property
    def tag(self) -> str:
        """How file names of wheels name it, such as cp311."""
        return "cp" + self.version.replace(".", "")


def supported_versions() -> list[str]:
    """Return the versions that the package is tested with, such as 3.11."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [
        each.removeprefix(_CLASSIFIER)
        for each in project["classifiers"]
        if re.fullmatch(re.escape(_CLASSIFIER) + r"3\.\d+", each)
    ]


def interpreter(version: str) -> Interpreter | None:
    """Return a Python of this version, on PATH or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    # A file on PATH may be pyenv's, which fails if another version is chosen.
    on_path = shutil.which(f"python{version}")
    for each in (
        *([Path(on_path)] if on_path else []),
        *sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True),
    ):
        if _is_usable(each, version):
            return Interpreter(version, each)
    return None


def _is_usable(program: Path, version: str) -> bool:
    asked = subprocess.run(
        [program, "-c", _ASK], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        return False
    found, include = json.loads(asked.stdout)
    return f"{found[0]}.{found[1]}" == version and Path(include, "Python.h").exists()
