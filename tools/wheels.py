"""Builds what a release consists of: an sdist, and wheels that need no compiler.

    python tools/wheels.py [--python 3.11 …] [--native] [FOLDER]

There is a wheel for each supported Python that is found (`wheel_pythons`), and one for
arm64 where Debian's packages have that Python (`arm64_debian`), all built from the
sdist. auditwheel gives each the tag of the oldest C library that it runs with, and
twine checks what a package index would. What is missing is reported with the reason.

Exit status: 0 all are built and checked, 1 something failed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from arm64_debian import MACHINE, arm64_python
from server_folders import Unavailable
from wheel_pythons import ROOT, Interpreter, interpreter, supported_versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORK = ROOT / "build/wheels"
# Without symbols for a debugger, and without folders of this machine, which the linker
# commands of some Pythons have.
LINK = "-shared -Wl,--strip-all"
_HOOK = """
import sys
from setuptools import build_meta
build_meta.build_wheel(sys.argv[1])
"""


class BuildError(Exception):
    """A command failed; its output is printed."""


def build_sdist(folder: Path) -> Path:
    """Build the sdist of the checkout into a folder."""
    _run([sys.executable, "-m", "build", "--sdist", "--outdir", str(folder), str(ROOT)])
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


def unpacked(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist; returns the folder with its files."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return folder / sdist.name.removesuffix(".tar.gz")


def build_wheel(source: Path, python: Interpreter, folder: Path) -> None:
    """Build the wheel for a Python and this machine into a folder."""
    work = WORK / platform.machine() / python.tag
    cc = os.environ.get("CC", "cc")
    _build(source, python, work, {"LDSHARED": f"{cc} {LINK}"})
    _repair(work, folder)


def build_arm64_wheel(source: Path, python: Interpreter, folder: Path) -> None:
    """Build the wheel for a Python on arm64 into a folder. Raises Unavailable."""
    work = WORK / MACHINE / python.tag
    settings = work / "settings"
    settings.mkdir(parents=True)
    environ = arm64_python(python.version).build_environ(settings)
    _build(source, python, work, environ | {"LDSHARED": f"{environ['CC']} {LINK}"})
    _repair(work, folder)


def _build(
    source: Path, python: Interpreter, work: Path, environ: Mapping[str, str]
) -> None:
    """Build a wheel as pip does, in an environment with what the build needs."""
    work.mkdir(parents=True, exist_ok=True)
    build_environment = WORK / f"environment-{python.version}"
    program = build_environment / "bin/python"
    if not program.exists():
        project = tomllib.loads((source / "pyproject.toml").read_text())
        needed = project["build-system"]["requires"]
        _run([str(python.program), "-m", "venv", str(build_environment)])
        _run([str(program), "-m", "pip", "install", "--quiet", *needed])
    # One folder for all: what is translated to C once is compiled for each Python.
    _run([str(program), "-c", _HOOK, str(work)], cwd=source, environ=environ)


def _repair(work: Path, folder: Path) -> None:
    """Write the wheel of a folder into another one with the tag that it deserves."""
    (wheel,) = work.glob("*.whl")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    _run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(folder),
         str(wheel)],
        environ={"PATH": path},  # with patchelf
    )  # fmt: skip


def _run(
    command: Sequence[str],
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Run a command to its end; its output is printed if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | (environ or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout)
        raise BuildError(f"{' '.join(command)}: status {done.returncode}")


def build(folder: Path, versions: Sequence[str], *, native: bool) -> list[Path]:
    """Build everything into a folder, which is emptied first; returns the files."""
    for each in (folder, WORK):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir(parents=True)
    print(f"sdist {folder}", flush=True)
    sdist = build_sdist(folder)
    source = unpacked(sdist, WORK)
    for version in versions:
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: not on this machine; no wheel", flush=True)
            continue
        print(f"Python {version}: {platform.machine()}", flush=True)
        build_wheel(source, python, folder)
        if native or platform.machine() == MACHINE:
            continue
        try:
            print(f"Python {version}: {MACHINE}", flush=True)
            build_arm64_wheel(source, python, folder)
        except Unavailable as error:
            print(f"Python {version}: no wheel for {MACHINE}: {error}", flush=True)
    return [sdist, *sorted(folder.glob("*.whl"))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--python", dest="versions", nargs="+", default=supported_versions())
    add("--native", action="store_true", help="only for this machine's processor")
    add("folder", nargs="?", type=Path, default=ROOT / "dist")
    options = parser.parse_args(arguments)
    try:
        made = build(options.folder, options.versions, native=options.native)
        _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, made)])
    except BuildError as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    for each in made:
        print(f"{each.stat().st_size / 1e6:6.1f} MB  {each}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
