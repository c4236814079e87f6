"""The options that name a conf folder and a destination in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.config.load import InstanceLoader, load, load_data_dir
from canal_server.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from canal_server.config.schema import DaemonConfig, InstanceConfig

VARIABLE = "CANAL_CONF"  # of the environment: the conf folder of all commands
DEFAULT = Path("conf")


def default_conf() -> Path:
    """Return the conf folder that is meant when none is named."""
    return Path(os.environ.get(VARIABLE) or DEFAULT)


def add_conf_option(parser: argparse.ArgumentParser) -> None:
    """Add `--conf DIR`, as `args.conf`."""
    parser.add_argument(
        "--conf",
        metavar="DIR",
        type=Path,
        default=default_conf(),
        help=f"folder with canal.properties (default: {VARIABLE} of the environment,"
        f" else {DEFAULT})",
    )


def load_for(
    conf: Path, name: str | None, environ: Mapping[str, str]
) -> tuple[Path, tuple[InstanceConfig, ...]]:
    """Return the data folder and the destinations, or just the one that is named.

    Settings of others that cannot be used are no hindrance to one that is named: a
    server that follows its conf folder leaves them out as well. Raises ConfigError.
    """
    try:
        config = load(conf, environ)
    except ConfigError:
        if name is None:
            raise
        loader = InstanceLoader(conf, environ)
        if not loader.path_of(name).is_file():
            raise
        instance, _ = loader.load(name, ())
        return load_data_dir(conf, environ), (instance,)
    if name is None:
        return config.data_dir, config.instances
    return config.data_dir, (destination_of(config, name),)


def destination_of(config: DaemonConfig, name: str | None) -> InstanceConfig:
    """Return the destination that is named; the only one needs no name.

    Raises ConfigError.
    """
    return named(config.instances, name)


def source_of_destination(config: DaemonConfig, name: str | None) -> InstanceConfig:
    """Return the same for one source, which in a group is `destination/masterN`."""
    return named([each for one in config.instances for each in one.by_source], name)


def named(instances: Sequence[InstanceConfig], name: str | None) -> InstanceConfig:
    """Return the one with that name, or the only one. Raises ConfigError."""
    names = ", ".join(each.destination for each in instances) or "none"
    if name is None:
        if len(instances) == 1:
            return instances[0]
        raise ConfigError([f"name one destination with --destination: {names}"])
    for instance in instances:
        if instance.destination == name:
            return instance
    raise ConfigError([f"--destination {name}: not configured; known are: {names}"])
