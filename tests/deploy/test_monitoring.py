"""The alert rules and the dashboard: valid, and about metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_server import promtool
from server_folders import Unavailable
from server_packages import package_tree

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/canal-server.rules.yml"
DASHBOARD = ROOT / "deploy/grafana/canal-server.json"
METRICS = set(
    re.findall(r"\| `(canal_\w+)` \|", (ROOT / "docs/reference/metrics.md").read_text())
) | {"canal_server_info"}


@pytest.fixture
def _promtool():
    """Skip where Prometheus cannot be had."""
    try:
        package_tree("prometheus", "prometheus")
    except Unavailable as error:
        pytest.skip(str(error))


def named(expression: str) -> set[str]:
    """Return the metrics of ours that an expression names."""
    found = re.findall(r"\bcanal_\w+", expression)
    return {re.sub(r"_(bucket|sum|count)$", "", each) for each in found}


def expressions() -> list[str]:
    """Return all expressions of the dashboard."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [
        target["expr"] for panel in dashboard["panels"] for target in panel["targets"]
    ]
    queries = (each["query"] for each in dashboard["templating"]["list"])
    return found + [each["query"] for each in queries if isinstance(each, dict)]


@pytest.mark.parametrize("expression", expressions())
def test_dashboard_names_metrics_that_exist(expression):
    """Each metric of ours in a panel is in the reference."""
    assert named(expression) <= METRICS


def test_panels_do_not_overlap():
    """Each cell of the dashboard belongs to one panel, and each panel has an id."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for position in [panel["gridPos"]]
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.usefixtures("_promtool")
def test_rules_are_valid():
    """Promtool accepts the rules, and each names metrics that exist."""
    assert "SUCCESS: 8 rules found" in promtool("check", "rules", str(RULES))
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert named(rule["expr"]) <= METRICS
            assert rule["annotations"]["summary"]


LABELS = 'instance="a:1",job="canal",destination="example"'
STATE = f'canal_instance_state{{{LABELS},state="%s"}}'
CASES = {
    "CanalServerDown": {'up{instance="a:1",job="canal"}': "0x10"},
    "CanalDestinationNotRunning": {
        STATE % "dumping": "0x10",
        STATE % "waiting": "1x10",
    },
    "CanalDestinationFailing": {f"canal_instance_failing_seconds{{{LABELS}}}": "61x10"},
    "CanalSourceLag": {f"canal_instance_source_lag_seconds{{{LABELS}}}": "70x10"},
    "CanalClientLag": {f'canal_client_lag_seconds{{{LABELS},client="1"}}': "400x10"},
    "CanalBlockedByClient": {STATE % "blocked_on_client": "1x10"},
    "CanalEventSkipped": {f"canal_instance_skipped_events_total{{{LABELS}}}": "0+1x10"},
    "CanalClientRedelivered": {
        f'canal_client_rollbacks_total{{{LABELS},client="1"}}': "0+10x10"
    },
}


@pytest.mark.usefixtures("_promtool")
@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires(tmp_path, alert):
    """Each alert fires for what it is about, and nothing fires for a healthy server."""
    healthy = {
        'up{instance="a:1",job="canal"}': "1x10",
        STATE % "dumping": "1x10",
        STATE % "waiting": "0x10",
        f"canal_instance_failing_seconds{{{LABELS}}}": "0x10",
        f"canal_instance_source_lag_seconds{{{LABELS}}}": "1x10",
    }
    for case, series, expected in (
        ("healthy", healthy, []),
        ("failing", CASES[alert], [alert]),
    ):
        file = tmp_path / f"{case}.yml"
        file.write_text(json.dumps(rule_test(series, alert, expected)))
        assert "SUCCESS" in promtool("test", "rules", str(file))


def rule_test(series, alert, expected):
    """Return a file for `promtool test rules`."""
    query = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    samples = [{"labels": "{}", "value": len(expected)}] if expected else []
    return {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in series.items()
                ],
                "promql_expr_test": [
                    {"expr": query, "eval_time": "9m", "exp_samples": samples}
                ],
            }
        ],
    }
