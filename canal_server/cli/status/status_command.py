"""`canal-server status`: what the server of a conf folder does, and its cluster."""

from __future__ import annotations

import json
import os
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

ZOOKEEPER_S: Final = 5.0  # for ZooKeeper to answer; a person waits
ANSWER_S: Final = ASK_TIMEOUT_S  # for the server to answer
BLOCKED_S: Final = 10.0  # as long as a client may well think about a batch
SUBSCRIPTIONS_SHOWN: Final = 10  # of a destination
HEADINGS: Final = (
    "destination", "state", "runs on", "position", "last change", "lag", "clients",
)  # fmt: skip


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command."""
    parser = subparsers.add_parser(
        "status",
        help="show what a server does, and who runs what in its cluster",
        description="Show what the server of a conf folder does, and, where servers "
        "share destinations by ZooKeeper, which one runs each. Without a server the "
        "cluster is shown alone.",
        epilog=EXIT_STATUS,
    )
    add_conf_option(parser)
    add_json_option(parser)
    add = parser.add_argument
    add("--check", action="store_true", help="say by the exit status whether the "
        "server and its destinations are healthy, and print what is not")  # fmt: skip
    add("--max-lag", type=duration, metavar="TIME", help="with --check: how far a "
        "destination may be behind its source, as 60s (default: no limit)")  # fmt: skip
    add("--max-client-lag", type=duration, metavar="TIME", help="with --check: how old "
        "the first change may be that a client has not acked (default: no "
        "limit)")  # fmt: skip
    add("--max-blocked", type=duration, metavar="TIME", default=BLOCKED_S, help="with "
        "--check: how long reading may wait for clients (default: "
        "%(default)gs)")  # fmt: skip
    add("--timeout", type=patience, metavar="TIME", help="how long the server may take "
        f"to answer (default: {ANSWER_S:g}s)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print it; what is known without the server when that does not answer.

    Raises ControlError then, and when there is no server, and no cluster either.
    """
    if args.check:
        return _check(args)
    _refuse_limits(args)
    timeout_s = ANSWER_S if args.timeout is None else args.timeout
    instances = _configured(args.conf)
    clusters = _clusters(instances)
    failure: ControlError | None = None
    try:
        told = ask(load_data_dir(args.conf, os.environ), "status", timeout_s)
    except NoServer:
        if not any("error" not in cluster for cluster in clusters):
            for line in _cluster_lines(clusters):
                print(printable(line, LINE_MAX))
            raise
        told = {"instances": []}
    except ControlError as error:
        failure = error
        told = {
            "error": str(error),
            "instances": [{"destination": each.destination} for each in instances],
        }
    told["clusters"] = clusters
    if args.json:
        print(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        for line in (*_server_lines(told), *_cluster_lines(clusters), *_table(told)):
            print(printable(line, LINE_MAX))
    if failure is not None:
        raise failure
    return 0


def _check(args: argparse.Namespace) -> int:
    """Print what is not healthy; returns the exit status that says so."""
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
    """Raise ConfigError for limits that nothing is compared with."""
    for name in ("max_lag", "max_client_lag"):
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            raise ConfigError([f"{option} is for --check"])


def _configured(conf: Path) -> tuple[InstanceConfig, ...]:
    """Return the destinations as they are configured, if that can be read."""
    try:
        return load(conf, os.environ).instances
    except ConfigError:
        return ()  # the server may run all the same, with settings of before


# --- the clusters ---------------------------------------------------------------------


def _clusters(configured: Sequence[InstanceConfig]) -> list[dict[str, Any]]:
    """Return what each ZooKeeper tells that destinations are shared by."""
    shared: dict[str, list[InstanceConfig]] = {}
    for instance in configured:
        if instance.position.wiring is Wiring.ZOOKEEPER:
            shared.setdefault(instance.position.zookeeper_servers, []).append(instance)
    return [
        _cluster(servers, [each.destination for each in instances])
        for servers, instances in shared.items()
    ]


def _cluster(servers: str, destinations: Sequence[str]) -> dict[str, Any]:
    told: dict[str, Any] = {"zookeeper": servers}
    try:
        view = look(servers, destinations, ZOOKEEPER_S)
    except ZooKeeperError as error:
        return told | {"error": str(error)}
    return told | {
        "servers": view.servers,
        "destinations": {
            name: {"runs_on": each.runs_on, "candidates": each.candidates}
            for name, each in view.destinations.items()
        },
    }


# --- as text --------------------------------------------------------------------------


def _server_lines(told: dict[str, Any]) -> Iterator[str]:
    if "error" in told:
        return  # it is told on its own
    if "pid" not in told:
        yield "no server runs here"
        return
    port = f"port {told['port']}" if told["port"] else "no port"
    stopping = ", stopping" if told["stopping"] else ""
    yield (
        f"canal-server {told['version']}, process {told['pid']}, {port}, up"
        f" {ago_text(told['uptime_s'])}{stopping}"
    )


def _cluster_lines(clusters: list[dict[str, Any]]) -> Iterator[str]:
    for cluster in clusters:
        if "error" in cluster:
            yield f"cluster: {cluster['error']}"
        else:
            servers = ", ".join(cluster["servers"]) or "no server"
            yield f"cluster at {cluster['zookeeper']}: {servers}"


def _table(told: dict[str, Any]) -> Iterator[str]:
    """Yield a line per destination, those that only a cluster tells of at the end."""
    shared: dict[str, dict[str, Any]] = {}
    for cluster in told["clusters"]:
        shared |= cluster.get("destinations", {})
    nobody = "unknown" if "error" in told else "nobody"
    rows = [
        _row(each, shared.get(each["destination"]), nobody)
        for each in told["instances"]
    ]
    known = {each["destination"] for each in told["instances"]}
    rows += [
        _row({"destination": name}, each, nobody)
        for name, each in shared.items()
        if name not in known
    ]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    yield ""
    for row in (HEADINGS, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
    yield from _notes(told)


def _notes(told: dict[str, Any]) -> Iterator[str]:
    """Yield what is to be told of some destinations, below the table."""
    for each in told["instances"]:
        yield from _switched(each["destination"], each)
        sources = each.get("sources", ())
        for source in sources:
            yield from _switched(f"{each['destination']}/{source['name']}", source)
        if sources and each.get("error"):
            # One that waits says nothing of the others.
            for source in sources:
                name = f"{each['destination']}/{source['name']}"
                error = error_text(source) if source["error"] else ""
                yield ": ".join(filter(None, (name, source["state"], error)))
        elif each.get("error"):
            yield f"{each['destination']}: {error_text(each)}"
        yield from (f"{each['destination']}: {line}" for line in standing_lines(each))
        for source in (each, *sources):
            yield from _unreadable(each["destination"], source)
        yield from _subscriptions(each)
        for told_of_client in _client_notes(each):
            yield f"{each['destination']}: {told_of_client}"
        if refused := each.get("refused_change"):
            yield f"{each['destination']}: its file was changed: {refused}"
    for name, why in told.get("refused", {}).items():
        yield f"{name}: {why}"


def _unreadable(name: str, source: dict[str, Any]) -> Iterator[str]:
    """Tell what became of the events that may be passed over."""
    where = f"{name}/{source['name']}" if "name" in source else name
    for each in source.get("unreadable", ()):
        if each["state"] == "read":
            key = f"canal.instance.{source.get('name', 'master')}.unreadable.events"
            yield (
                f"{where}: event {each['event']} was read without an error: take it out"
                f" of {key}"
            )
        elif each["state"] == "passed over":
            table = f", table {each['table']}" if each["table"] else ""
            done = "left out" if each["action"] == "skip" else "delivered as raw bytes"
            yield (
                f"{where}: event {each['event']} (type {each['event_type']}{table},"
                f" {each['events']} in all) was {done}: {each['error']}"
            )


def _subscriptions(instance: dict[str, Any]) -> Iterator[str]:
    """Tell where ranged readers stand, and which of them are there."""
    ranges = instance.get("ranges") or {}
    found, queries = ranges.get("subscriptions", {}), ranges.get("queries", {})
    name = instance["destination"]
    for number, (subscription, place) in enumerate(sorted(found.items())):
        if number == SUBSCRIPTIONS_SHOWN:
            yield f"{name}: … of {len(found)}; see `canal-server subscriptions list`"
            return
        read = "read by a query" if subscription in queries else "not read"
        acked_ms = place["acked_ms"]
        ago = (
            f", acked {ago_text(time.time() - acked_ms / 1000)} ago" if acked_ms else ""
        )
        yield f"{name}: subscription {subscription} at {place['position']}, {read}{ago}"


def _client_notes(instance: dict[str, Any]) -> Iterator[str]:
    """Yield what is to be told of clients that are not served like others."""
    yield from instance.get("lost_clients", {}).values()
    for client, late in instance.get("late_clients", {}).items():
        if not late["in_ring"]:
            yield _late(client, late)


def _late(client: str, late: dict[str, Any]) -> str:
    """Tell of a client for which the ring does not hold entries any more."""
    if not late["reading"]:
        return f"client {client} is away for {ago_text(late['away_s'] or 0)}"
    where = f", at {late['position']}" if late["position"] else ""
    why = f": {late['error']}" if late["error"] else ""
    return f"client {client} catches up{where}{why}"


def _switched(name: str, source: dict[str, Any]) -> Iterator[str]:
    """Tell which server is read when that is not the one of the start any more."""
    if switches := source.get("switches"):
        times = "once" if switches == 1 else f"{switches} times"
        yield f"{name}: reads {source['reads']}, changed {times} since the start"


def _row(
    here: dict[str, Any], shared: dict[str, Any] | None, nobody: str
) -> tuple[str, ...]:
    runs_on = shared["runs_on"] if shared else here.get("runs_on")
    if here.get("running"):
        runs_on = "here" if runs_on is None else f"{runs_on} (here)"
    state = here.get("state") or here.get("life") or "-"
    if here.get("blocked"):
        state = "blocked"
    changed_ms = here.get("position_ms")
    clients = ", ".join(map(str, here.get("clients", ())))
    return (
        here["destination"],
        state,
        runs_on or nobody,
        here.get("position") or "-",
        f"{ago_text(time.time() - changed_ms / 1000)} ago" if changed_ms else "-",
        lag_cell(here),
        clients or "-",
    )
