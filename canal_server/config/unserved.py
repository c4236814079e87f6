"""Keys of canal that have no effect here, and warnings about them.

Settings that prevent the server from starting are in `canal_server.config.modes`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.config import group_sources
from canal_server.config.key_tables import (
    INSTANCE_KEYS,
    MODE_KEYS,
    PER_DESTINATION,
    SERVER_KEYS,
)
from canal_server.config.password_forms import form_names
from canal_server.config.substitution import UnresolvableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canal_server.config.properties import Properties
    from canal_server.config.substitution import Lookup


@dataclass(frozen=True, slots=True)
class Unserved:
    """A key whose feature does not exist here.

    `harmless` are the values (in lower case) that request nothing: off, or the values
    of the files that canal ships.
    """

    name: str
    harmless: tuple[str, ...] = ()


# They configure how canal does what is done differently here, or belong to a feature
# that has its own switch.
INERT = (
    "canal.id",
    "canal.socketChannel",
    "canal.instance.network.sendBufferSize",
    "canal.instance.parser.parallel",
    "canal.instance.parser.parallelThreadSize",
    "canal.instance.parser.parallelBufferSize",
    "canal.mq.canalGetTimeout",
    "canal.mq.send.thread.size",
    "canal.mq.build.thread.size",
    "canal.mq.transaction",
)

MESSAGE_QUEUES = (
    Unserved("canal.mq.accessChannel", ("local",)),
    Unserved("canal.mq.enableDynamicQueuePartition", ("false",)),
    Unserved("canal.mq.producerGroup"),
    Unserved("canal.mq.namespace"),
)
# Keys of message queues that have an effect in some modes only.
QUEUE_NAMES = (
    "canal.mq.servers",
    "canal.mq.acks",
    "canal.mq.compressionType",
    "canal.mq.retries",
    "canal.mq.batchSize",
    "canal.mq.lingerMs",
    "canal.mq.maxRequestSize",
    "canal.mq.bufferMemory",
    "canal.mq.kafka.kerberos.enable",
    "canal.mq.kafka.kerberos.krb5.file",
    "canal.mq.kafka.kerberos.jaas.file",
    "canal.mq.kafka.kerberos.krb5FilePath",
    "canal.mq.kafka.kerberos.jaasFilePath",
)

CLOUD = (
    Unserved("canal.instance.rds.accesskey"),
    Unserved("canal.instance.rds.secretkey"),
    Unserved("canal.instance.rds.instanceId"),
    Unserved("canal.aliyun.accessKey"),
    Unserved("canal.aliyun.secretKey"),
    Unserved("canal.aliyun.accesskey"),
    Unserved("canal.aliyun.secretkey"),
    Unserved("canal.aliyun.uid"),
    Unserved("canal.instance.multi.stream.on", ("false",)),
)

# These are read and validated, but have no effect.
NOT_YET = (Unserved("canal.instance.filter.druid.ddl", ("true",)),)

UNSERVED = (
    *NOT_YET,
    *MESSAGE_QUEUES,
    *CLOUD,
)

NEAR = 0.85  # similarity of a name that is probably a typo

KNOWN = frozenset(
    [key.name for key in (*SERVER_KEYS, *INSTANCE_KEYS)]
    + [key.name for key in UNSERVED]
    + [*MODE_KEYS, *INERT, *QUEUE_NAMES, *group_sources.KEYS]
    + form_names((*SERVER_KEYS, *INSTANCE_KEYS))
)


def set_without_effect(lookup: Lookup) -> list[str]:
    """Return the keys that request a feature that does not exist here."""
    return [key.name for key in UNSERVED if _asks(key, lookup)]


def unserved_warning(keys: Iterable[str]) -> list[str]:
    """Return one line about all these keys, or none if there are no keys."""
    listed = ", ".join(dict.fromkeys(keys))
    return [f"not supported, no effect: {listed}"] if listed else []


def unknown_warnings(
    file: Properties, destinations: Sequence[str], used: Iterable[str]
) -> list[str]:
    """Return a line for each unknown key of a file that looks like a key of canal.

    `used` are keys that other values refer to: they belong to the operator.
    """
    known = KNOWN.union(
        (
            f"canal.instance.{destination}.{word}"
            for destination in destinations
            for word in PER_DESTINATION
        ),
        used,
    )
    return [
        f"{file.origin}: {key}: unknown key, ignored{_nearest(key, known)}"
        for key in file.values
        if key.startswith("canal.") and key not in known
    ]


def _asks(key: Unserved, lookup: Lookup) -> bool:
    try:
        found = lookup.find(key.name)
    except UnresolvableError:
        return True
    if found is None:
        return False
    return _spelling(found.text) not in key.harmless


def _spelling(text: str) -> str:
    """Return a value in lower case, and a switch as true or false."""
    word = text.lower()
    if word in ("on", "yes", "y", "t"):
        return "true"
    return "false" if word in ("off", "no", "n", "f") else word


def _nearest(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, sorted(known), n=1, cutoff=NEAR)
    return f"; did you mean {close[0]}?" if close else ""
