"""Checks that what messages have fits together, and fits the message queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.config.problems import find
from canal_server.config.schema import (
    Decimals,
    MessageKeys,
    MessageLayout,
    RegistryConfig,
    ServerMode,
)

if TYPE_CHECKING:
    from canal_server.config.problems import Problems
    from canal_server.config.schema import QueueConfig
    from canal_server.config.substitution import Lookup

KEYS: Final = "canal.mq.keys"
TOMBSTONES: Final = "canal.mq.tombstones"
HEADERS: Final = "canal.mq.headers"
FORM: Final = "canal.mq.form"
OUTPUT: Final = "canal.mq.maxwell.output"
NAME: Final = "canal.mq.debezium.name"
SCHEMAS: Final = "canal.mq.debezium.schemas.enable"
DECIMALS: Final = "canal.mq.debezium.decimal.handling.mode"
FLAT: Final = "canal.mq.flatMessage"
_REGISTRY: Final = "canal.mq.schema.registry."
REGISTRY_URL: Final = f"{_REGISTRY}url"
_REGISTRY_KEYS: Final = {
    f"{_REGISTRY}user": "user",
    f"{_REGISTRY}caFile": "ca_file",
    f"{_REGISTRY}certFile": "cert_file",
    f"{_REGISTRY}keyFile": "key_file",
    f"{_REGISTRY}subject.name.strategy": "subjects",
    f"{_REGISTRY}auto.register.schemas": "registers",
}
_OF_DEBEZIUM: Final = {
    MessageLayout.DEBEZIUM,
    MessageLayout.DEBEZIUM_AVRO,
    MessageLayout.CLOUDEVENTS,
}


def check_messages(config: QueueConfig, lookup: Lookup, problems: Problems) -> None:
    """Report settings of messages that contradict each other, or the broker."""
    asked = {
        KEYS: config.keys is not MessageKeys.NONE,
        TOMBSTONES: config.tombstones,
        HEADERS: config.headers,
    }
    if not config.flat and config.layout is not MessageLayout.CANAL_JSON:
        found = find(lookup, FORM, problems)
        assert found is not None, "it differs from its default"
        why = (
            "messages are protobuf, which has one form; leave the key out, or set"
            f" {FLAT} = true"
        )
        problems.add(found.origin, FORM, found.text, why)
    _check_form(config, lookup, problems)
    without = {
        MessageLayout.CLOUDEVENTS: "CloudEvents have no schemas",
        MessageLayout.DEBEZIUM_AVRO: "the registry has the schemas",
    }
    if config.debezium_schemas and (reason := without.get(config.layout)):
        found = find(lookup, SCHEMAS, problems)
        assert found is not None, "it differs from its default"
        why = f"{reason}; write false, or set {FORM} = debezium"
        problems.add(found.origin, SCHEMAS, found.text, why)
    _check_registry(config, lookup, problems)
    if (
        config.mode is ServerMode.PULSARMQ
        and config.layout is MessageLayout.DEBEZIUM_AVRO
        and asked[KEYS]
    ):
        found = find(lookup, KEYS, problems)
        assert found is not None, "it differs from its default"
        why = (
            "keys of Pulsar are text here, and Avro is not; write none, or set"
            f" {FORM} = debezium"
        )
        problems.add(found.origin, KEYS, found.text, why)
    for key in (each for each, is_set in asked.items() if is_set):
        off = "none" if key == KEYS else "false"
        if config.mode is ServerMode.RABBITMQ:
            why = (
                f"messages of RabbitMQ have none; write {off}, or set"
                " canal.serverMode = kafka"
            )
        elif not config.flat:
            why = (
                "a message of protobuf has many rows, so it has none; write"
                f" {off}, or set {FLAT} = true"
            )
        elif key == TOMBSTONES and not asked[KEYS]:
            why = f"a tombstone needs a key; write false, or set {KEYS} = primaryKey"
        else:
            continue
        found = find(lookup, key, problems)
        assert found is not None, "it differs from its default"
        problems.add(found.origin, key, found.text, why)


def _check_form(config: QueueConfig, lookup: Lookup, problems: Problems) -> None:
    """Report settings of a form that the messages do not have."""
    layout = config.layout
    if layout is not MessageLayout.MAXWELL and config.maxwell_output:
        _refuse_other(OUTPUT, MessageLayout.MAXWELL, lookup, problems)
    if layout in _OF_DEBEZIUM:
        return
    of_debezium = {
        NAME: config.debezium_name != "",
        SCHEMAS: config.debezium_schemas,
        DECIMALS: config.debezium_decimals is not Decimals.PRECISE,
    }
    for key in (each for each, is_set in of_debezium.items() if is_set):
        _refuse_other(key, MessageLayout.DEBEZIUM, lookup, problems)


def _check_registry(config: QueueConfig, lookup: Lookup, problems: Problems) -> None:
    """Report a registry that is missing or not used, and half of a certificate."""
    given, default = config.registry, RegistryConfig()
    if config.layout is MessageLayout.DEBEZIUM_AVRO and config.flat:
        if not given.urls and not lookup.is_set(REGISTRY_URL):
            found = find(lookup, FORM, problems)
            assert found is not None, "it differs from its default"
            why = f"needs a registry of schemas; set {REGISTRY_URL}"
            problems.add(found.origin, FORM, found.text, why)
        if given.key_file is not None and given.cert_file is None:
            key, needed = f"{_REGISTRY}keyFile", f"{_REGISTRY}certFile"
            found = find(lookup, key, problems)
            assert found is not None, "it differs from its default"
            why = f"needs {needed}; set that to a PEM file"
            problems.add(found.origin, key, found.text, why)
        return
    if given.urls:
        _refuse_other(REGISTRY_URL, MessageLayout.DEBEZIUM_AVRO, lookup, problems)
    for key, name in _REGISTRY_KEYS.items():
        if getattr(given, name) != getattr(default, name):
            _refuse_other(key, MessageLayout.DEBEZIUM_AVRO, lookup, problems)


def _refuse_other(
    key: str, layout: MessageLayout, lookup: Lookup, problems: Problems
) -> None:
    found = find(lookup, key, problems)
    assert found is not None, "it differs from its default"
    why = f"messages have another form; leave the key out, or set {FORM} = {layout}"
    problems.add(found.origin, key, found.text, why)
