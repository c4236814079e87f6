"""The option that names a conf folder, shared by the commands that have it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

DEFAULT = Path("conf")


def add_conf_option(parser: argparse.ArgumentParser) -> None:
    """Add `--conf DIR`, as `args.conf`."""
    parser.add_argument(
        "--conf",
        metavar="DIR",
        type=Path,
        default=DEFAULT,
        help="folder with canal.properties (default: %(default)s)",
    )
