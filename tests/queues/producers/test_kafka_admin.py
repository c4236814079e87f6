"""What is remembered of the settings of Kafka's topics; the rest: with a broker."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from canal_server.queues.producers import kafka_admin
from canal_server.queues.producers.kafka_admin import KafkaAdmin, TopicSettings
from canal_server.queues.producers.queue_producer import BrokerUnavailableError


class Setting(NamedTuple):
    """A setting as the brokers report it."""

    value: str


class Topics:
    """The settings of topics, and which ones were asked for."""

    def __init__(self) -> None:
        self.limit = "100"
        self.asked: list[str] = []

    def __call__(self, topic: str) -> dict[str, Any]:
        """Answer a question."""
        self.asked.append(topic)
        if topic == "secret":
            return {}
        return {
            "max.message.bytes": Setting(self.limit),
            "cleanup.policy": Setting("compact,delete"),
        }


def test_one_question_for_a_topic() -> None:
    """Both settings come of one answer, also if the account may read neither."""
    topics = Topics()
    settings = TopicSettings(topics)
    for _ in range(3):
        assert settings.limit("a").value == "100"
        assert settings.is_compacted("a")
        assert settings.limit_below("a", 200, settings).value == "100"
        assert settings.limit("secret") is None
        assert settings.limit_below("secret", 5, settings) is None
        assert not settings.is_compacted("secret")
    assert topics.asked == ["a", "secret"]
    settings.clear()
    assert settings.limit("a").value == "100"
    assert topics.asked == ["a", "secret", "a"]


def test_a_lower_limit() -> None:
    """It is found by a message below the known one, with a question an occasion."""
    topics = Topics()
    settings = TopicSettings(topics)
    first, second, third = object(), object(), object()
    assert settings.limit_below("a", 99, first).value == "100"
    topics.limit = "50"
    assert settings.limit_below("a", 99, first).value == "100"
    for _ in range(3):
        assert settings.limit_below("a", 99, second).value == "50"
    for _ in range(3):
        assert settings.limit_below("a", 49, third).value == "50"
    assert topics.asked == ["a"] * 3


def test_a_question_that_fails() -> None:
    """It is not repeated for each message."""
    asked = []

    def ask(topic: str) -> dict[str, Any]:
        asked.append(topic)
        raise TimeoutError

    settings = TopicSettings(ask)
    try:
        settings.limit("a")
    except TimeoutError:
        assert settings.limit("a") is None
    assert asked == ["a"]


def test_no_answer_is_no_lack_of_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that nobody answers for are not read, with that as the reason."""
    pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")
    monkeypatch.setattr(kafka_admin, "ANSWER_S", 0.2)
    servers = "127.0.0.1:1"
    admin = KafkaAdmin({"bootstrap.servers": servers}, servers, lambda: "")
    with pytest.raises(
        BrokerUnavailableError, match="settings of broker 1 of Kafka at"
    ):
        admin.broker_setting(1, "transaction.max.timeout.ms")
    settings, unread = admin.described_topics(["shop"])
    assert settings == {}
    assert unread["shop"].text
    assert not unread["shop"].is_forbidden
