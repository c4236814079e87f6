"""Programs of MySQL and MariaDB from Debian's packages, unpacked into a cache folder.

No root, no service, nothing installed into the system: apt-get downloads and checks
the packages and all that they depend on into folders of our own, and the programs run
with their own C library, whatever the host's is. Leaves out starting servers
(`servers`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from server_folders import Unavailable, cache_folder, locked, made_atomically
from server_releases import (
    LIBRARIES,
    LIBRARIES_SUITE,
    Release,
    find_unpacked,
    wanted_release,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

PREPARE_SECONDS_MAX = 900.0  # downloading and unpacking one server
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True, slots=True)
class Programs:
    """The server program of one flavour and the files that it needs.

    `prefix` goes before every program of `root`: the tree's own dynamic loader.
    """

    flavour: str  # "mysql" or "mariadb"
    root: Path
    prefix: tuple[str, ...]
    server: Path
    plugins: Path
    share: Path

    @property
    def base(self) -> Path:
        """Return the folder that the server calls its base."""
        packaged = self.root / "usr"
        return packaged if packaged.is_dir() else self.share.parent

    def command(self) -> list[str]:
        """Return the server's command with the options that name its files."""
        return [
            *self.prefix,
            str(self.server),
            "--no-defaults",
            f"--basedir={self.base}",
            f"--plugin-dir={self.plugins}",
            f"--lc-messages-dir={self.share}",
            f"--character-sets-dir={self.share / 'charsets'}",
            "--secure-file-priv=",
            *(["--user=root"] if os.getuid() == 0 else []),
        ]

    def tool(self, name: str) -> list[str]:
        """Return the command of a tool that comes with the server, as mysqlbinlog.

        Raises Unavailable when the packages do not hold it.
        """
        found = self.root / "usr/bin" / name
        if not found.exists():
            raise Unavailable(f"{self.flavour} comes without {name} in {self.root}")
        return [*self.prefix, str(found)]


def find_programs(flavour: str, release: Release | None = None) -> Programs:
    """Return the programs of "mysql" or "mariadb", fetching them when necessary.

    The release is the one that the environment asks for, unless it is named. Takes
    seconds to minutes the first time. Raises Unavailable.
    """
    release = release or wanted_release(flavour)
    installed = None if release else _installed_mariadb()
    if flavour == "mariadb" and installed:
        return installed
    name = flavour
    if release and release.suite != suite_of(flavour):  # else it is there already
        name = release.name
    tree = cache_folder() / name
    with locked(cache_folder() / f".{name}.lock"):
        if not tree.exists():
            _unpack(flavour, tree, release)
    if release and not release.suite:
        return _unpacked_programs(flavour, tree)
    return _programs_of_tree(flavour, tree)


def run(command: Sequence[str], what: str, **options: object) -> str:
    """Run a command to its end; returns its output.

    Raises Unavailable with `what` and the end of the output when it fails.
    """
    try:
        done = subprocess.run(  # type: ignore[call-overload]
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PREPARE_SECONDS_MAX,
            check=False,
            **{"stdin": subprocess.DEVNULL} if "input" not in options else {},
            **options,
        )
    except FileNotFoundError:
        raise Unavailable(f"{what}: {command[0]} is not on this machine") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} took more than {PREPARE_SECONDS_MAX:g} s") from None
    if done.returncode:
        raise Unavailable(
            f"{what} failed with status {done.returncode}:\n{done.stdout[-2000:]}"
        )
    return str(done.stdout)


def _installed_mariadb() -> Programs | None:
    """Return the MariaDB that the host has installed, if it is complete."""
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
    share = _share(Path("/usr/share"))
    if not found or not list(share.glob("*_system_tables.sql")):
        return None
    plugins = Path("/usr/lib/mysql/plugin")
    return Programs("mariadb", Path("/"), (), Path(found), plugins, share)


def _unpacked_programs(flavour: str, tree: Path) -> Programs:
    """Return programs that are not Debian's, with libraries that are."""
    found = find_unpacked(tree)
    libraries = package_tree("server-libraries", *LIBRARIES, suite=LIBRARIES_SUITE)
    loader = _loader(libraries)
    folders = [
        *found.libraries,
        libraries / "usr/lib" / loader.parent.name,
        loader.parent,
    ]
    return Programs(
        flavour,
        tree,
        (str(loader), "--library-path", ":".join(map(str, folders))),
        found.server,
        found.plugins,
        found.share,
    )


def _loader(tree: Path) -> Path:
    """Return the dynamic loader of a tree of packages. Raises Unavailable."""
    loaders = [*tree.glob("usr/lib/*/ld-linux-*"), *tree.glob("lib/*/ld-linux-*")]
    if not loaders:
        raise Unavailable(
            f"{tree} is not complete: remove it, it will be downloaded again"
        )
    return loaders[0]


