"""The files that an installed package has beside its modules, and copies of them.

The build copies folders of the sources, `conf` and those in `deploy`, into `shipped`
(setup.py). Without a build, as in a checkout, they are read where the sources have
them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import canal_server
from canal_server.errors import CanalError

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS: Final = {  # folders of `deploy`, and what they are for
    "systemd": "a unit that runs the server as a service",
    "prometheus": "alert rules of the server and of mirrors",
    "grafana": "dashboards of the server and of mirrors",
    "helm": "a chart for Kubernetes",
    "bin": "startup.sh, stop.sh and restart.sh, as the Java server has them",
}
_UNIT_COMMAND: Final = b"ExecStart=/opt/canal-server/bin/canal-server "


def shipped(folder: str) -> dict[str, bytes]:
    """Return the files of a folder, such as `conf`, by their paths in it.

    Raises CanalError if the installation has none.
    """
    package = Path(canal_server.__file__).parent
    root = package / "shipped" / folder
    if not root.is_dir():
        root = package.parent / folder
    found = {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    if not found:
        raise CanalError(f"this installation has no files of {folder}; reinstall it")
    return found


def files_of(kind: str) -> dict[str, bytes]:
    """Return the files of a kind; a unit runs the command of this installation."""
    files = shipped(f"deploy/{kind}")
    command = Path(sys.executable).parent / "canal-server"
    if kind == "systemd" and command.is_file():
        start = _UNIT_COMMAND.replace(
            b"/opt/canal-server/bin/canal-server", os.fsencode(command)
        )
        files = {n: text.replace(_UNIT_COMMAND, start) for n, text in files.items()}
    return files


def write_files(
    files: Mapping[str, bytes], folder: Path, *, overwrite: bool = False
) -> list[Path]:
    """Write files below a folder; return those that were not there as they are.

    Raises CanalError, and writes nothing, if one has another content, unless they are
    to be overwritten.
    """
    missing = {
        folder / name: content
        for name, content in files.items()
        if not _has(folder / name, content)
    }
    others = [str(path) for path in missing if os.path.lexists(path)]
    if others and not overwrite:
        raise CanalError(f"nothing was written, {', '.join(others)} exists already")
    for path, content in missing.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if path.suffix == ".sh":
                path.chmod(path.stat().st_mode | 0o111 & ~_umask())
        except OSError as error:
            raise CanalError(f"cannot write {path}: {error.strerror}") from error
    return list(missing)


def _has(path: Path, content: bytes) -> bool:
    try:
        return path.is_file() and path.read_bytes() == content
    except OSError:
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
