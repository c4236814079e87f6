"""The kinds of message queues, and errors of their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fix_conf import ACCOUNT

from canal_server.config.load import load
from canal_server.delivery.queue_kinds import kind_of
from canal_server.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

INSTANCE = f"canal.instance.master.address = db:3306\n{ACCOUNT}"
SERVERS = "kafka.bootstrap.servers = a:9092"


@pytest.fixture
def problems(make_conf: Any) -> Callable[..., list[str]]:
    """Give a function that returns what is wrong with lines of canal.properties."""

    def run(*lines: str, mode: str = "kafka") -> list[str]:
        main = (f"canal.destinations = example\ncanal.serverMode = {mode}", *lines)
        conf = make_conf("\n".join(main) + "\n", example=INSTANCE)
        with pytest.raises(ConfigError) as raised:
            kind_of(load(conf, {}).server.queue).producer(None)
        return [each.replace(str(conf), "CONF") for each in raised.value.problems]

    return run


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("kafka.linger.ms = soon", "kafka.linger.ms = soon: write a number"),
        ("canal.mq.lingerMs = soon", "canal.mq.lingerMs = soon: write a number"),
        ("kafka.lingr.ms = 5", "kafka.lingr.ms: no setting of Kafka's producer"),
        ("kafka.retry = 5", "kafka.retry: no setting of Kafka's producer"),
        ("canal.mq.maxRequestSize = 5", "canal.mq.maxRequestSize = 5: write a number"),
        ("kafka.buffer.memory = x", "kafka.buffer.memory: write a number of bytes"),
    ],
)
def test_settings_of_kafka(
    problems: Callable[..., list[str]], line: str, problem: str
) -> None:
    """An error names the file and the key that is written there."""
    pytest.importorskip("confluent_kafka", reason="no extra `kafka`")
    (found,) = problems(SERVERS, line)
    assert found.startswith(f"CONF/canal.properties: {problem}")


def test_all_wrong_settings_of_kafka(problems: Callable[..., list[str]]) -> None:
    """Each is named, whether librdkafka refuses it or the server does."""
    pytest.importorskip("confluent_kafka", reason="no extra `kafka`")
    found = problems(
        SERVERS,
        "kafka.linger.mss = 1",
        "kafka.lingr = 1",
        "kafka.compression.type = zip",
        "kafka.batch.size = 12k",
        "kafka.transactional.id = x",
        "kafka.socket.timeout.ms = 1",
    )
    begin = "CONF/canal.properties: kafka."
    assert sorted(each.removeprefix(begin).split(":")[0] for each in found) == [
        "batch.size = 12k",
        "compression.type = zip",
        "linger.mss",
        "lingr",
        "socket.timeout.ms = 1",
        "transactional.id",
    ]
    found = problems(
        SERVERS,
        "kafka.foo.bar = 1",
        "kafka.security.protocol = SASL_PLAINTEXT",
        "kafka.sasl.mechanism = X",
        "kafka.ssl.keystore.passwd = s3cret",
    )
    assert sorted(each.removeprefix(begin).split(":")[0] for each in found) == [
        "foo.bar",
        "sasl.mechanism = X",
        "ssl.keystore.passwd",
    ]
    found = problems(SERVERS, "kafka.linger.mss = 1", "kafka.compression.type = zip")
    assert len(found) == 2
    assert "did you mean kafka.linger.ms?" in "".join(found)


@pytest.mark.parametrize(
    ("mode", "key"),
    [
        ("kafka", "kafka.bootstrap.servers"),
        ("rabbitMQ", "rabbitmq.host"),
        ("pulsarMQ", "pulsarmq.serverUrl"),
    ],
)
def test_brokers_that_are_not_set(
    problems: Callable[..., list[str]], mode: str, key: str
) -> None:
    """The file is named in which the key belongs."""
    (found,) = problems(mode=mode)
    assert found.startswith(f"CONF/canal.properties: {key}: not set")


def test_a_secret_in_a_file(problems: Callable[..., list[str]], tmp_path: Any) -> None:
    """The key of the file is named, and not what is in it."""
    secret = tmp_path / "jaas"
    secret.write_text("my.own.Module required secret=s3cret;")
    secret.chmod(0o600)
    (found,) = problems(SERVERS, f"kafka.sasl.jaas.config.file = {secret}")
    assert found.startswith("CONF/canal.properties: kafka.sasl.jaas.config.file: ")
    assert "s3cret" not in found