def _programs_of_tree(flavour: str, tree: Path) -> Programs:
    name = {"mysql": "mysqld", "mariadb": "mariadbd"}[flavour]
    loader = _loader(tree)
    server = tree / "usr/sbin" / name
    if not server.exists():
        raise Unavailable(
            f"{tree} is not complete: remove it, it will be downloaded again"
        )
    libraries = [f"{tree}/usr/lib/{loader.parent.name}", f"{loader.parent}",
                 f"{tree}/usr/lib/mysql/private"]  # fmt: skip
    return Programs(
        flavour,
        tree,
        (str(loader), "--library-path", ":".join(libraries)),
        server,
        tree / "usr/lib/mysql/plugin",
        _share(tree / "usr/share"),
    )


def _share(folder: Path) -> Path:
    """Return where messages, character sets and system tables are."""
    renamed = folder / "mariadb"  # since MariaDB 11, as Debian 13 has it
    return renamed if (renamed / "charsets").exists() else folder / "mysql"


def _unpack(flavour: str, tree: Path, release: Release | None) -> None:
    """Download a server's packages with all that they need, and unpack them."""
    if release and not release.suite:
        with made_atomically(tree) as part:
            release.unpack(part)
        return
    if not KEYRING.exists():
        raise Unavailable(
            f"{flavour} is fetched from Debian's packages, but {KEYRING} is missing: "
            "install debian-archive-keyring, or name a server by "
            f"{flavour.upper()}_URL=mysql://user:password@host:port"
        )
    suffix = release.suffix if release else ""
    packages = [f"{flavour}-{kind}-core{suffix}" for kind in ("server", "client")]
    with made_atomically(tree) as part:
        suite = release.suite if release else suite_of(flavour)
        unpack_packages(packages, suite, part)


def package_tree(
    name: str, *packages: str, suite: str = "", architecture: str = ""
) -> Path:
    """Return the folder with packages and all they need, fetched when necessary.

    They are of the host's release and architecture unless these are named.
    """
    tree = cache_folder() / name
    with locked(cache_folder() / f".{name}.lock"):
        if not tree.exists():
            with made_atomically(tree) as part:
                unpack_packages(packages, suite or host_suite(), part, architecture)
    return tree


def unpack_packages(
    packages: Sequence[str], suite: str, tree: Path, architecture: str = ""
) -> None:
    """Unpack packages of a Debian release with all that they need into a folder.

    None of their scripts is run. Raises Unavailable.
    """
    apt = tree / "apt"
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "state/status").touch()  # nothing counts as installed
    mirror = os.environ.get("CANAL_DEBIAN_MIRROR") or host_mirror()
    (apt / "sources.list").write_text(
        f"deb [signed-by={KEYRING}] {mirror} {suite} main\n"
    )
    apt_get = ["apt-get", "--quiet", "--yes", *_apt_options(apt)]
    if architecture:
        apt_get += [
            f"--option={key}={architecture}"
            for key in ("APT::Architecture", "APT::Architectures")
        ]
    names = " and ".join(packages)
    run([*apt_get, "update"], f"reading Debian's package lists for {names}")
    run(
        [*apt_get, "install", "--download-only", *packages],
        f"downloading {names} of Debian {suite}",
    )
    for package in sorted((apt / "cache/archives").glob("*.deb")):
        run(["dpkg-deb", "--extract", str(package), str(tree)], f"unpacking {package}")
    shutil.rmtree(apt)
    for needless in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(tree / needless, ignore_errors=True)


def suite_of(flavour: str) -> str:
    """Return the Debian release that a flavour's packages are taken from."""
    return "sid" if flavour == "mysql" else host_suite()


def host_mirror() -> str:
    """Return the Debian mirror that the host's apt uses. Raises Unavailable."""
    output = run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"],
        "asking apt for its sources",
    )
    for line in output.splitlines():
        mirror = line.rstrip("/")
        if mirror.endswith("/debian"):
            return mirror
    raise Unavailable(
        "apt's sources name no Debian mirror: name one by CANAL_DEBIAN_MIRROR=URL"
    )


def _apt_options(apt: Path) -> list[str]:
    """Return the options that keep apt-get inside a folder of ours."""
    settings = {
        "Dir::Etc::SourceList": apt / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "state/status",
        "Dir::Cache": apt / "cache",
        "APT::Sandbox::User": "",  # the folders are readable by their owner only
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    return [f"--option={key}={value}" for key, value in settings.items()]


def host_suite() -> str:
    """Return the host's Debian release, else a release that has MariaDB 10.11."""
    with contextlib.suppress(OSError):
        lines = Path("/etc/os-release").read_text().splitlines()
        release = dict(line.split("=", 1) for line in lines if "=" in line)
        if release.get("ID") == "debian" and "VERSION_CODENAME" in release:
            return release["VERSION_CODENAME"]
    return "bookworm"
