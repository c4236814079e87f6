"""`canal-server files`: list and write the files for systemd, Prometheus and others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from canal_server.cli.actions import add_json_option, print_json
from canal_server.cli.files.shipped_files import KINDS, files_of, write_files
from canal_server.errors import ConfigError

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "files",
        help="write files for systemd, Prometheus, Grafana and Kubernetes",
        description="Write the files with which the server is run and watched: a unit "
        "for systemd, alert rules for Prometheus, dashboards for Grafana, a Helm "
        "chart, and scripts. Without a kind, list them.",
    )
    add = parser.add_argument
    add("kind", nargs="?", choices=tuple(KINDS), metavar="KIND",
        help=f"what to write: {', '.join(KINDS)}")  # fmt: skip
    add("--to", metavar="DIR", type=Path, help="folder to write to; it is created")
    add("--overwrite", action="store_true", help="replace files of an earlier version, "
        "and lose what was changed in them")  # fmt: skip
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """List the files, or write those of a kind."""
    if (args.kind is None) != (args.to is None):
        raise ConfigError(["name a kind and --to DIR to write, neither to list"])
    if args.kind is None:
        _list(as_json=args.json)
        return 0
    written = write_files(files_of(args.kind), args.to, overwrite=args.overwrite)
    if args.json:
        print_json({"written": [str(each) for each in written]})
        return 0
    for path in written:
        print(f"wrote {path}")
    if not written:
        print(f"{args.to} has all files of this version")
    return 0


def _list(*, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                kind: {"for": what, "files": list(files_of(kind))}
                for kind, what in KINDS.items()
            }
        )
        return
    for kind, what in KINDS.items():
        print(f"{kind}: {what}")
        for name in files_of(kind):
            print(f"  {name}")
