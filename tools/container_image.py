"""Container images of MySQL and MariaDB from Debian's packages, for tests.

For machines that cannot pull the official images: `container_image.py mysql mariadb`
makes `canal-debian/mysql` and `canal-debian/mariadb`, which the tests marked
`containers` then use. They understand as much of the official images' ways as the
tests need (`container_entrypoint.sh`). Leaves out running them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import docker.errors
from server_folders import Unavailable
from server_packages import suite_of, unpack_packages

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY = "canal-debian"
ENTRYPOINT = Path(__file__).with_name("container_entrypoint.sh")
# What the entry point calls, and the folders that all programs expect.
SYSTEM_PACKAGES = ("base-files", "dash", "coreutils")
CHANGES = (
    'ENTRYPOINT ["/entrypoint.sh"]',
    "ENV LD_LIBRARY_PATH=/usr/lib/mysql/private",
    "EXPOSE 3306",
    "VOLUME /var/lib/mysql",
)
IMPORT_SECONDS_MAX = 600


def make_image(flavour: str, suite: str | None = None) -> str:
    """Make the image of a flavour from a Debian release; returns its name.

    Without a release it is the one of the private servers, and tagged `latest`.
    Raises Unavailable.
    """
    tag = suite or "latest"
    repository = f"{REPOSITORY}/{flavour}"
    tree = Path(tempfile.mkdtemp(prefix="canal-image-"))
    try:
        unpack_packages(
            [f"{flavour}-server-core", *SYSTEM_PACKAGES],
            suite or suite_of(flavour),
            tree,
        )
        _complete(tree)
        _import(tree, repository, tag)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return f"{repository}:{tag}"


def _complete(tree: Path) -> None:
    """Add what scripts of the packages would have made."""
    for folder in ("tmp", "run", "etc", "var/lib/mysql"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")
    shutil.copy(ENTRYPOINT, tree / "entrypoint.sh")
    shell = tree / "usr/bin/sh"
    if not shell.exists() and not (tree / "bin/sh").exists():
        shell.symlink_to("dash")  # an alternative, in some releases


def _import(tree: Path, repository: str, tag: str) -> None:
    """Hand a folder to the daemon as an image. Raises Unavailable."""
    archive = subprocess.Popen(
        ["tar", "--create", "--owner=0", "--group=0", "--directory", str(tree), "."],
        stdout=subprocess.PIPE,
    )
    try:
        client = docker.APIClient(timeout=IMPORT_SECONDS_MAX, **_environment())
        with client:
            client.import_image_from_stream(
                archive.stdout, repository=repository, tag=tag, changes=list(CHANGES)
            )
    except (docker.errors.DockerException, OSError) as error:
        raise Unavailable(f"the daemon does not take the image: {error}") from error
    finally:
        assert archive.stdout
        archive.stdout.close()
        status = archive.wait()
    if status:
        raise Unavailable(f"packing {tree} failed with status {status}")


def _environment() -> dict[str, object]:
    """Return how the daemon is reached, as DOCKER_HOST and its like tell."""
    settings = docker.utils.kwargs_from_env()
    return {"version": "auto", **settings}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", help="Debian release, which becomes the tag")
    parser.add_argument("flavours", nargs="+", choices=["mysql", "mariadb"])
    wanted = parser.parse_args(arguments)
    for flavour in wanted.flavours:
        try:
            print(make_image(flavour, wanted.suite), flush=True)
        except Unavailable as error:
            print(f"{flavour}: unavailable: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
