"""The alert rules and the dashboards: valid, and about metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dashboards import DASHBOARDS, choices, queries
from prometheus_server import promtool
from server_folders import Unavailable
from server_packages import package_tree

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/canal-server.rules.yml"
MIRROR_RULES = ROOT / "deploy/prometheus/canal-mirror.rules.yml"
METRICS = {
    name
    for page in ("metrics.md", "mirror-metrics.md")
    for name in re.findall(
        r"\| `(canal_\w+)` \|", (ROOT / "docs/reference" / page).read_text()
    )
} | {"canal_server_info"}


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
    """Return all expressions of the dashboards."""
    found = []
    for file in DASHBOARDS:
        found += [each.expression for each in queries(file)]
        found += [each.series for each in choices(file)]
    return found


@pytest.mark.parametrize("expression", expressions())
def test_dashboard_names_metrics_that_exist(expression):
    """Each metric of ours in a panel is in the reference."""
    assert named(expression) <= METRICS


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_panels_do_not_overlap(file):
    """Each cell of a dashboard belongs to one panel, and each panel has an id."""
    panels = json.loads(file.read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for position in [panel["gridPos"]]
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert len({panel["id"] for panel in panels}) == len(panels)


def rules_of(file: Path) -> list[dict[str, Any]]:
    """Return the rules of a file."""
    groups = yaml.safe_load(file.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.usefixtures("_promtool")
@pytest.mark.parametrize("file", [RULES, MIRROR_RULES], ids=lambda file: file.name)
def test_rules_are_valid(file):
    """Promtool accepts the rules, each names metrics that exist, and has a test."""
    rules = rules_of(file)
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", str(file))
    for rule in rules:
        assert named(rule["expr"]) <= METRICS
        assert rule["annotations"]["summary"]
    tested = CASES if file == RULES else MIRROR_CASES
    assert [rule["alert"] for rule in rules] == list(tested)


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
    "CanalClientLost": {
        f'canal_client_state{{{LABELS},client="1",state="lost"}}': "1x10"
    },
    "CanalBlockedByClient": {STATE % "blocked_on_client": "1x10"},
    "CanalDeliveryStopped": {
        f'canal_delivery_state{{{LABELS},state="stopped"}}': "1x10"
    },
    "CanalDeliveryFailing": {
        f"canal_delivery_failing_seconds{{{LABELS}}}": "121x10",
        f'canal_delivery_state{{{LABELS},state="stopped"}}': "0x10",
    },
    "CanalDeliveryLag": {
        f'canal_client_lag_seconds{{{LABELS},client="1001"}}': "70x10",
        f'canal_delivery_state{{{LABELS},state="delivering"}}': "1x10",
        f'canal_delivery_state{{{LABELS},state="stopped"}}': "0x10",
    },
    "CanalCertificateExpires": {
        f"canal_certificate_expiry_seconds{{{LABELS}}}": "1209000-60x10"
    },
    "CanalEventSkipped": {f"canal_instance_skipped_events_total{{{LABELS}}}": "0+1x10"},
    "CanalClientRedelivered": {
        f'canal_client_rollbacks_total{{{LABELS},client="1"}}': "0+10x10"
    },
    "CanalTablesUncertain": {f"canal_instance_uncertain_tables{{{LABELS}}}": "2x10"},
    "CanalZooKeeperDisconnected": {
        'canal_zookeeper_connected{instance="a:1",job="canal",zookeeper="z"}': "0x10"
    },
    "CanalRangeNotRead": {
        f'canal_range_unacked_seconds{{{LABELS},subscription="s"}}': "3601x10"
    },
}


MIRROR = 'instance="a:1",job="canal-mirror",mirror="m"'
TABLE = f'{MIRROR},table="s.t"'
QUERY = 'instance="a:1",job="canal-spark",query="q"'
MIRROR_CASES = {
    "CanalMirrorDown": {'up{instance="a:1",job="canal-mirror"}': "0x20"},
    "CanalMirrorFailing": {f"canal_mirror_failing_seconds{{{MIRROR}}}": "121x20"},
    "CanalMirrorLag": {f"canal_mirror_lag_seconds{{{MIRROR}}}": "400x20"},
    "CanalMirrorRestarting": {
        f"canal_mirror_stream_restarts_total{{{MIRROR}}}": "0+2x20"
    },
    "CanalMirrorTableStopped": {
        f'canal_mirror_table_state{{{TABLE},state="stopped"}}': "1x20"
    },
    "CanalMirrorTableCopiedAgain": {
        f"canal_mirror_table_copies_total{{{TABLE}}}": "1+1x20"
    },
    "CanalMirrorTableDiffers": {
        f'canal_mirror_table_verified{{{TABLE},outcome="different"}}': "1x20"
    },
    "CanalMirrorTableNotCompared": {
        "canal_mirror_messages_total"
        f'{{{TABLE},level="warning",message="mirror-table-not-compared"}}': "1+1x20"
    },
    "CanalMirrorUpkeepFailing": {
        "canal_mirror_messages_total"
        f'{{{TABLE},level="warning",message="mirror-upkeep-failed"}}': "1+1x20"
    },
    "CanalMirrorWithoutExecutors": {f"canal_mirror_spark_waiting{{{MIRROR}}}": "1x20"},
    "CanalSparkQueryFailed": {f"canal_spark_failures_total{{{QUERY}}}": "0+1x20"},
    "CanalSparkQueryNotRunning": {f"canal_spark_running{{{QUERY}}}": "0x20"},
    "CanalSparkQueryLag": {
        f'canal_spark_lag_seconds{{{QUERY},destination="d"}}': "400x20"
    },
    "CanalSparkQuerySilent": {
        f"canal_spark_last_report_timestamp_seconds{{{QUERY}}}": "0x20",
        f"canal_spark_running{{{QUERY}}}": "1x20",
    },
}
MIRROR_HEALTHY = {
    'up{instance="a:1",job="canal-mirror"}': "1x20",
    f"canal_mirror_failing_seconds{{{MIRROR}}}": "0x20",
    f"canal_mirror_lag_seconds{{{MIRROR}}}": "1x20",
    f"canal_mirror_stream_restarts_total{{{MIRROR}}}": "0x20",
    f'canal_mirror_table_state{{{TABLE},state="stopped"}}': "0x20",
    f"canal_mirror_table_copies_total{{{TABLE}}}": "1x20",
    f'canal_mirror_table_verified{{{TABLE},outcome="different"}}': "0x20",
    f"canal_mirror_spark_waiting{{{MIRROR}}}": "0x20",
    f"canal_spark_failures_total{{{QUERY}}}": "0x20",
    f"canal_spark_running{{{QUERY}}}": "1x20",
    f'canal_spark_lag_seconds{{{QUERY},destination="d"}}': "1x20",
    f"canal_spark_last_report_timestamp_seconds{{{QUERY}}}": "0+60x20",
}


@pytest.mark.usefixtures("_promtool")
@pytest.mark.parametrize("alert", MIRROR_CASES)
def test_an_alert_of_mirrors_fires(tmp_path, alert):
    """Each alert fires for what it is about, and nothing fires for a healthy mirror."""
    check_alert(tmp_path, MIRROR_RULES, alert, MIRROR_HEALTHY, MIRROR_CASES[alert])


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
        f'canal_delivery_state{{{LABELS},state="stopped"}}': "0x10",
        f"canal_delivery_failing_seconds{{{LABELS}}}": "0x10",
        f'canal_client_lag_seconds{{{LABELS},client="1001"}}': "1x10",
    }
    check_alert(tmp_path, RULES, alert, healthy, CASES[alert])


@pytest.mark.usefixtures("_promtool")
def test_a_delivery_that_has_stopped(tmp_path):
    """It is one alert: that it has stopped, not that it fails, which is for retries."""
    stopped = {
        f"canal_delivery_failing_seconds{{{LABELS}}}": "3600x10",
        f'canal_delivery_state{{{LABELS},state="stopped"}}': "1x10",
    }
    for alert, expected in (
        ("CanalDeliveryStopped", ["CanalDeliveryStopped"]),
        ("CanalDeliveryFailing", []),
    ):
        file = tmp_path / f"{alert}.yml"
        file.write_text(json.dumps(rule_test(RULES, stopped, alert, expected)))
        assert "SUCCESS" in promtool("test", "rules", str(file))


@pytest.mark.usefixtures("_promtool")
@pytest.mark.parametrize("is_delivery", [False, True])
def test_the_lag_of_a_delivery(tmp_path, is_delivery):
    """It is one alert, and not that of a client, though it has the id of one."""
    series = {f'canal_client_lag_seconds{{{LABELS},client="1001"}}': "400x10"}
    if is_delivery:
        series[f'canal_delivery_state{{{LABELS},state="blocked"}}'] = "1x10"
    for alert, fires in (
        ("CanalClientLag", not is_delivery),
        ("CanalDeliveryLag", is_delivery),
    ):
        file = tmp_path / f"{alert}.yml"
        expected = [alert] if fires else []
        file.write_text(json.dumps(rule_test(RULES, series, alert, expected)))
        assert "SUCCESS" in promtool("test", "rules", str(file))


def check_alert(folder, rules, alert, healthy, failing):
    """Check an alert with both series."""
    for case, series, expected in (
        ("healthy", healthy, []),
        ("failing", failing, [alert]),
    ):
        file = folder / f"{case}.yml"
        file.write_text(json.dumps(rule_test(rules, series, alert, expected)))
        assert "SUCCESS" in promtool("test", "rules", str(file))


def rule_test(rules, series, alert, expected):
    """Return a file for `promtool test rules`."""
    query = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    samples = [{"labels": "{}", "value": len(expected)}] if expected else []
    return {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": "20m" if rules == MIRROR_RULES else "9m",
                        "exp_samples": samples,
                    }
                ],
            }
        ],
    }
