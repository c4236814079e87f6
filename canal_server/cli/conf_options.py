"""The options that select a conf folder and a destination in it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.config.load import InstanceLoader, load, load_data_dir
from canal_server.config.schema import DaemonConfig, ServerConfig
from canal_server.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from canal_server.config.schema import InstanceConfig

VARIABLE = "CANAL_CONF"  # environment variable: the conf folder of all commands
DEFAULT = Path("conf")


def default_conf() -> Path:
    """Return the conf folder that is used without `--conf`."""
    return Path(os.environ.get(VARIABLE) or DEFAULT)


def add_conf_option(parser: argparse.ArgumentParser) -> None:
    """Add `--conf DIR`, as `args.conf`."""
    parser.add_argument(
        "--conf",
        metavar="DIR",
        type=Path,
        default=default_conf(),
        help=f"folder with canal.properties (default: ${VARIABLE} if set,"
        f" else {DEFAULT})",
    )


def load_for(
    conf: Path, name: str | None, environ: Mapping[str, str]
) -> tuple[Path, tuple[InstanceConfig, ...]]:
    """Return the data folder and the destinations, or only the destination `name`.

    Raises ConfigError as `load_chosen` does.
    """
    config = load_chosen(conf, name, environ)
    return config.data_dir, config.instances


def load_chosen(
    conf: Path, name: str | None, environ: Mapping[str, str]
) -> DaemonConfig:
    """Return all settings, or only those of the destination `name`.

    Invalid settings of other destinations do not matter if one is named: a server that
    watches its conf folder skips them as well. The settings of the server itself are
    then unknown: no ports. Raises ConfigError.
    """
    try:
        config = load(conf, environ)
    except ConfigError:
        if name is None:
            raise
        loader = InstanceLoader(conf, environ)
        if not loader.path_of(name).is_file():
            raise
        instance, warnings = loader.load(name, ())
        return DaemonConfig(
            conf_dir=conf.absolute(),
            data_dir=load_data_dir(conf, environ),
            server=ServerConfig(listen=False, metrics_port=-1, http_port=-1),
            instances=(instance,),
            warnings=tuple(warnings),
        )
    if name is None:
        return config
    return replace(config, instances=(destination_of(config, name),))


def destination_of(config: DaemonConfig, name: str | None) -> InstanceConfig:
    """Return the destination with this name; None selects the only one.

    Raises ConfigError.
    """
    return named(config.instances, name)


def source_of_destination(config: DaemonConfig, name: str | None) -> InstanceConfig:
    """Return the settings of one source, called `destination/masterN` in a group."""
    return named([each for one in config.instances for each in one.by_source], name)


def named(instances: Sequence[InstanceConfig], name: str | None) -> InstanceConfig:
    """Return the instance with that name; None selects the only one.

    Raises ConfigError.
    """
    names = ", ".join(each.destination for each in instances) or "none"
    if name is None:
        if len(instances) == 1:
            return instances[0]
        raise ConfigError([f"select a destination with --destination: {names}"])
    for instance in instances:
        if instance.destination == name:
            return instance
    raise ConfigError(
        [f"--destination {name}: not configured; configured are: {names}"]
    )
