"""Metrics as text."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from canal_server.doors.prometheus.metric_families import Families
from canal_server.doors.prometheus.metrics_text import MetricsText

VALUES = (0, 1, 1.5, -2.25, 1e-7, 999_999.5, 1e6, 2.0**53, 1e300, math.inf, -math.inf)
TEXTS = ("plain", 'a "quoted" one', "back\\slash", "two\nlines", "\\n", "Zürich", "")


def text_of(families: Families) -> str:
    """Return the lines of metrics, without those of the process."""
    text = MetricsText(families.all, limited=lambda _: families.all())
    return text.text(lambda _: True).decode()


@pytest.mark.parametrize("value", VALUES)
def test_numbers(value):
    """A reader of the format gets the number that was given."""
    families = Families()
    families.gauge("canal_a", "A", value, destination="d")
    (family,) = text_string_to_metric_families(text_of(families))
    assert family.samples[0].value == value


def test_what_is_no_number():
    """Not a number is written as such."""
    families = Families()
    families.gauge("canal_a", "A", math.nan)
    assert text_of(families).endswith("\ncanal_a NaN\n")


@pytest.mark.parametrize("text", TEXTS)
def test_labels_and_help(text):
    """Whatever labels and descriptions have, a reader of the format gets it."""
    families = Families()
    families.gauge("canal_a", text, 1, destination=text, other="x")
    families.gauge("canal_a", text, 2, destination="y", other=text)
    (family,) = text_string_to_metric_families(text_of(families))
    assert family.documentation == text
    assert [each.labels for each in family.samples] == [
        {"destination": text, "other": "x"},
        {"destination": "y", "other": text},
    ]


def test_names_of_counters():
    """A counter has one name in all its lines, with `_total` or without."""
    families = Families()
    families.counter("canal_rows_total", "R", 3, destination="d")
    families.counter("canal_events", "E", 4, destination="d")
    assert text_of(families) == (
        "# HELP canal_rows_total R\n# TYPE canal_rows_total counter\n"
        'canal_rows_total{destination="d"} 3.0\n'
        "# HELP canal_events E\n# TYPE canal_events counter\n"
        'canal_events{destination="d"} 4.0\n'
    )


def test_histograms():
    """A reader of the format gets buckets, sum and count."""
    families = Families()
    families.histogram(
        "canal_h",
        "H",
        {"destination": "d"},
        bounds=("1", "+Inf"),
        numbers=(2, 1),
        sum_=4.5,
    )
    (family,) = text_string_to_metric_families(text_of(families))
    found = {(each.name, each.labels.get("le")): each.value for each in family.samples}
    assert found == {
        ("canal_h_bucket", "1"): 2,
        ("canal_h_bucket", "+Inf"): 3,
        ("canal_h_count", None): 3,
        ("canal_h_sum", None): 4.5,
    }
