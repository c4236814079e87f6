"""Warnings about settings of message queues that do nothing, or not what is meant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.config.queue_section import LEGACY, MODE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.config.substitution import Lookup

_WITH_PARTITIONS: Final = ("kafka", "pulsarmq")
_HASH_KEY: Final = "canal.mq.partitionHash"
# The primary key by a part of its name, such as `$pk`, which no column has.
_NEARLY_KEY: Final = re.compile(r"\$pk|pk\$", re.IGNORECASE)
_KEY: Final = "$pk$"
_CLASSES: Final = "classes of Java are not loaded"


@dataclass(frozen=True, slots=True)
class _NoEffect:
    """A key of the Java server that does nothing here, and why.

    `harmless` are the values that the files of the Java server have.
    """

    name: str
    why: str
    harmless: tuple[str, ...] = ()
    of_kafka: bool = True  # not in other modes


_WITHOUT_EFFECT: Final = (
    _NoEffect(
        "canal.mq.canalGetTimeout",
        "changes are fetched as soon as there are any",
        ("100",),
        of_kafka=False,
    ),
    _NoEffect(
        "canal.mq.send.thread.size",
        "one thread sends for each destination, without waiting for single answers",
        ("30",),
        of_kafka=False,
    ),
    _NoEffect(
        "canal.mq.build.thread.size",
        "the thread that sends makes the messages, which is compiled code",
        ("8",),
        of_kafka=False,
    ),
    _NoEffect(
        "canal.mq.transaction",
        "for transactions of Kafka, set canal.mq.exactlyOnce = true",
        ("false",),
    ),
    _NoEffect("kafka.interceptor.classes", _CLASSES),
    _NoEffect("kafka.metric.reporters", f"{_CLASSES}; see docs/howto/metrics.md"),
    _NoEffect(
        "kafka.partitioner.class",
        "canal.mq.partition and canal.mq.partitionHash choose partitions",
    ),
)


def queue_hints(lookup: Lookup) -> Iterator[str]:
    """Yield which keys of a message queue do nothing, or are overridden by old ones."""
    mode = lookup.find_safely(MODE_KEY)
    word = "tcp" if mode is None else mode.text.lower()
    if word == "tcp":
        return
    for key in _WITHOUT_EFFECT:
        found = lookup.find_safely(key.name)
        if found is None or found.text.lower() in key.harmless:
            continue
        if word == "kafka" or not key.of_kafka:
            yield (
                f"{found.origin}: {key.name} = {found.text}: has no effect here:"
                f" {key.why}"
            )
    if word != "kafka":
        return
    for old, new in LEGACY.items():
        found, newer = lookup.find_safely(old), lookup.find_safely(f"kafka.{new}")
        if found is not None and newer is not None and found.text != newer.text:
            yield (
                f"{found.origin}: {old} = {found.text}: takes precedence over"
                f" kafka.{new} = {newer.text}, as in the Java server; remove"
                " one of them"
            )


def hash_hints(lookup: Lookup) -> Iterator[str]:
    """Yield items of a destination's hash that misspell the primary key."""
    mode, found = lookup.find_safely(MODE_KEY), lookup.find_safely(_HASH_KEY)
    if mode is None or mode.text.lower() not in _WITH_PARTITIONS or found is None:
        return
    for item in map(str.strip, re.split("[,;]", found.text)):
        # As the router reads it: a space after the colon belongs to the column.
        columns = item.rpartition(":")[2]
        if ":" not in item or columns.lower() == _KEY:
            continue
        for name in columns.split("^"):
            if _NEARLY_KEY.search(name):
                shown = repr(name) if " " in name else name
                how = "right" if " " in name else "alone"
                yield (
                    f"{found.origin}: {_HASH_KEY} = {item}: {shown} is taken for a"
                    f" column; for the primary key, write {_KEY} {how} after the colon"
                )
