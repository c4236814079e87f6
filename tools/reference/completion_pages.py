"""The scripts for completion by shells, by the names under which shells find them."""

from __future__ import annotations

from pathlib import Path

from canal_server.cli.completion.completion_command import SCRIPTS
from canal_server.cli.completion.completion_tree import program

FOLDER = Path("deploy/completion")
NAMES = {
    "bash": "canal-server",
    "zsh": "_canal-server",
    "fish": "canal-server.fish",
}


def pages() -> dict[Path, str]:
    """Return the scripts by their paths."""
    found = program()
    return {FOLDER / NAMES[shell]: script(found) for shell, script in SCRIPTS.items()}
