"""`canal-server check`: everything that must hold, one line for each thing."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from canal_server.capture.source_parts import access_of, standby_access_of
from canal_server.cli import FAILED, UNUSABLE
from canal_server.cli.actions import add_listing_options, print_json
from canal_server.cli.check.history_checks import check_history
from canal_server.cli.check.host_checks import check_host
from canal_server.cli.check.queue_checks import check_queue
from canal_server.cli.conf_options import load_chosen
from canal_server.cli.position.position_found import find_cursors
from canal_server.cursor_moves.source_cursors import parts_of
from canal_server.delivery.queue_delivery import check_deliverable
from canal_server.errors import CanalError, ConfigError
from canal_server.model.check_results import CheckResult, Outcome, fail, ok, skip, warn
from canal_server.model.cursors import DestinationCursors
from canal_server.model.positions import LogIdentity
from canal_server.model.quoted import LINE_MAX, printable
from canal_server.position.offline import read_stored
from canal_server.source.begin.source_servers import MASTER, STANDBY, standby_start
from canal_server.source.check.checked_source import CheckedSource
from canal_server.source.check.source_check import check_source

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from canal_server.config.schema import DaemonConfig, HostConfig, InstanceConfig
    from canal_server.cursor_moves.source_cursors import Part
    from canal_server.mysql.source_settings import Access

AT_A_TIME: Final = 16  # destinations that are checked together
SERVER: Final = "server"  # the subject of what concerns no single destination
CONF: Final = "conf"
EXIT_STATUS: Final = (
    "Exit status: 0 all checks pass, warnings included; 1 something fails; 2 invalid"
    " settings or options; 130 interrupted by Ctrl-C."
)
WORDS: Final = {
    Outcome.OK: "ok",
    Outcome.WARN: "warn",
    Outcome.FAIL: "FAIL",
    Outcome.SKIP: "skip",
}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "check",
        help="check settings, sources and privileges before a start",
        description="Check everything that must hold for a server to run with a conf"
        " folder: settings, data folder, disk, ports, ZooKeeper, and for each"
        " destination its servers, their settings, the privileges of the account, the"
        " filter, stored positions, the table history, and the topics of a message"
        " queue. Print a line for each thing:"
        " ok, warn, FAIL or skip, with the statement or the key that corrects it."
        " Change nothing.",
        epilog=EXIT_STATUS,
    )
    add_listing_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print what the checks find; returns the exit status."""
    try:
        config = load_chosen(args.conf, args.destination, os.environ)
        check_deliverable(config.instances, config.server.queue)
    except ConfigError as error:
        if all(each.startswith("--destination ") for each in error.problems):
            raise  # wrong use, not wrong settings
        _print(args, _invalid(error))
        return UNUSABLE
    results = check_all(config)
    _print(args, results)
    is_wrong = any(each.outcome is Outcome.FAIL for each in results)
    return FAILED if is_wrong else 0


# --- the checks -----------------------------------------------------------------------


def _invalid(error: ConfigError) -> list[CheckResult]:
    """Return all problems of the settings, without which nothing else is checked."""
    return [
        *(fail("settings", each).of(CONF) for each in error.problems),
        *(warn("settings", each).of(CONF) for each in error.warnings),
        skip("sources", "everything else", "the settings are invalid").of(CONF),
    ]


def check_all(config: DaemonConfig) -> list[CheckResult]:
    """Return what all checks find, in the order of the settings."""
    number = len(config.instances)
    text = f"the settings of {config.conf_dir} are valid"
    results = [
        ok("settings", f"{text} ({number} destination{'' if number == 1 else 's'})"),
        *(warn("settings", each) for each in config.warnings),
    ]
    results = [each.of(CONF) for each in results]
    of_host, running = check_host(config)
    results += [each.of(SERVER) for each in of_host]
    with ThreadPoolExecutor(AT_A_TIME, "check") as pool:
        for found in pool.map(
            lambda each: check_destination(
                each, config, is_running=running is not None
            ),
            config.instances,
        ):
            results += found
    return [*results, *check_queue(config, SERVER)]


def check_destination(
    instance: InstanceConfig, config: DaemonConfig, *, is_running: bool
) -> list[CheckResult]:
    """Return what the checks of one destination find, source by source."""
    results: list[CheckResult] = []
    cursors, runs, error = DestinationCursors(()), False, ""
    try:
        if is_running:
            found = find_cursors(instance, config.data_dir)
            cursors, runs, error = found.cursors, found.running, found.error
        else:
            cursors = read_stored(instance).cursors
    except CanalError as error:
        results.append(
            fail("stored_positions", f"the positions of clients: {error}").of(
                instance.destination
            )
        )
    for part in parts_of(instance, cursors):
        results += _check_part(
            part,
            config.server.tls.expiry_warning_days,
            is_running=runs,
            is_reading=runs and not error,
        )
    return results


def _check_part(
    part: Part, warning_days: int, *, is_running: bool, is_reading: bool
) -> Iterator[CheckResult]:
    """Yield what the checks of one source find: of its history and its servers."""
    name = part.config.destination
    yield check_history(part.config).of(name)
    for role, access, host in _servers(part.config):
        subject = name if role == MASTER else f"{name} {role}"
        checked = CheckedSource(
            config=part.config,
            role=role,
            host=host,
            identity=LogIdentity(access.address.host, access.address.port),
            host_name=socket.gethostname(),
            cursors=part.cursors.clients,
            is_running=is_running,
            is_reading=is_reading,
            expiry_warning_days=warning_days,
        )
        for each in check_source(access, checked):
            yield each.of(subject)


def _servers(config: InstanceConfig) -> Iterator[tuple[str, Access, HostConfig]]:
    source = config.source
    yield MASTER, access_of(source, config.destination), source.master
    standby = standby_access_of(source)
    if standby is not None:
        yield STANDBY, standby, standby_start(source.master, source.standby)


# --- the output -----------------------------------------------------------------------


def _print(args: argparse.Namespace, results: Sequence[CheckResult]) -> None:
    if args.json:
        print_json(as_json(results))
        return
    for each in results:
        line = f"{WORDS[each.outcome]:<5} {each.subject}: {each.message}"
        print(printable(line, LINE_MAX))


def as_json(results: Sequence[CheckResult]) -> dict[str, Any]:
    """Return the results for programs."""
    return {
        "ok": not any(each.outcome is Outcome.FAIL for each in results),
        "checks": [
            {
                "check": each.check,
                "subject": each.subject,
                "outcome": each.outcome.value,
                "text": each.text,
                "remedy": each.remedy or None,
            }
            for each in results
        ],
    }
