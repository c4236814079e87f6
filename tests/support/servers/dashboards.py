"""The dashboards of `deploy/grafana`, and a real Prometheus that answers their queries.

Fills in what Grafana would: the variables, each with a value that the dashboard offers,
and the window of rates. Leaves out how a panel looks.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from prometheus_server import Prometheus

FOLDER = Path(__file__).parents[3] / "deploy/grafana"
DASHBOARDS = sorted(FOLDER.glob("*.json"))
RATE_WINDOW = "1m"  # Grafana's own for a Prometheus that scrapes each 15 seconds


@dataclass(frozen=True, slots=True)
class Query:
    """What a panel asks for, and the labels that its legend names."""

    panel: str
    expression: str
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable of a dashboard: the values of a label."""

    name: str
    series: str
    label: str


def queries(file: Path) -> Iterator[Query]:
    """Yield the queries of all panels of a dashboard."""
    for panel in json.loads(file.read_text())["panels"]:
        for target in panel["targets"]:
            labels = frozenset(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            yield Query(panel["title"], target["expr"], labels)


def choices(file: Path) -> Iterator[Choice]:
    """Yield the variables of a dashboard, except for its data source."""
    for variable in json.loads(file.read_text())["templating"]["list"]:
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert found, variable
        yield Choice(variable["name"], *found.groups())


def check_dashboard(
    server: Prometheus,
    file: Path,
    chosen: Mapping[str, str] | None = None,
    optional: Collection[str] = (),
) -> None:
    """Wait until each panel shows a number, with the labels that its legend names.

    `chosen`: values of variables, which must be offered; of others, any is taken.
    `optional`: titles of panels that may be empty; their queries must be valid.
    """
    filled = {"__rate_interval": RATE_WINDOW}
    for choice in choices(file):
        series = Template(choice.series).substitute(filled)
        found = server.wait_for(f"group by ({choice.label}) ({series})")
        offered = [each["metric"][choice.label] for each in found]
        value = (chosen or {}).get(choice.name, offered[0])
        assert value in offered
        # As Grafana writes a value into a regular expression between quotes.
        filled[choice.name] = re.escape(value).replace("\\", "\\\\")
    for query in queries(file):
        expression = Template(query.expression).substitute(filled)
        if query.panel in optional:
            server.query(expression)
            continue
        # No number compares with NaN, which a panel would not draw.
        for each in server.wait_for(f"({expression}) >= -Inf"):
            assert query.labels <= each["metric"].keys(), query
