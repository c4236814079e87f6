"""Whole Debian systems with Python in folders, to boot or to make an image of.

debootstrap installs the smallest one, and apt-get within a copy of it makes the larger
ones; all are kept in the cache folder. It takes root, and nothing is installed into
the system. Leaves out booting them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from server_folders import Unavailable, cache_folder, locked, made_atomically
from server_packages import host_mirror, host_suite, run

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALLEST = ("ca-certificates", "python3")
CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")
# As in the image `debian:…-slim`, and what apt would fetch again.
NEEDLESS = (
    "usr/share/doc/*/*", "usr/share/man/*", "usr/share/locale/*", "usr/share/info/*",
    "var/cache/apt/*.bin", "var/cache/apt/archives/*.deb", "var/cache/debconf/*-old",
    "var/lib/apt/lists/*", "var/lib/dpkg/*-old", "var/log/*",
)  # fmt: skip
KEPT = {"copyright"}  # licences ask for it


def debian_tree(packages: Sequence[str] = (), suite: str = "") -> Path:
    """Return a folder with a Debian that has Python and packages, made when necessary.

    The release is the host's unless it is named. Nobody may change the folder: copy it.
    Takes minutes the first time. Raises Unavailable.
    """
    suite = suite or host_suite()
    name = "-".join(("debian", suite, *sorted(packages)))
    tree = cache_folder() / name
    with locked(cache_folder() / f".{name}.lock"):
        if not tree.exists():
            _refuse_others_than_root()
            with made_atomically(tree) as part:
                part.chmod(0o755)  # it becomes `/`, of every user
                if packages:
                    copy_tree(debian_tree((), suite), part)
                    _install(packages, part)
                else:
                    _bootstrap(suite, part)
                _strip(part)
    return tree


def copy_tree(tree: Path, target: Path) -> None:
    """Copy a system with all owners and modes. Raises Unavailable."""
    run(
        ["cp", "--archive", "--reflink=auto", f"{tree}/.", str(target)],
        f"copying {tree}",
    )


def _refuse_others_than_root() -> None:
    if os.getuid() != 0:
        raise Unavailable("debootstrap, which makes a Debian, must be run by root")


def _bootstrap(suite: str, tree: Path) -> None:
    """Make the smallest Debian; it trusts whom this machine trusts."""
    run(
        [
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(SMALLEST)}",
            suite,
            str(tree),
            os.environ.get("CANAL_DEBIAN_MIRROR") or host_mirror(),
        ],
        f"making a Debian {suite}",
    )
    ours = Path("/") / CERTIFICATES
    if ours.exists():  # a company's own may be among them
        shutil.copy(ours, tree / CERTIFICATES)


def _install(packages: Sequence[str], tree: Path) -> None:
    apt_get = ["chroot", str(tree), "apt-get", "--quiet", "--yes"]
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    names = " and ".join(packages)
    run([*apt_get, "update"], f"reading Debian's package lists for {names}")
    run(
        [*apt_get, "install", "--no-install-recommends", *packages],
        f"installing {names} into {tree}",
        env=environ,
    )


def _strip(tree: Path) -> None:
    for pattern in NEEDLESS:
        for found in tree.glob(pattern):
            if found.name in KEPT:
                continue
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found)
            else:
                found.unlink()
