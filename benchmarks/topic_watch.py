"""When the first and the last row of a load are in Kafka, whoever delivers them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from latency import ROW_MARK

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.02
ANSWER_S = 30.0
PATIENCE_S = 900.0
END_TOPIC = "finish"  # at the end of its name


class TopicWatch:
    """A topic for the rows of a load, and one for the row that ends it.

    Both are created; the row that ends a load is to be routed to `end`.
    """

    def __init__(self, servers: str, name: str, partitions: int) -> None:
        import confluent_kafka.admin  # noqa: PLC0415  # an extra

        self.name, self.end = name, f"{name}-{END_TOPIC}"
        self._kafka: Any = confluent_kafka
        admin: Any = confluent_kafka.admin
        # It must live until the results are there.
        client = admin.AdminClient({"bootstrap.servers": servers})
        made = client.create_topics(
            [
                admin.NewTopic(self.name, partitions, 1),
                admin.NewTopic(self.end, partitions, 1),
            ]
        )
        for each in made.values():
            each.result(ANSWER_S)
        self._partitions = partitions
        self._consumer: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": name}
        )
        self._wait_for_leaders()

    def wait_for_first(self, alive: Callable[[], bool]) -> None:
        """Wait for the first row.

        Raises TimeoutError when none comes, or who delivers is not alive.
        """
        self._wait_for(self.name, alive)

    def seconds(self, alive: Callable[[], bool]) -> float:
        """Return the time from the first row to the last one.

        Raises TimeoutError when nothing ends it, or who delivers is not alive.
        """
        self._wait_for(self.name, alive)
        began_at = time.monotonic()
        self._wait_for(self.end, alive)
        return time.monotonic() - began_at

    def _wait_for(self, topic: str, alive: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._count(topic):
            if time.monotonic() > give_up_at or not alive():
                raise TimeoutError(
                    f"{self._count(self.name)} messages, and none of {topic}"
                )
            time.sleep(POLL_S)

    def follow(self) -> None:
        """Begin at the end of the topic, of one partition, for `collect`."""
        end = self._count(self.name)
        self._consumer.assign([self._kafka.TopicPartition(self.name, 0, end)])

    def collect(self, keys: range) -> dict[int, float]:
        """Receive until the row of every key is there; return when each arrived.

        Raises TimeoutError.
        """
        arrived: dict[int, float] = {}
        while len(arrived) < len(keys):
            message = self._consumer.poll(ANSWER_S)
            now = time.monotonic()
            if message is None or message.error():
                missing = len(keys) - len(arrived)
                raise TimeoutError(f"{missing} rows did not come")
            for found in ROW_MARK.findall(message.value()):
                if int(found) in keys:
                    arrived.setdefault(int(found), now)
        return arrived

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _wait_for_leaders(self) -> None:
        """Wait until a broker answers for each partition, which new ones lack."""
        give_up_at = time.monotonic() + ANSWER_S
        while True:
            try:
                self._count(self.name)
                self._count(self.end)
            except self._kafka.KafkaException:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(POLL_S)
            else:
                return

    def _count(self, topic: str) -> int:
        """Return how many messages a topic has."""
        return sum(
            self._consumer.get_watermark_offsets(
                self._kafka.TopicPartition(topic, number), ANSWER_S
            )[1]
            for number in range(self._partitions)
        )
