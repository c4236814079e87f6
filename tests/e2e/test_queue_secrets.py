"""Accounts of real brokers: passwords from files, none to be seen, and rights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fix_pipeline import DESTINATION
from fix_store import eventually
from random_shop import Shop, Topic, wait_until

from canal_server.cli import main

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fix_kafka import Kafka
    from fix_pipeline import Pipeline
    from rabbit_brokers import Rabbit

USER, PASSWORD, WRONG = "canal", "s3cret-of-kafka", "wr0ng-of-everybody"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OWN = f'{PLAIN} username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
# A broker whose clients log in: the listener keeps its name, and gets SASL.
SASL = (
    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    f"listener.name.plaintext.plain.sasl.jaas.config={OWN}",
)
READER, READERS = "reader", "s3cret-of-reader"
BOTH = OWN.replace(";", f' user_{READER}="{READERS}";')
# Whoever is not a superuser may do what the topics allow: nothing, at first.
ACLS = (
    *SASL[:-1],
    f"listener.name.plaintext.plain.sasl.jaas.config={BOTH}",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    f"super.users=User:{USER};User:ANONYMOUS",
)


@pytest.fixture
def stopped(
    make_pipeline: Callable[..., Pipeline], mysql_server: Any, database: str
) -> Pipeline:
    """Give a pipeline that was not started."""
    return make_pipeline(mysql_server, database)


@pytest.fixture
def kafka(make_kafka: Callable[..., Kafka]) -> Kafka:
    """Give a running broker that lets nobody in without a password."""
    kafka = make_kafka(*SASL)
    kafka.login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    return kafka


def secret_file(folder: Path, text: str) -> Path:
    """Write a password as Kubernetes mounts it."""
    path = folder / "password"
    path.touch(0o600)
    path.write_text(f"{text}\n")
    return path


def deliver(pipeline: Pipeline, settings: dict[str, object]) -> None:
    """Start the server of a pipeline with these settings."""
    pipeline.main_settings |= settings
    pipeline.configure({"canal.mq.topic": "shop"})
    pipeline.start()


def refused(
    pipeline: Pipeline, capsys: Any, pattern: str, secrets: Iterable[str]
) -> str:
    """Wait for a refusal in the log; returns what `check` says, without secrets."""
    pipeline.process.wait_for_log(pattern)
    pipeline.wait_for_status(lambda status: status["delivery"]["state"] == "blocked")
    status = json.dumps(pipeline.status())
    main(["check", "--conf", str(pipeline.conf)])
    printed = capsys.readouterr()
    for secret in secrets:
        for text in (status, printed.out, printed.err, "".join(pipeline.process.log)):
            assert secret not in text
    return str(printed.out)


def test_rabbit(
    stopped: Pipeline, rabbit: Rabbit, rng: random.Random, tmp_path: Path, capsys: Any
) -> None:
    """The right password delivers; a wrong one is named by its key, not its value."""
    path = secret_file(tmp_path, WRONG)
    shop = Shop(stopped, rng)
    rabbit.create("all", "changes")
    shop.write(5)
    settings: dict[str, object] = {
        "canal.serverMode": "rabbitMQ",
        "rabbitmq.host": rabbit.address,
        "rabbitmq.username": rabbit.user,
        "rabbitmq.password.file": path,
        "rabbitmq.exchange": "changes",
    }
    deliver(stopped, settings)
    secrets = (WRONG, rabbit.password)
    checked = refused(stopped, capsys, "refuses the account canal", secrets)
    assert "refuses the account canal" in checked
    stopped.stop()
    secret_file(tmp_path, rabbit.password)
    stopped.start()
    topic = Topic(rabbit.follow("all"))
    wait_until(lambda: topic.has_all(shop), stopped.process)
    assert rabbit.password not in "".join(stopped.process.log)
    assert rabbit.password not in json.dumps(stopped.status())


JAAS = f'{PLAIN} username="{USER}" password="%s";'


@pytest.mark.parametrize(
    ("key", "form", "more"),
    [
        ("kafka.sasl.jaas.config.file", JAAS, {}),
        ("kafka.sasl.password.file", "%s", {"kafka.sasl.username": USER}),
    ],
)
def test_kafka(  # noqa: PLR0917  # fixtures
    stopped: Pipeline,
    kafka: Kafka,
    rng: random.Random,
    tmp_path: Path,
    capsys: Any,
    key: str,
    form: str,
    more: dict[str, str],
) -> None:
    """The same with SASL, by the line of Java, and by librdkafka's settings."""
    path = secret_file(tmp_path, form % WRONG)
    shop = Shop(stopped, rng)
    shop.write(5)
    settings: dict[str, object] = {
        "canal.serverMode": "kafka",
        "kafka.bootstrap.servers": kafka.servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        key: path,
        **more,
    }
    deliver(stopped, settings)
    pattern = "Authentication failed: Invalid username or password"
    checked = refused(stopped, capsys, pattern, (WRONG, PASSWORD))
    assert pattern in checked
    stopped.stop()
    secret_file(tmp_path, form % PASSWORD)
    stopped.start()
    topic = Topic(kafka.follow("shop", 0))
    wait_until(lambda: topic.has_all(shop), stopped.process)
    assert PASSWORD not in "".join(stopped.process.log)
    assert PASSWORD not in json.dumps(stopped.status())


