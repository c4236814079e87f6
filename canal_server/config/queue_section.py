"""Reads the settings of message queues: what keys there are, old ones, and producers'.

The Java server hands keys that begin with the name of a broker to that one's library,
without this prefix. Older releases had keys `canal.mq.…` for some of them, which still
count more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.config import values
from canal_server.config.key_reading import fields_of
from canal_server.config.keys.setting import Key
from canal_server.config.message_checks import check_messages
from canal_server.config.password_forms import form_names, read_password
from canal_server.config.problems import find
from canal_server.config.schema import QueueConfig, RegistryConfig, ServerMode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from canal_server.config.problems import Problems
    from canal_server.config.substitution import Lookup

MODE_KEY: Final = "canal.serverMode"
CLIENT_ID: Final = 1001  # that of the Java server, so that its cursor is continued

_EXACTLY_ONCE: Final = "canal.mq.exactlyOnce"
_SERVERS_KEY: Final = "canal.mq.servers"
# Old keys, and the new ones without `kafka.`.
LEGACY: Final = {
    _SERVERS_KEY: "bootstrap.servers",
    "canal.mq.acks": "acks",
    "canal.mq.compressionType": "compression.type",
    "canal.mq.retries": "retries",
    "canal.mq.batchSize": "batch.size",
    "canal.mq.lingerMs": "linger.ms",
    "canal.mq.maxRequestSize": "max.request.size",
    "canal.mq.bufferMemory": "buffer.memory",
}
_LEGACY_OF: Final = {
    ServerMode.KAFKA: LEGACY,
    ServerMode.RABBITMQ: {_SERVERS_KEY: "host"},
    ServerMode.PULSARMQ: {},
}
_ALIYUN: Final = (
    "canal.aliyun.accessKey", "canal.aliyun.secretKey", "canal.aliyun.uid",
)  # fmt: skip
_KERBEROS: Final = ("canal.mq.kafka.kerberos.enable", "kafka.kerberos.enable")
_UNSUPPORTED: Final = {
    "rocketmq": (
        "RocketMQ is not supported, as its client library for Python chooses the queue"
        " of a message by itself, so that the order of changes would be lost"
    ),
}
# Why changes cannot be seen exactly once.
_WITHOUT_POSITION: Final = {
    ServerMode.RABBITMQ: "RabbitMQ has no transactions that contain a position",
    ServerMode.PULSARMQ: (
        "the client library of Pulsar for Python has no transactions, so none can"
        " contain a position"
    ),
}
# Settings of producers that may be in files, or come from commands.
_STORES: Final = ("ssl.keystore.password", "ssl.truststore.password")
_SECRETS: Final = {
    ServerMode.KAFKA: (
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "sasl.password",
        "ssl.key.password",
        *_STORES,
    ),
    ServerMode.RABBITMQ: ("password", *_STORES),
    ServerMode.PULSARMQ: ("roleToken",),
}


def _secret(name: str) -> Key:
    return Key(name, "", values.text, "", secret=True, has_forms=True)


_SECRET_KEYS: Final = {
    mode: tuple(_secret(f"{mode.value}.{each}") for each in names)
    for mode, names in _SECRETS.items()
}
BROKER_SECRETS: Final = tuple(
    each for of_mode in _SECRET_KEYS.values() for each in of_mode
)


def mode_of(lookup: Lookup, problems: Problems) -> ServerMode:
    """Return how changes leave the server; reports one that is not supported."""
    found = find(lookup, MODE_KEY, problems)
    word = found.text.lower() if found else ServerMode.TCP
    if word in tuple(ServerMode):
        return ServerMode(word)
    assert found is not None
    why = _UNSUPPORTED.get(word, "unknown mode")
    wrong = f"{why}; write tcp, kafka, rabbitMQ or pulsarMQ"
    problems.add(found.origin, MODE_KEY, found.text, wrong)
    return ServerMode.TCP


def read_queue(
    read: dict[str, object],
    mode: ServerMode,
    lookup: Lookup,
    problems: Problems,
    conf_dir: Path,
) -> QueueConfig:
    """Return the settings of the message queue; `read` are the values of keys."""
    config = QueueConfig(
        mode=mode,
        registry=RegistryConfig(**fields_of(read, "queue.registry.")),
        **fields_of(read, "queue."),
    )
    if mode is ServerMode.TCP:
        return config
    if mode is ServerMode.KAFKA:
        _check_kerberos(lookup, problems)
    else:
        _check_exactly_once(config, lookup, problems)
    if mode is ServerMode.RABBITMQ:
        _check_aliyun(lookup, problems)
    check_messages(config, lookup, problems)
    given = _of_producer(mode, lookup, problems, conf_dir)
    origins = _origins(mode, given, lookup)
    for old, new in _LEGACY_OF[mode].items():
        if (found := find(lookup, old, problems)) is not None:
            given[new] = found.text
            origins[new] = found.origin, old
    # The Java server forces an order; here it is kept without that.
    given.pop("max.in.flight.requests.per.connection", None)
    return replace(
        config,
        properties=tuple(sorted(given.items())),
        origins=tuple((name, *origins[name]) for name in sorted(origins)),
        file=lookup.last_file,
    )


def _of_producer(
    mode: ServerMode, lookup: Lookup, problems: Problems, conf_dir: Path
) -> dict[str, str]:
    """Return all keys of a producer, without the prefix; also those that are blank."""
    prefix, secrets = f"{mode.value}.", _SECRET_KEYS[mode]
    given = dict.fromkeys(lookup.names(prefix), "")
    for form in form_names(secrets):
        given.pop(form, None)
    for name in given.keys() - {each.name for each in secrets}:
        found = find(lookup, name, problems, secret=True)
        given[name] = "" if found is None else found.text
    for key in secrets:
        value = read_password(key, lookup, problems, conf_dir)
        if value is not None:
            given[key.name] = str(value)
    return {name.removeprefix(prefix): value for name, value in given.items()}


def _origins(
    mode: ServerMode, names: Iterable[str], lookup: Lookup
) -> dict[str, tuple[str, str]]:
    """Return the file and the key of each setting of a producer that has a value."""
    secrets = {each.name: each for each in _SECRET_KEYS[mode]}
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        key = f"{mode.value}.{name}"
        forms = form_names((secrets[key],)) if key in secrets else ()
        for each in (key, *forms):
            if (value := lookup.find_safely(each)) is not None:
                found[name] = value.origin, each
                break
    return found


def _check_aliyun(lookup: Lookup, problems: Problems) -> None:
    """Report keys of Aliyun, which the Java server logs in with if all are set."""
    found = [find(lookup, key, problems, secret=True) for key in _ALIYUN]
    if all(each is not None and each.text for each in found) and found[0]:
        problems.add(
            found[0].origin,
            _ALIYUN[0],
            found[0].text,
            "accounts made of access keys are not supported; create a static user name"
            " and password for the instance in Aliyun's console, and set them as"
            " rabbitmq.username and rabbitmq.password",
            secret=True,
        )


def _check_exactly_once(
    config: QueueConfig, lookup: Lookup, problems: Problems
) -> None:
    found = find(lookup, _EXACTLY_ONCE, problems)
    if found is not None and config.exactly_once:
        problems.add(
            found.origin,
            _EXACTLY_ONCE,
            found.text,
            f"{_WITHOUT_POSITION[config.mode]}; write false, or set"
            " canal.serverMode = kafka",
        )


def _check_kerberos(lookup: Lookup, problems: Problems) -> None:
    for key in _KERBEROS:
        found = find(lookup, key, problems)
        if found is not None and found.text.lower() == "true":
            problems.add(
                found.origin,
                key,
                found.text,
                "the files of Java are not read; set kafka.security.protocol,"
                " kafka.sasl.mechanism = GSSAPI, kafka.sasl.kerberos.service.name,"
                " .keytab and .principal instead",
            )
