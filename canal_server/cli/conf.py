"""The options that name a conf folder and a destination in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from canal_server.config.schema import DaemonConfig, InstanceConfig

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


def destination_of(config: DaemonConfig, name: str | None) -> InstanceConfig:
    """Return the destination that is named; the only one needs no name.

    Raises ConfigError.
    """
    names = ", ".join(config.destinations) or "none"
    if name is None:
        if len(config.instances) == 1:
            return config.instances[0]
        raise ConfigError([f"name one destination with --destination: {names}"])
    for instance in config.instances:
        if instance.destination == name:
            return instance
    raise ConfigError([f"--destination {name}: not configured; known are: {names}"])
