"""What the checks of all message queues have in common: their names, and no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.model.check_results import CheckResult, skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.config.schema import DaemonConfig

QUEUE: Final = "message_queue"
TOPICS: Final = "topics"


def skipped_topics(
    config: DaemonConfig, what: str = "topics and their partitions"
) -> Iterator[CheckResult]:
    """Yield for each destination that nothing is known, as no broker answers."""
    for instance in config.instances:
        why = "the brokers do not answer, or cannot be asked"
        yield skip(TOPICS, what, why).of(instance.destination)
