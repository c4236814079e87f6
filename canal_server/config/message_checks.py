"""Checks that what messages have fits together, and fits the message queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.config.problems import find
from canal_server.config.schema import Decimals, MessageKeys, MessageLayout, ServerMode

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
    if config.debezium_schemas and config.layout is MessageLayout.CLOUDEVENTS:
        found = find(lookup, SCHEMAS, problems)
        assert found is not None, "it differs from its default"
        why = f"CloudEvents have no schemas; write false, or set {FORM} = debezium"
        problems.add(found.origin, SCHEMAS, found.text, why)
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
    if layout in {MessageLayout.DEBEZIUM, MessageLayout.CLOUDEVENTS}:
        return
    of_debezium = {
        NAME: config.debezium_name != "",
        SCHEMAS: config.debezium_schemas,
        DECIMALS: config.debezium_decimals is not Decimals.PRECISE,
    }
    for key in (each for each, is_set in of_debezium.items() if is_set):
        _refuse_other(key, MessageLayout.DEBEZIUM, lookup, problems)


def _refuse_other(
    key: str, layout: MessageLayout, lookup: Lookup, problems: Problems
) -> None:
    found = find(lookup, key, problems)
    assert found is not None, "it differs from its default"
    why = f"messages have another form; leave the key out, or set {FORM} = {layout}"
    problems.add(found.origin, key, found.text, why)
