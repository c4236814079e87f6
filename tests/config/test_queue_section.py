"""Settings of message queues in conf folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from fix_conf import ACCOUNT

from canal_server.config.load import load
from canal_server.config.schema import MessageLayout, ServerMode, SubjectNames
from canal_server.errors import ConfigError

MAIN = "canal.destinations = example\n"
AVRO = (
    "canal.mq.form = debezium-avro\n"
    "canal.mq.schema.registry.url = http://a:8081, https://b/path/\n"
)
INSTANCE = f"canal.instance.master.address = db:3306\n{ACCOUNT}"


def queue_of(make_conf, main, environ=None):
    """Return the settings of the queue by lines of canal.properties."""
    return load(make_conf(MAIN + main, example=INSTANCE), environ or {}).server.queue


def test_a_registry(make_conf):
    """Its addresses, login and names of subjects are read; a password is not shown."""
    given = (
        "user = canal", "password = geheim", "caFile = ca.pem",
        "auto.register.schemas = false",
        "subject.name.strategy = io.confluent.RecordNameStrategy",
    )  # fmt: skip
    lines = "".join(f"canal.mq.schema.registry.{each}\n" for each in given)
    queue = queue_of(make_conf, f"canal.serverMode = kafka\n{AVRO}{lines}")
    found = queue.registry
    assert queue.layout is MessageLayout.DEBEZIUM_AVRO
    assert found.urls == ("http://a:8081", "https://b/path")
    assert (found.user, str(found.password)) == ("canal", "geheim")
    assert found.ca_file is not None
    assert found.ca_file.is_absolute()
    assert (found.registers, found.subjects) == (False, SubjectNames.RECORD)
    assert "geheim" not in repr(queue)


def problems_of(make_conf, main):
    """Return what is wrong with lines of canal.properties."""
    with pytest.raises(ConfigError) as raised:
        queue_of(make_conf, main)
    return raised.value.problems


@pytest.mark.parametrize(
    ("word", "mode"),
    [
        ("tcp", ServerMode.TCP),
        ("kafka", ServerMode.KAFKA),
        ("rabbitMQ", ServerMode.RABBITMQ),
        ("rabbitmq", ServerMode.RABBITMQ),
        ("pulsarMQ", ServerMode.PULSARMQ),
    ],
)
def test_modes(make_conf, word, mode):
    """They are those of the Java server, in any case of letters."""
    assert queue_of(make_conf, f"canal.serverMode = {word}\n").mode is mode


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("rocketMQ", "RocketMQ is not supported, as its client library for Python"),
        ("activeMQ", "unknown mode"),
    ],
)
def test_modes_that_are_refused(make_conf, word, why):
    """The reason is named, and what to write."""
    (problem,) = problems_of(make_conf, f"canal.serverMode = {word}\n")
    assert f"canal.serverMode = {word}: {why}" in problem
    assert problem.endswith("; write tcp, kafka, rabbitMQ or pulsarMQ")


def test_keys_of_a_broker(make_conf):
    """They count without their prefix, also those of the environment."""
    lines = (
        "canal.serverMode = rabbitMQ\n"
        "rabbitmq.host = a\nrabbitmq.virtual.host = shop\nrabbitmq.queue =\n"
        "kafka.bootstrap.servers = b:9092\n"
    )
    queue = queue_of(make_conf, lines, {"rabbitmq.username": "canal"})
    found = dict(queue.properties)
    assert found["host"] == "a"
    assert found["virtual.host"] == "shop"
    assert found["username"] == "canal"
    assert "bootstrap.servers" not in found


@pytest.mark.parametrize(
    ("lines", "key", "why"),
    [
        (
            "canal.mq.form = avro",
            "canal.mq.form",
            "unknown form of messages; write one",
        ),
        (
            "canal.mq.form = maxwell\ncanal.mq.flatMessage = false",
            "canal.mq.form",
            "messages are protobuf, which has one form; leave the key out, or set",
        ),
        (
            "canal.mq.maxwell.output = xid,ddl",
            "canal.mq.maxwell.output",
            "xid is unknown; write words out of binlog_position,",
        ),
        (
            "canal.mq.form = cloudevents\ncanal.mq.debezium.schemas.enable = true",
            "canal.mq.debezium.schemas.enable",
            "CloudEvents have no schemas; write false, or set canal.mq.form = debezium",
        ),
        (
            "canal.mq.maxwell.output = ddl",
            "canal.mq.maxwell.output",
            "another form; leave the key out, or set canal.mq.form = maxwell",
        ),
        (
            "canal.mq.form = maxwell\ncanal.mq.debezium.schemas.enable = true",
            "canal.mq.debezium.schemas.enable",
            "another form; leave the key out, or set canal.mq.form = debezium",
        ),
        (
            "canal.mq.debezium.name = srv",
            "canal.mq.debezium.name",
            "another form; leave the key out, or set canal.mq.form = debezium",
        ),
        (
            "canal.mq.debezium.decimal.handling.mode = string",
            "canal.mq.debezium.decimal.handling.mode",
            "another form; leave the key out, or set canal.mq.form = debezium",
        ),
        (
            "canal.mq.form = debezium-avro",
            "canal.mq.form",
            "needs a registry of schemas; set canal.mq.schema.registry.url",
        ),
        (
            f"{AVRO}canal.mq.debezium.schemas.enable = true",
            "canal.mq.debezium.schemas.enable",
            "the registry has the schemas; write false, or set canal.mq.form =",
        ),
        (
            f"{AVRO}canal.mq.schema.registry.keyFile = key.pem",
            "canal.mq.schema.registry.keyFile",
            "needs canal.mq.schema.registry.certFile; set that to a PEM file",
        ),
        (
            f"{AVRO}canal.mq.schema.registry.subject.name.strategy = topic",
            "canal.mq.schema.registry.subject.name.strategy",
            "unknown strategy; write one of TopicNameStrategy,",
        ),
        (
            f"{AVRO}canal.mq.schema.registry.url = http://user:geheim@a",
            "canal.mq.schema.registry.url",
            "write http://host:port/path, and the login in the keys for user and",
        ),
        (
            "canal.mq.schema.registry.url = http://a",
            "canal.mq.schema.registry.url",
            "another form; leave the key out, or set canal.mq.form = debezium-avro",
        ),
        (
            "canal.mq.form = debezium\ncanal.mq.schema.registry.user = canal",
            "canal.mq.schema.registry.user",
            "another form; leave the key out, or set canal.mq.form = debezium-avro",
        ),
        ("canal.mq.keys = id", "canal.mq.keys", "write none or primaryKey"),
        (
            "canal.serverMode = rabbitMQ\ncanal.mq.keys = primaryKey",
            "canal.mq.keys",
            "messages of RabbitMQ have none; write none, or set canal.serverMode =",
        ),
        (
            "canal.serverMode = rabbitMQ\ncanal.mq.headers = true",
            "canal.mq.headers",
            "messages of RabbitMQ have none; write false, or set canal.serverMode =",
        ),
        (
            f"canal.serverMode = pulsarMQ\n{AVRO}canal.mq.keys = primaryKey",
            "canal.mq.keys",
            "keys of Pulsar are text here, and Avro is not; write none, or set",
        ),
        (
            "canal.mq.flatMessage = false\ncanal.mq.headers = true",
            "canal.mq.headers",
            "write false, or set canal.mq.flatMessage = true",
        ),
        (
            "canal.mq.tombstones = true",
            "canal.mq.tombstones",
            "a tombstone needs a key; write false, or set canal.mq.keys = primaryKey",
        ),
    ],
)
def test_messages_that_cannot_be(make_conf, lines, key, why):
    """The key, its value and the remedy are named."""
    (problem,) = problems_of(make_conf, f"canal.serverMode = kafka\n{lines}\n")
    assert key in problem
    assert why in problem


@pytest.mark.parametrize(
    ("mode", "name"), [("rabbitMQ", "host"), ("kafka", "bootstrap.servers")]
)
def test_the_old_key_of_servers(make_conf, mode, name):
    """It takes precedence over the new one, as in the Java server."""
    lines = (
        f"canal.serverMode = {mode}\n"
        f"{mode.lower()}.{name} = new\ncanal.mq.servers = old\ncanal.mq.acks = 1\n"
    )
    found = dict(queue_of(make_conf, lines).properties)
    assert found[name] == "old"
    assert ("acks" in found) == (mode == "kafka")


def test_accounts_of_aliyun(make_conf):
    """Access keys are refused if all of them are set; no secret shows."""
    mode = "canal.serverMode = rabbitMQ\nrabbitmq.host = a\n"
    keys = "canal.aliyun.accessKey = acc3ss\ncanal.aliyun.secretKey = s3cret\n"
    (text,) = problems_of(make_conf, f"{mode}{keys}canal.aliyun.uid = 7\n")
    assert "canal.aliyun.accessKey = (hidden): accounts made of access keys" in text
    assert "rabbitmq.username and rabbitmq.password" in text
    assert "acc3ss" not in text
    assert queue_of(make_conf, f"{mode}{keys}canal.aliyun.uid =\n").mode


@pytest.mark.parametrize("mode", ["kafka", "rabbitMQ", "pulsarMQ"])
def test_protobuf(make_conf, mode):
    """It is a form of messages in all modes that send any."""
    lines = f"canal.serverMode = {mode}\ncanal.mq.flatMessage = false\n"
    assert not queue_of(make_conf, lines).flat


def test_exactly_once(make_conf):
    """It is for Kafka only."""
    lines = "canal.serverMode = {}\ncanal.mq.exactlyOnce = true\n"
    found = queue_of(make_conf, lines.format("kafka"))
    assert (found.exactly_once, found.position_topic) == (True, "canal-position")
    (text,) = problems_of(make_conf, lines.format("rabbitMQ"))
    assert "RabbitMQ has no transactions that contain a position" in text
    (text,) = problems_of(make_conf, lines.format("pulsarMQ"))
    assert "Pulsar for Python has no transactions" in text
    assert text.endswith("; write false, or set canal.serverMode = kafka")


SECRETS = [
    ("rabbitMQ", "password"),
    ("pulsarMQ", "roleToken"),
    ("rabbitMQ", "ssl.truststore.password"),
    ("rabbitMQ", "ssl.keystore.password"),
    ("kafka", "sasl.jaas.config"),
    ("kafka", "sasl.password"),
    ("kafka", "ssl.key.password"),
    ("kafka", "ssl.keystore.password"),
    ("kafka", "ssl.truststore.password"),
    ("kafka", "sasl.oauthbearer.client.secret"),
]


@pytest.mark.parametrize(("mode", "name"), SECRETS)
def test_secrets_of_a_broker(make_conf, tmp_path, mode, name):
    """Each may be in a file or come from a command; the producer gets the value."""
    path = tmp_path / "secret"
    path.write_text("s3 cret\n")
    path.chmod(0o600)
    key = f"{mode.lower()}.{name}"
    lines = f"canal.serverMode = {mode}\n{mode.lower()}.other = x\n"
    for form in (f"{key}.file = {path}", f"{key}.command = cat {path}"):
        queue = queue_of(make_conf, f"{lines}{form}\n")
        assert dict(queue.properties) == {name: "s3 cret", "other": "x"}
    queue = queue_of(make_conf, lines, {f"{key}.file": str(path)})
    assert dict(queue.properties)[name] == "s3 cret"
    two = f"{lines}{key} = a\n{key}.file = {path}\n"
    (problem,) = problems_of(make_conf, two)
    assert f"{key} is set as well" in problem
    (problem,) = problems_of(make_conf, f"{lines}{key}.file = {path}.none\n")
    assert f"{key}.file = {path}.none" in problem


@pytest.mark.parametrize(("mode", "name"), SECRETS)
def test_a_secret_that_others_can_read(make_conf, tmp_path, monkeypatch, mode, name):
    """It is a warning, as for other passwords."""
    monkeypatch.setattr("canal_server.config.password_forms.is_exposed", Path.is_file)
    path = tmp_path / "secret"
    path.write_text("s3 cret")
    key = f"{mode.lower()}.{name}"
    main = f"{MAIN}canal.serverMode = {mode}\n{key}.file = {path}\n"
    (warning,) = load(make_conf(main, example=INSTANCE), {}).warnings
    assert f"{key}.file = {path}: every user of this host" in warning


def test_a_blank_secret(make_conf):
    """It stays a key of the producer, without a value."""
    lines = "canal.serverMode = rabbitMQ\nrabbitmq.password =\n"
    assert dict(queue_of(make_conf, lines).properties) == {"password": ""}
