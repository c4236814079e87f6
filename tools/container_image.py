"""Container images from Debian's packages, for tests and for the trial with Compose.

For machines that cannot pull the official images: `container_image.py mysql mariadb
zookeeper` makes `canal-debian/mysql` and so on, which the tests in containers then use.
They understand as much of the official images' ways as the tests need. `python` and
`python-build` are the bases of our Dockerfile, the second with a compiler; they take
root and debootstrap. Leaves out running them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import docker.errors
from debian_tree import CERTIFICATES, debian_tree
from server_folders import Unavailable
from server_packages import suite_of, unpack_packages

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY = "canal-debian"
TOOLS = Path(__file__).parent
# What the entry points call, and the folders that all programs expect.
SYSTEM_PACKAGES = ("base-files", "dash", "coreutils")
# Whole Debians with Python, with what else.
DEBIANS = {
    "python": (),
    "python-build": ("build-essential", "python3-dev", "python3-venv"),
}
DEBIAN_CHANGES = (f"ENV PIP_CERT=/{CERTIFICATES}", 'CMD ["python3"]')
IMPORT_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is in an image, and what the daemon receives of it."""

    packages: tuple[str, ...]
    entrypoint: str  # a script beside this one
    changes: tuple[str, ...]


_DATABASE = (
    "ENV LD_LIBRARY_PATH=/usr/lib/mysql/private",
    "EXPOSE 3306",
    "VOLUME /var/lib/mysql",
)
RECIPES = {
    "mysql": Recipe(
        ("mysql-server-core", "mysql-client-core"), "container_entrypoint.sh", _DATABASE
    ),
    "mariadb": Recipe(
        ("mariadb-server-core", "mariadb-client-core"),
        "container_entrypoint.sh",
        _DATABASE,
    ),
    "zookeeper": Recipe(
        ("libzookeeper-java", "default-jre-headless"),
        "container_zookeeper.sh",
        ("EXPOSE 2181", "VOLUME /data"),
    ),
}


def make_image(name: str, suite: str | None = None) -> str:
    """Make an image from a Debian release; returns its name.

    Without a release it is the one of the private servers, and tagged `latest`.
    Raises Unavailable.
    """
    tag = suite or "latest"
    repository = f"{REPOSITORY}/{name}"
    if name in DEBIANS:
        debian = debian_tree(DEBIANS[name], suite or "")
        _import(debian, "--numeric-owner", repository, tag, DEBIAN_CHANGES)
        return f"{repository}:{tag}"
    tree = Path(tempfile.mkdtemp(prefix="canal-image-"))
    tree.chmod(0o755)  # it becomes `/`, of every user
    try:
        changes = _fill_by_recipe(tree, RECIPES[name], suite or suite_of(name))
        _import(tree, "--owner=0 --group=0", repository, tag, changes)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return f"{repository}:{tag}"


def _fill_by_recipe(tree: Path, recipe: Recipe, suite: str) -> tuple[str, ...]:
    unpack_packages([*recipe.packages, *SYSTEM_PACKAGES], suite, tree)
    # What scripts of the packages would have made.
    for folder in ("tmp", "run", "etc", "var/lib/mysql"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")
    shutil.copy(TOOLS / recipe.entrypoint, tree / "entrypoint.sh")
    shell = tree / "usr/bin/sh"
    if not shell.exists() and not (tree / "bin/sh").exists():
        shell.symlink_to("dash")  # an alternative, in some releases
    return ('ENTRYPOINT ["/entrypoint.sh"]', *recipe.changes)


def _import(
    tree: Path, owner: str, repository: str, tag: str, changes: Sequence[str]
) -> None:
    """Hand a folder to the daemon as an image; `owner`: tar's options for its files.

    Raises Unavailable.
    """
    archive = subprocess.Popen(
        ["tar", "--create", *owner.split(), "--directory", str(tree), "."],
        stdout=subprocess.PIPE,
    )
    try:
        client = docker.APIClient(timeout=IMPORT_SECONDS_MAX, **_environment())
        with client:
            client.import_image_from_stream(
                archive.stdout, repository=repository, tag=tag, changes=list(changes)
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
    """Return how the daemon is reached, as DOCKER_HOST and its like show."""
    settings = docker.utils.kwargs_from_env()
    return {"version": "auto", **settings}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", help="Debian release, which becomes the tag")
    parser.add_argument("images", nargs="+", choices=[*RECIPES, *DEBIANS])
    options = parser.parse_args(arguments)
    for image in options.images:
        try:
            print(make_image(image, options.suite), flush=True)
        except Unavailable as error:
            print(f"{image}: unavailable: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
