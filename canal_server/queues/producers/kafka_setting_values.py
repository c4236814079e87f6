"""The values that settings of librdkafka's producer may have, as it documents them.

It takes a number up to the first character that belongs to none, and drops the rest:
12k is 12. So numbers are read here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Without those of `acks`, which may be a word.
INTEGERS: Final = frozenset({
    "api.version.fallback.ms", "api.version.request.timeout.ms",
    "batch.num.messages", "batch.size", "broker.address.ttl", "compression.level",
    "connections.max.idle.ms", "delivery.timeout.ms", "enabled_events",
    "internal.termination.signal", "log_level", "max.in.flight",
    "max.in.flight.requests.per.connection", "message.copy.max.bytes",
    "message.max.bytes", "message.send.max.retries", "message.timeout.ms",
    "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms",
    "queue.buffering.backpressure.threshold", "queue.buffering.max.kbytes",
    "queue.buffering.max.messages", "receive.message.max.bytes",
    "reconnect.backoff.jitter.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "request.timeout.ms", "retries", "retry.backoff.max.ms",
    "retry.backoff.ms", "sasl.kerberos.min.time.before.relogin",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.nbf.seconds", "socket.blocking.max.ms",
    "socket.connection.setup.timeout.ms", "socket.max.fails",
    "socket.receive.buffer.bytes", "socket.send.buffer.bytes", "socket.timeout.ms",
    "statistics.interval.ms", "sticky.partitioning.linger.ms",
    "topic.metadata.propagation.max.ms", "topic.metadata.refresh.fast.cnt",
    "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.interval.ms",
    "transaction.timeout.ms",
})  # fmt: skip
DECIMALS: Final = frozenset({"linger.ms", "queue.buffering.max.ms"})
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "broker.address.family": ("any", "v4", "v6"),
    "client.dns.lookup": (
        "use_all_dns_ips",
        "resolve_canonical_bootstrap_servers_only",
    ),
    "compression.codec": ("none", "gzip", "snappy", "lz4", "zstd"),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "metadata.recovery.strategy": ("none", "rebootstrap"),
    "queuing.strategy": ("fifo", "lifo"),
    "sasl.oauthbearer.assertion.algorithm": ("RS256", "ES256"),
    "sasl.oauthbearer.grant.type": (
        "client_credentials",
        "urn:ietf:params:oauth:grant-type:jwt-bearer",
    ),
    "sasl.oauthbearer.metadata.authentication.type": ("none", "azure_imds", "aws_iam"),
    "sasl.oauthbearer.method": ("default", "oidc"),
    "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    "ssl.endpoint.identification.algorithm": ("none", "https"),
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")


def number_of(name: str, value: str) -> str:
    """Return a value as librdkafka reads it rightly, for a setting by its name there.

    Of numbers, leading zeros are dropped, with which it takes them for octal ones.
    Raises ValueError with what to write.
    """
    text = value.strip()
    if name in INTEGERS:
        if not _INTEGER.fullmatch(text):
            raise ValueError("write a number, without a unit")
        return str(int(text))
    if name in DECIMALS and not _DECIMAL.fullmatch(text):
        raise ValueError("write a number, without a unit")
    return value


def choices_of(name: str) -> str:
    """Return the words that a setting may have, for an error; empty: any."""
    *others, last = CHOICES.get(name, ("",))
    return f"{', '.join(others)} or {last}" if others else last
