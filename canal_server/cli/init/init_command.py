"""`canal-server init`: write a conf folder with all settings and their defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.actions import add_json_option, print_json
from canal_server.cli.conf_options import add_conf_option
from canal_server.cli.files.shipped_files import shipped, write_files
from canal_server.config.load import MAIN_FILE
from canal_server.config.modes import is_destination_name
from canal_server.errors import CanalError, ConfigError

if TYPE_CHECKING:
    import argparse

SAMPLE: Final = "example"
_LISTED: Final = f"\ncanal.destinations = {SAMPLE}\n"
_TITLE: Final = f'the destination "{SAMPLE}"'
_INSTANCE: Final = "instance.properties"


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "init",
        help="write a conf folder to start with",
        description="Write a conf folder with all settings, their defaults and what "
        "they mean, and one destination. A file that exists is never replaced.",
    )
    add_conf_option(parser)
    parser.add_argument(
        "--destination",
        metavar="NAME",
        default=SAMPLE,
        help="name of the destination (default: %(default)s)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Write the folder, and print what to do next."""
    name = args.destination
    if not name or "," in name or not is_destination_name(name):
        raise ConfigError([f"--destination {name}: not a name of a destination"])
    main = args.conf / MAIN_FILE
    if main.exists():
        raise CanalError(f"nothing was written, {main} exists already")
    write_files(_named(shipped("conf"), name), args.conf)
    instance = args.conf / name / _INSTANCE
    if args.json:
        print_json({"conf": str(args.conf), "written": [str(main), str(instance)]})
        return 0
    print(
        f"wrote {main}: settings of the server\n"
        f"wrote {instance}: settings of the destination {name}\n"
        f"Set canal.instance.master.address, dbUsername, dbPassword and filter.regex in"
        f" {instance}, then run:\n"
        f"  canal-server check --conf {args.conf}\n"
        f"  canal-server start --conf {args.conf}"
    )
    return 0


def _named(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    """Return the files of the sample with another name of its destination."""
    main = files[MAIN_FILE].decode()
    instance = files[f"{SAMPLE}/{_INSTANCE}"].decode()
    assert _LISTED in main, "the sample lists its destination"
    return {
        MAIN_FILE: main.replace(_LISTED, f"\ncanal.destinations = {name}\n").encode(),
        f"{name}/{_INSTANCE}": instance.replace(
            _TITLE, f'the destination "{name}"'
        ).encode(),
    }
