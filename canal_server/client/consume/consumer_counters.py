"""What a consumer did so far, as numbers and in the text format of Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class ConsumerCounters:
    """Counters that only grow; other threads may read them at any time."""

    changes: int = 0  # that are flushed, or dead letters
    messages: int = 0  # that were received
    flushes: int = 0
    retries: int = 0
    dead_letters: int = 0
    commit_time_ms: int = 0  # of the newest message


_METRICS: Final = (
    ("changes", "Changes that were handled, or are dead letters."),
    ("messages", "Messages that were received."),
    ("flushes", "Flushes of the handler."),
    ("retries", "Failures of the handler after which it was called again."),
    ("dead_letters", "Changes that were written to the file of dead letters."),
)


def prometheus_text(
    counters: ConsumerCounters, labels: Mapping[str, str], lag_s: float | None
) -> str:
    """Return all counters as metrics `canal_consumer_…`, with these labels."""
    pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    lines = []
    for name, text in _METRICS:
        metric = f"canal_consumer_{name}_total"
        lines += [
            f"# HELP {metric} {text}",
            f"# TYPE {metric} counter",
            f"{metric}{{{pairs}}} {getattr(counters, name)}",
        ]
    if lag_s is not None:
        metric = "canal_consumer_lag_seconds"
        lines += [
            f"# HELP {metric} Age of the newest change received; 0: no more.",
            f"# TYPE {metric} gauge",
            f"{metric}{{{pairs}}} {lag_s:.3f}",
        ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
