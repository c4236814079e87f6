"""A compiler for arm64, and Pythons of arm64 that an emulator runs.

All are Debian's packages, unpacked into the cache folder; nothing is installed. The
Pythons are those of Debian's releases: their headers are what compiled modules need,
and they run what was compiled.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server_folders import Unavailable
from server_packages import package_tree

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = "aarch64"
SUITES = {"3.11": "bookworm", "3.13": "trixie"}  # each release has one version
_TRIPLET = "aarch64-linux-gnu"
_SYSCONFIG = f"_sysconfigdata__{_TRIPLET}"
_WRAPPER = """#!/bin/sh
LD_LIBRARY_PATH={tree}/usr/lib/x86_64-linux-gnu \\
exec {tree}/usr/bin/{triplet}-gcc --sysroot={tree} \\
    -I{python}/usr/include/python{version} -idirafter {python}/usr/include "$@"
"""


@dataclass(frozen=True, slots=True)
class Arm64Python:
    """A Python of arm64, which runs in an emulator, far slower than at home."""

    version: str
    tree: Path

    @property
    def command(self) -> list[str]:
        """How to run it here; programs that it starts do not run."""
        emulator = package_tree("qemu", "qemu-user-static")
        return [
            str(emulator / "usr/bin/qemu-aarch64-static"),
            "-L",
            str(self.tree),
            str(self.tree / f"usr/bin/python{self.version}"),
        ]

    def build_environ(self, folder: Path) -> dict[str, str]:
        """Return the variables with which setuptools of this machine builds for it.

        Writes into the folder: a compiler, and the settings of this Python.
        """
        compiler = package_tree(
            "cross-arm64",
            f"gcc-{_TRIPLET}",
            "libc6-dev-arm64-cross",
        )
        cc = folder / f"{_TRIPLET}-cc"
        cc.write_text(
            _WRAPPER.format(
                tree=compiler, triplet=_TRIPLET, python=self.tree, version=self.version
            )
        )
        cc.chmod(0o755)
        library = self.tree / f"usr/lib/python{self.version}"
        shutil.copy(library / f"{_SYSCONFIG}.py", folder)
        return {
            "CC": str(cc),
            "LDSHARED": f"{cc} -shared",
            "PYTHONPATH": str(folder),
            "_PYTHON_SYSCONFIGDATA_NAME": _SYSCONFIG,
            "_PYTHON_HOST_PLATFORM": f"linux-{MACHINE}",
        }


def arm64_python(version: str) -> Arm64Python:
    """Return the Python of this version, fetched when necessary. Raises Unavailable."""
    suite = SUITES.get(version)
    if suite is None:
        raise Unavailable(f"no release of Debian has Python {version} for arm64")
    tree = package_tree(
        f"python{version}-arm64",
        f"python{version}",
        f"libpython{version}-dev",
        suite=suite,
        architecture="arm64",
    )
    # Later releases have one folder for libraries; the link is of another package.
    with contextlib.suppress(FileExistsError):
        (tree / "lib").symlink_to("usr/lib")
    return Arm64Python(version, tree)
