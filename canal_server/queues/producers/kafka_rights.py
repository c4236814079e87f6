"""Asks Kafka for the rights that exactly once needs, and stores nothing there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from canal_server.queues.producers.kafka_producer import OPEN_S, KafkaProducer
from canal_server.queues.producers.kafka_transactions import (
    NOT_ALLOWED,
    TIMEOUT_KEY,
    creation_of_position,
    timeout_of,
)
from canal_server.queues.producers.queue_producer import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

_POLL_S: Final = 0.2
ANSWER_S: Final = 15.0  # a new cluster prepares itself for its first transactions
# Brokers look at the rights first, then at the timeout, and only then at who uses the
# transactional id: one that none of them allows shows the rights, while the server that
# delivers is not disturbed.
_REFUSED_MS: Final = str(2**31 - 1)
LIMIT_KEY: Final = "transaction.max.timeout.ms"


class TransactionRights(KafkaProducer):
    """What an account may do with a transactional id, and the topic of that name.

    `replicas` are those of the topic.
    """

    def __init__(
        self, settings: Mapping[str, str], topic: str, *, purpose: str, replicas: int
    ) -> None:
        self.topic = topic
        self.timeout_ms = timeout_of(settings)
        self._replicas = replicas
        super().__init__(
            {**settings, TIMEOUT_KEY: _REFUSED_MS},
            purpose=purpose,
            fixed={"transactional.id": topic, "message.timeout.ms": _REFUSED_MS},
        )

    def why_no_transactions(self) -> str:
        """Return why the account cannot use the transactional id; empty: it can.

        Raises BrokerUnavailableError, also for brokers that cannot be asked.
        """
        if self.timeout_max() == _REFUSED_MS:
            raise BrokerUnavailableError(
                f"{LIMIT_KEY} of the brokers allows everything, so that to ask would"
                " end a transaction of a server that delivers"
            )
        codes = self._kafka.KafkaError
        give_up_at = time.monotonic() + ANSWER_S
        while True:
            try:
                self._producer.init_transactions(OPEN_S)
            except self._kafka.KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and time.monotonic() < give_up_at:
                    self.poll(_POLL_S)  # some are reported at once
                    continue
                if cause.code() == codes.INVALID_TRANSACTION_TIMEOUT:
                    return ""
                if cause.code() == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                    return NOT_ALLOWED
                raise self._unavailable(error) from None
            return ""

    def why_no_position(self) -> tuple[str, bool]:
        """Return why the position cannot be stored, and whether its topic is there.

        An empty reason: it can be. Raises BrokerUnavailableError.
        """
        topic = self.topic
        if topic in self.topics():
            denied = self.admin().denied([topic], "Read", "Write").get(topic)
            if denied is None:
                return "", True
            may_not = " or ".join(each.lower() for each in denied)
            needed = "allow Read, Write and Describe on it"
            return f"the account may not {may_not} topic {topic}: {needed}", True
        creation = creation_of_position(self._replicas)
        why_not = self.admin().why_not_created({topic: 1}, creation)[topic]
        if why_not is not None:
            return why_not, False
        return (
            f"the account may not see topic {topic}, which exists: allow Read, Write"
            " and Describe on it"
        ), True

    def timeout_max(self) -> str:
        """Return the longest timeout of transactions; empty: it is not known.

        Raises BrokerUnavailableError.
        """
        return self.broker_setting(LIMIT_KEY)