@pytest.fixture
def rights(make_kafka: Callable[..., Kafka]) -> Kafka:
    """Give a broker with ACLs; what logs in here may do everything."""
    kafka = make_kafka(*ACLS)
    kafka.login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    return kafka


def allow(kafka: Kafka, resource: str, name: str, *operations: str) -> None:
    """Let the reader do this."""
    admin: Any = pytest.importorskip("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": kafka.servers, **kafka.login})
    rules = [
        admin.AclBinding(
            admin.ResourceType[resource], name, admin.ResourcePatternType.LITERAL,
            f"User:{READER}", "*", admin.AclOperation[operation],
            admin.AclPermissionType.ALLOW,
        )
        for operation in operations
    ]  # fmt: skip
    for each in client.create_acls(rules).values():
        each.result(30)


def as_reader(pipeline: Pipeline, kafka: Kafka) -> None:
    """Have the reader deliver to the topic `shop`."""
    pipeline.main_settings |= {
        "canal.serverMode": "kafka",
        "kafka.bootstrap.servers": kafka.servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": READER,
        "kafka.sasl.password": READERS,
    }
    pipeline.configure({"canal.mq.topic": "shop"})


def checked(pipeline: Pipeline, capsys: Any, what: str) -> str:
    """Return the line of `check` about something."""
    main(["check", "--conf", str(pipeline.conf)])
    lines = capsys.readouterr().out.splitlines()
    (line,) = (each for each in lines if what in each)
    return str(line)


def test_rights_in_kafka(stopped: Pipeline, rights: Kafka, capsys: Any) -> None:
    """`check` names a topic that the account may read, but not write to."""
    rights.create("shop", 1)
    as_reader(stopped, rights)

    def found() -> str:
        return checked(stopped, capsys, "topic shop")

    assert "topic shop does not exist, or the account may not see it" in found()
    allow(rights, "TOPIC", "shop", "READ")
    # The broker learns of it a moment later.
    eventually(lambda: "the account may not write to topic shop: allow" in found())
    assert "FAIL" in found()
    allow(rights, "TOPIC", "shop", "WRITE")
    eventually(lambda: "topic shop has 1 partitions" in found())


def test_rights_of_exactly_once(stopped: Pipeline, rights: Kafka, capsys: Any) -> None:
    """`check` names what is missing for transactions and their positions."""
    as_reader(stopped, rights)
    stopped.main_settings["canal.mq.exactlyOnce"] = "true"
    stopped.configure({"canal.mq.topic": "shop"})
    name = f"canal-position.{DESTINATION}"

    def transactions() -> str:
        return checked(stopped, capsys, "transactional id")

    def position() -> str:
        return checked(stopped, capsys, f"topic {name}")

    eventually(lambda: "the account may not use it: allow" in transactions())
    assert "FAIL" in transactions()
    assert "allow Create on it or on the cluster" in position()
    assert "FAIL" in position()
    # The right to see it alone is not enough.
    allow(rights, "TRANSACTIONAL_ID", name, "DESCRIBE")
    allow(rights, "TOPIC", name, "CREATE")
    eventually(lambda: f"topic {name} will be created" in position())
    assert "the account may not use it: allow" in transactions()
    allow(rights, "TRANSACTIONAL_ID", name, "WRITE")
    eventually(lambda: "may use the transactional id" in transactions())
    rights.create(name, 1)
    eventually(lambda: "may not see topic" in position())
    allow(rights, "TOPIC", name, "DESCRIBE")
    eventually(lambda: "may not read or write topic" in position())
    allow(rights, "TOPIC", name, "READ")
    eventually(lambda: "may not write topic" in position())
    allow(rights, "TOPIC", name, "WRITE")
    eventually(lambda: "the account may read and write topic" in position())
