"""`canal-server status`: the state of the server of a conf folder and its cluster."""

from __future__ import annotations

import json
import os
import shlex
import time
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli.actions import add_json_option, print_json
from canal_server.cli.conf_options import add_conf_option
from canal_server.cli.status.status_check import (
    EXIT_STATUS,
    NO_ANSWER,
    NOT_RUNNING,
    Finding,
    Limits,
    findings,
)
from canal_server.cli.status.status_text import (
    ago_text,
    error_text,
    lag_cell,
    standing_lines,
)
from canal_server.cli.time_options import duration, patience
from canal_server.config.load import load, load_data_dir
from canal_server.config.schema import Wiring
from canal_server.daemon.control import (
    ASK_TIMEOUT_S,
    ControlError,
    NoAnswer,
    NoServer,
    ask,
)
from canal_server.errors import ConfigError, ZooKeeperError
from canal_server.ha.cluster_view import look
from canal_server.model.quoted import LINE_MAX, printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from canal_server.config.schema import InstanceConfig

ZOOKEEPER_S: Final = 5.0  # to wait for ZooKeeper, while a person waits
ANSWER_S: Final = ASK_TIMEOUT_S  # to wait for the server
BLOCKED_S: Final = 10.0  # a client may take this long for a batch
SUBSCRIPTIONS_SHOWN: Final = 10  # per destination
HEADINGS: Final = (
    "destination", "state", "runs on", "position", "last change", "lag", "clients",
)  # fmt: skip


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "status",
        help="show the state of a server and of its cluster",
        description="Show the state of the server of a conf folder. If servers share "
        "destinations through ZooKeeper, also show which server runs each. Without a "
        "running server, show only the cluster.",
        epilog=EXIT_STATUS,
    )
    add_conf_option(parser)
    add_json_option(parser)
    add = parser.add_argument
    add("--check", action="store_true", help="check that the server and its "
        "destinations are healthy, print problems, and set the exit "
        "status")  # fmt: skip
    add("--max-lag", type=duration, metavar="TIME", help="with --check: maximum lag of "
        "a destination behind its source, such as 60s (default: no limit)")  # fmt: skip
    add("--max-client-lag", type=duration, metavar="TIME", help="with --check: maximum "
        "age of the first change that a client has not acked (default: no "
        "limit)")  # fmt: skip
    add("--max-blocked", type=duration, metavar="TIME", default=BLOCKED_S, help="with "
        "--check: how long reading may wait for clients (default: "
        "%(default)gs)")  # fmt: skip
    add("--timeout", type=patience, metavar="TIME", help="how long to wait for the "
        f"answer of the server (default: {ANSWER_S:g}s)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the state; if the server does not answer, what is known without it.

    Raises ControlError in that case, and if there is neither a server nor a cluster.
    """
    if args.check:
        return _check(args)
    _refuse_limits(args)
    timeout_s = ANSWER_S if args.timeout is None else args.timeout
    instances = _configured(args.conf)
    clusters = _clusters(instances)
    failure: ControlError | None = None
    try:
        status = ask(load_data_dir(args.conf, os.environ), "status", timeout_s)
    except NoServer:
        if not any("error" not in cluster for cluster in clusters):
            for line in _cluster_lines(clusters):
                print(printable(line, LINE_MAX))
            raise
        status = {"instances": []}
    except ControlError as error:
        failure = error
        status = {
            "error": str(error),
            "instances": [{"destination": each.destination} for each in instances],
        }
    status["clusters"] = clusters
    if args.json:
        print(json.dumps(status, indent=2, ensure_ascii=False))
    else:
        for line in (
            *_server_lines(status),
            *_cluster_lines(clusters),
            *_table(status),
        ):
            print(printable(line, LINE_MAX))
    if failure is not None:
        raise failure
    return 0


def _check(args: argparse.Namespace) -> int:
    """Print what is unhealthy; returns the exit status for it."""
    timeout_s = ANSWER_S if args.timeout is None else args.timeout
    limits = Limits(
        lag_s=args.max_lag,
        client_lag_s=args.max_client_lag,
        blocked_s=args.max_blocked,
    )
    try:
        answer = ask(load_data_dir(args.conf, os.environ), "status", timeout_s)
    except NoServer as error:
        found = [Finding(NOT_RUNNING, str(error))]
    except NoAnswer as error:
        found = [Finding(NO_ANSWER, str(error))]
    else:
        found = findings(answer, limits)
    status = found[0].status if found else 0
    if args.json:
        problems = [{"status": each.status, "problem": each.text} for each in found]
        print_json({"healthy": not found, "status": status, "problems": problems})
    else:
        for each in found:
            print(printable(each.text, LINE_MAX))
        if not found:
            print("healthy")
    return status


def _refuse_limits(args: argparse.Namespace) -> None:
    """Raise ConfigError for limits given without `--check`."""
    for name in ("max_lag", "max_client_lag"):
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            raise ConfigError([f"{option} requires --check"])


def _configured(conf: Path) -> tuple[InstanceConfig, ...]:
    """Return the configured destinations, or none if the settings are invalid."""
    try:
        return load(conf, os.environ).instances
    except ConfigError:
        return ()  # a server may still run with older settings


# --- the clusters ---------------------------------------------------------------------


def _clusters(configured: Sequence[InstanceConfig]) -> list[dict[str, Any]]:
    """Return the state of each ZooKeeper cluster that destinations are shared by."""
    shared: dict[str, list[InstanceConfig]] = {}
    for instance in configured:
        if instance.position.wiring is Wiring.ZOOKEEPER:
            shared.setdefault(instance.position.zookeeper_servers, []).append(instance)
    return [
        _cluster(servers, [each.destination for each in instances])
        for servers, instances in shared.items()
    ]


def _cluster(servers: str, destinations: Sequence[str]) -> dict[str, Any]:
    status: dict[str, Any] = {"zookeeper": servers}
    try:
        view = look(servers, destinations, ZOOKEEPER_S)
    except ZooKeeperError as error:
        return status | {"error": str(error)}
    return status | {
        "servers": view.servers,
        "destinations": {
            name: {"runs_on": each.runs_on, "candidates": each.candidates}
            for name, each in view.destinations.items()
        },
    }


# --- as text --------------------------------------------------------------------------


def _server_lines(status: dict[str, Any]) -> Iterator[str]:
    if "error" in status:
        return  # the caller reports it
    if "pid" not in status:
        yield "no server runs here"
        return
    port = f"port {status['port']}" if status["port"] else "no port"
    stopping = ", stopping" if status["stopping"] else ""
    yield (
        f"canal-server {status['version']}, process {status['pid']}, {port}, up"
        f" {ago_text(status['uptime_s'])}{stopping}"
    )
    for file in status.get("changed_settings", ()):
        yield (
            f"settings: {file} has changed since the start; restart the server to"
            " apply it"
        )


def _cluster_lines(clusters: list[dict[str, Any]]) -> Iterator[str]:
    for cluster in clusters:
        if "error" in cluster:
            yield f"cluster: {cluster['error']}"
        else:
            servers = ", ".join(cluster["servers"]) or "no server"
            yield f"cluster at {cluster['zookeeper']}: {servers}"


def _table(status: dict[str, Any]) -> Iterator[str]:
    """Yield a line per destination; those known only from a cluster come last."""
    shared: dict[str, dict[str, Any]] = {}
    for cluster in status["clusters"]:
        shared |= cluster.get("destinations", {})
    no_server = "unknown" if "error" in status else "none"
    rows = [
        _row(each, shared.get(each["destination"]), no_server)
        for each in status["instances"]
    ]
    known = {each["destination"] for each in status["instances"]}
    rows += [
        _row({"destination": name}, each, no_server)
        for name, each in shared.items()
        if name not in known
    ]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    yield ""
    for row in (HEADINGS, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
    yield from _notes(status)


def _notes(status: dict[str, Any]) -> Iterator[str]:
    """Yield the notes on destinations, which follow the table."""
    for each in status["instances"]:
        yield from _switched(each["destination"], each)
        sources = each.get("sources", ())
        for source in sources:
            yield from _switched(f"{each['destination']}/{source['name']}", source)
        if sources and each.get("error"):
            # A source that waits does not show the errors of the others.
            for source in sources:
                name = f"{each['destination']}/{source['name']}"
                error = error_text(source) if source["error"] else ""
                yield ": ".join(filter(None, (name, source["state"], error)))
        elif each.get("error"):
            yield f"{each['destination']}: {error_text(each)}"
        yield from (f"{each['destination']}: {line}" for line in standing_lines(each))
        for source in (each, *sources):
            yield from _unreadable(each["destination"], source)
        yield from _subscriptions(each, status.get("conf"))
        for note in _client_notes(each):
            yield f"{each['destination']}: {note}"
        if refused := each.get("refused_change"):
            yield f"{each['destination']}: its file was changed: {refused}"
    for name, why in status.get("refused", {}).items():
        yield f"{name}: {why}"


def _unreadable(name: str, source: dict[str, Any]) -> Iterator[str]:
    """Yield the events that could not be decoded, and how they were handled."""
    where = f"{name}/{source['name']}" if "name" in source else name
    for each in source.get("unreadable", ()):
        if each["state"] == "read":
            key = f"canal.instance.{source.get('name', 'master')}.unreadable.events"
            yield (
                f"{where}: event {each['event']} was decoded without an error: remove"
                f" it from {key}"
            )
        elif each["state"] == "passed over":
            table = f", table {each['table']}" if each["table"] else ""
            done = "skipped" if each["action"] == "skip" else "delivered as raw bytes"
            yield (
                f"{where}: event {each['event']} (type {each['event_type']}{table},"
                f" {each['events']} in total) was {done}: {each['error']}"
            )


def _subscriptions(instance: dict[str, Any], conf: str | None) -> Iterator[str]:
    """Yield the positions of ranged readers, and whether a query reads them now."""
    ranges = instance.get("ranges") or {}
    found, queries = ranges.get("subscriptions", {}), ranges.get("queries", {})
    name = instance["destination"]
    for number, (subscription, cursor) in enumerate(sorted(found.items())):
        if number == SUBSCRIPTIONS_SHOWN:
            command = "canal-server subscriptions list"
            command += f" --conf {shlex.quote(conf)}" if conf else ""
            yield f"{name}: … of {len(found)}; see `{command}`"
            return
        read = "read by a query" if subscription in queries else "not read"
        acked_ms = cursor["acked_ms"]
        ago = (
            f", acked {ago_text(time.time() - acked_ms / 1000)} ago" if acked_ms else ""
        )
        at = cursor["position"]
        yield f"{name}: subscription {subscription} at {at}, {read}{ago}"


def _client_notes(instance: dict[str, Any]) -> Iterator[str]:
    """Yield notes on clients that are offline or catch up."""
    yield from instance.get("lost_clients", {}).values()
    for client, lagging in instance.get("late_clients", {}).items():
        if not lagging["in_ring"]:
            yield _lagging(client, lagging)


def _lagging(client: str, lagging: dict[str, Any]) -> str:
    """Return the state of a client whose entries the ring no longer holds."""
    if not lagging["reading"]:
        return f"client {client} is offline for {ago_text(lagging['away_s'] or 0)}"
    where = f", at {lagging['position']}" if lagging["position"] else ""
    why = f": {lagging['error']}" if lagging["error"] else ""
    return f"client {client} is catching up{where}{why}"


def _switched(name: str, source: dict[str, Any]) -> Iterator[str]:
    """Yield which server is read if it changed since the start."""
    if switches := source.get("switches"):
        times = "once" if switches == 1 else f"{switches} times"
        yield f"{name}: reads {source['reads']}, switched {times} since the start"


def _row(
    here: dict[str, Any], shared: dict[str, Any] | None, no_server: str
) -> tuple[str, ...]:
    runs_on = shared["runs_on"] if shared else here.get("runs_on")
    if here.get("running"):
        runs_on = "here" if runs_on is None else f"{runs_on} (here)"
    state = here.get("state") or here.get("life") or "-"
    if here.get("blocked"):
        state = "blocked"
    elif state == "competing" and (here.get("lease") or {}).get("error"):
        state = "no lease"
    changed_ms = here.get("position_ms")
    clients = ", ".join(map(str, here.get("clients", ())))
    return (
        here["destination"],
        state,
        runs_on or no_server,
        here.get("position") or "-",
        f"{ago_text(time.time() - changed_ms / 1000)} ago" if changed_ms else "-",
        lag_cell(here),
        clients or "-",
    )
