"""Settings of Kafka's Java producer, as librdkafka has them.

The Java server hands keys that begin with `kafka.` to the Java client. Most of them
exist in librdkafka by the same name; what differs is in the tables here. What neither
of them knows is an error when the producer is created.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConfigError
from canal_server.queues.producers.kafka_setting_values import (
    CHOICES,
    DECIMALS,
    INTEGERS,
    choices_of,
    number_of,
)
from canal_server.tls.key_stores import client_of_store, trusted_of
from canal_server.tls.store_files import is_pem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SERVERS_KEY: Final = "bootstrap.servers"
KIB: Final = 1024

_RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

# Decided here: a message is sent until it is confirmed by all replicas, in order. Or
# they configure how the Java client works inside.
_IGNORED: Final = frozenset(
    {
        "acks",
        "auto.include.jmx.reporter",
        "delivery.timeout.ms",
        "enable.idempotence",
        "interceptor.classes",
        "kerberos.enable",  # reported where it is true
        "kerberos.jaas.file",
        "kerberos.krb5.file",
        "key.serializer",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "retries",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "security.providers",
        "ssl.enabled.protocols",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "value.serializer",
    }
)
_REFUSED: Final = {
    "transactional.id": "cannot be set",
    "message.timeout.ms": "cannot be set: no message may get lost",
    "sasl.client.callback.handler.class": "a class of Java; use librdkafka's settings",
    "sasl.login.callback.handler.class": "a class of Java; use librdkafka's settings",
    "ssl.engine.factory.class": "a class of Java; use librdkafka's settings",
}
_KEY_PASSWORD: Final = "ssl.key.password"  # noqa: S105  # a name
_INLINE: Final = (
    "ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key",
)  # fmt: skip
_STORES: Final = frozenset({
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
    _KEY_PASSWORD, *_INLINE,
})  # fmt: skip
_JAAS: Final = "sasl.jaas.config"
_OPTION: Final = re.compile(
    r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
# Ways to leave a choice to the library. 16384 is the default of the Java client, which
# the file of the Java server repeats: there, a request has many such batches. Here it
# has one, and small ones cost a third of the speed and more. Nothing waits for others
# when nothing follows, so that waiting for less than this makes nothing faster.
_NOT_SET: Final = {
    "batch.size": ("0", "16384"),
    "linger.ms": ("0", "1"),
    "receive.buffer.bytes": ("-1",),
    "send.buffer.bytes": ("-1",),
}
_ENDPOINT: Final = "ssl.endpoint.identification.algorithm"


# Names by which librdkafka speaks of settings that have another one.
_ALIASES: Final = {
    "compression.codec": "compression.type",
    "max.in.flight.requests.per.connection": "max.in.flight",
    "message.max.bytes": "max.request.size",
    "metadata.broker.list": SERVERS_KEY,
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.location",
}
_COMMON: Final = (  # beside those above, for suggestions
    "client.id", "compression.type", "connections.max.idle.ms", "metadata.max.age.ms",
    "queue.buffering.max.messages", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "request.timeout.ms", "retry.backoff.ms", "sasl.mechanism",
    "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.password",
    "sasl.username", "security.protocol", "socket.timeout.ms", "ssl.ca.location",
    "ssl.key.password", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.keystore.location", "ssl.keystore.password", "statistics.interval.ms",
    "transaction.timeout.ms",
)  # fmt: skip
_IS_SECRET: Final = re.compile(
    r"password|passphrase|secret|jaas|pem|\bkey\b|certificate|token"
    r"|oauthbearer\.config"
)
# Of a setting with a value of its own kind, the text goes on with that value.
_NO_NUMBER: Final = re.compile(
    r"Invalid value for configuration property \"[^\"]+\"\s*$"
)
_WORD: Final = re.compile(r"[a-z]+(?:\.[a-z]+)+")
_QUOTED: Final = re.compile(r'property:? "([^"]+)"')  # also names of one word
_UNKNOWN: Final = "No such configuration property"
_OF_ONE_SETTING: Final = (  # others are about settings that do not fit together
    _UNKNOWN,
    "Invalid value",
    "Unsupported SASL mechanism",
    "outside allowed range",
    "Expected bool value",
)
_RANGE: Final = re.compile(r"outside allowed range (-?\d+)\.\.(-?\d+)")
_SASL: Final = "SASL mechanism"  # without a name of a setting


class SettingRefusedError(ConfigError):
    """librdkafka refuses settings; `texts` are what it says of each."""

    def __init__(self, *texts: str) -> None:
        super().__init__([f"settings of Kafka: {each}" for each in texts])
        self.texts = texts


class WrongSettingsError(ConfigError):
    """Settings that are not even handed to librdkafka; `others`: the rest."""

    def __init__(self, problems: list[str], others: Mapping[str, str]) -> None:
        super().__init__(problems)
        self.others = others


def is_of_one(text: str) -> bool:
    """Return whether a text of librdkafka is about one setting, not about several."""
    return any(each in text for each in _OF_ONE_SETTING)


def refused_texts(
    settings: Mapping[str, str], refusal: Callable[[Mapping[str, str]], str]
) -> Iterator[str]:
    """Yield what librdkafka says of settings: it names one at a time.

    `refusal` returns what it says of those it is passed, empty if it accepts them.
    """
    left = dict(settings)
    is_first = True
    while text := refusal(left):
        if is_first or is_of_one(text):
            yield text
        name = _named_in(text, left)
        if not (is_of_one(text) and name):
            return
        is_first = False
        del left[name]


def refused_setting(text: str, given: Mapping[str, str]) -> str:
    """Return what librdkafka says of a setting, with the key that is written."""
    name = _named_in(text, given)
    why = _why_refused(text, name)
    if not name:
        return f"kafka.*: {why}"
    if _UNKNOWN in text:  # nobody knows whether its value is a secret
        return f"kafka.{name}: {why}"
    shown = "(hidden)" if _IS_SECRET.search(name) else given[name]
    return f"kafka.{name} = {shown}: {why}"


def _named_in(text: str, given: Mapping[str, str]) -> str:
    """Return the setting that a text of librdkafka is about; empty: unknown."""
    words = [*_QUOTED.findall(text), *_WORD.findall(text)]
    if _SASL in text:
        words.append("sasl.mechanisms")
    for word in words:
        for name in (word, _ALIASES.get(word, "")):
            if name in given:
                return str(name)
    return ""


def _why_refused(text: str, name: str) -> str:
    if _UNKNOWN in text:
        known = sorted(_known())
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean kafka.{close[0]}?" if close else ""
        return f"no setting of Kafka's producer in Java, nor of librdkafka{hint}"
    if found := _RANGE.search(text):
        return f"write a number from {found[1]} to {found[2]}"
    if _NO_NUMBER.search(text):
        return "write a number"
    if "Invalid value" in text:
        words = choices_of(_RENAMED.get(name, name))
        return f"write {words}" if words else "invalid value"
    if "Expected bool value" in text:
        return "write true or false"
    return text.removeprefix("Failed to create producer: ").strip()


def _known() -> set[str]:
    """Return names of settings, for suggestions."""
    ours = {*_RENAMED, *_IGNORED, *_STORES, *_NOT_SET, *_COMMON, SERVERS_KEY, _JAAS}
    return (ours | INTEGERS | DECIMALS | CHOICES.keys()) - _REFUSED.keys()


def librdkafka_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings of the Java producer as those of librdkafka.

    Names of librdkafka stay as they are. Raises WrongSettingsError with every problem;
    none shows a value that may be secret.
    """
    problems: list[str] = []
    made: dict[str, str] = {}
    for key, value in given.items():
        if key in _REFUSED:
            problems.append(f"kafka.{key}: {_REFUSED[key]}")
        elif key == "buffer.memory":
            if value.isdecimal() and int(value) >= KIB:
                made["queue.buffering.max.kbytes"] = str(int(value) // KIB)
            else:
                problems.append(f"kafka.{key}: write a number of bytes, {KIB} or more")
        elif key == _JAAS:
            made |= _login(value, problems)
        elif key == _ENDPOINT:
            made[key] = value.strip().lower() or "none"  # Java's blank turns it off
        elif _counts(key, value):
            made |= _plain(key, value, problems)
    _add_stores(given, made, problems)
    if not given.get(SERVERS_KEY):
        problems.append(f"kafka.{SERVERS_KEY}: not set; write host:port,host:port")
    if problems:
        raise WrongSettingsError(problems, made)
    return made


def _counts(key: str, value: str) -> bool:
    """Return whether a key is one that librdkafka gets."""
    if not value or value in _NOT_SET.get(key, ()):
        return False
    return key not in _IGNORED and key not in _STORES


def _plain(key: str, value: str, problems: list[str]) -> dict[str, str]:
    """Return a setting by its name in librdkafka."""
    name = _RENAMED.get(key, key)
    try:
        return {name: number_of(name, value)}
    except ValueError as error:
        problems.append(f"kafka.{key} = {value}: {error}")
        return {}


def _login(text: str, problems: list[str]) -> dict[str, str]:
    """Return the account in a text for JAAS."""
    module = text.split(maxsplit=1)[0].rpartition(".")[2] if text.strip() else ""
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single) or plain
        for name, double, single, plain in _OPTION.findall(text)
    }
    names = {
        "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
        "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
        "Krb5LoginModule": {
            "keyTab": "sasl.kerberos.keytab",
            "principal": "sasl.kerberos.principal",
        },
    }.get(module)
    if names is None:
        problems.append(
            f"kafka.{_JAAS}: expected PlainLoginModule, ScramLoginModule or"
            " Krb5LoginModule with their options; for OAuth, set librdkafka's"
            " kafka.sasl.oauthbearer.*"
        )
        return {}
    missing = [name for name in names if name not in options]
    if missing:
        problems.append(f"kafka.{_JAAS}: {module} without {' and '.join(missing)}")
    return {names[name]: options[name] for name in names if name in options}


