"""What `canal-server check` says of a registry of schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from canal_server.cli.check import queue_checks
from canal_server.queues.producers import kafka_producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_registry import PlainRegistry

pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")

NAME = queue_checks.REGISTRY


@pytest.fixture
def registry(make_registry: Callable[[], PlainRegistry]) -> PlainRegistry:
    """Give a registry."""
    return make_registry()


@pytest.fixture
def of_registry(
    conf_for: Any,
    checked_server: Any,
    check: Any,
    registry: PlainRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., list[tuple[str, str]]]:
    """Give a function that returns what is said of a registry, without brokers."""
    monkeypatch.setattr(kafka_producer, "OPEN_S", 0.01)

    def run(*lines: str, subject: str = "server") -> list[tuple[str, str]]:
        main = [
            "canal.serverMode = kafka", "kafka.bootstrap.servers = 127.0.0.1:9",
            "canal.mq.form = debezium-avro",
            f"canal.mq.schema.registry.url = http://{registry.address}", *lines,
        ]  # fmt: skip
        conf = conf_for(checked_server, main="".join(f"{each}\n" for each in main))
        found: list[tuple[str, str]] = check(conf).of(NAME, subject)
        return found

    return run


def test_a_registry_that_answers(
    of_registry: Callable[..., list[tuple[str, str]]], registry: PlainRegistry
) -> None:
    """It is asked, and nothing is registered."""
    ((outcome, text),) = of_registry()
    assert outcome == "ok"
    assert f"the schema registry at http://{registry.address} answers, 0" in text
    assert {each[0] for each in registry.requests} == {"GET"}


def test_a_login_that_is_refused(
    of_registry: Callable[..., list[tuple[str, str]]], registry: PlainRegistry
) -> None:
    """The reason is there, the password is not."""
    registry.answer = lambda _: (401, 40101)
    ((outcome, text),) = of_registry(
        "canal.mq.schema.registry.user = canal",
        "canal.mq.schema.registry.password = geheim",
    )
    assert outcome == "fail"
    assert "refuses the login" in text
    assert "geheim" not in text


def test_tables_that_share_a_subject(
    of_registry: Callable[..., list[tuple[str, str]]],
) -> None:
    """There is a warning, unless the name of the record is in the subject."""
    ((outcome, text),) = of_registry(subject="example")
    assert outcome == "warn"
    assert "all tables share the subject example-value" in text
    strategy = "canal.mq.schema.registry.subject.name.strategy = RecordNameStrategy"
    assert of_registry(strategy, subject="example") == []