def _add_stores(
    given: Mapping[str, str], made: dict[str, str], problems: list[str]
) -> None:
    """Add certificates and keys of files: PEM, or Java's key stores in PKCS #12."""
    for key, read in (
        ("ssl.truststore.location", _trusted),
        ("ssl.keystore.location", _own),
    ):
        path = given.get(key)
        if not path:
            continue
        try:
            made |= read(Path(path), given)
        except OSError as error:
            problems.append(f"kafka.{key} = {path}: {error.strerror}")
        except ValueError as error:
            problems.append(f"kafka.{key} = {path}: {error}")
    for key in _INLINE:
        if given.get(key):
            made[_RENAMED[key]] = given[key]
    if given.get(_KEY_PASSWORD) and "ssl.certificate.pem" not in made:
        made[_KEY_PASSWORD] = given[_KEY_PASSWORD]


def _trusted(path: Path, given: Mapping[str, str]) -> dict[str, str]:
    if is_pem(path):
        return {"ssl.ca.location": str(path)}
    return {"ssl.ca.pem": trusted_of(path, given.get("ssl.truststore.password", ""))}


def _own(path: Path, given: Mapping[str, str]) -> dict[str, str]:
    if is_pem(path):
        return {"ssl.certificate.location": str(path), "ssl.key.location": str(path)}
    store = client_of_store(path, given.get("ssl.keystore.password", ""))
    pem = store.pem.decode("ascii")
    return {"ssl.certificate.pem": pem, "ssl.key.pem": pem}
