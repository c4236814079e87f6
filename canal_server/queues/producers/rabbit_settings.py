"""Settings of the delivery to RabbitMQ: keys `rabbitmq.…`, as the Java server has them.

Ours in addition are several hosts, `port`, `heartbeat` and `ssl.…`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from canal_server.errors import ConfigError, SourceRefused
from canal_server.tls.source_tls import TlsMode, TlsOptions
from canal_server.tls.store_files import is_pem

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

PORT: Final = 5672
TLS_PORT: Final = 5671
HEARTBEAT_S: Final = 60
EXCHANGE_TYPES: Final = ("direct", "topic", "fanout", "headers")

_KEYS: Final = (
    "host", "port", "virtual.host", "exchange", "username", "password", "queue",
    "routingKey", "deliveryMode", "heartbeat", "ssl.enabled", "ssl.truststore.location",
    "ssl.truststore.password", "ssl.keystore.location", "ssl.keystore.password",
    "ssl.endpoint.identification.algorithm",
)  # fmt: skip
_OF_ALIYUN: Final = "rabbitmq.resource.ownerId"  # with access keys only; no effect
_SCHEMES: Final = ("amqp", "amqps")
_ADDRESS: Final = re.compile(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d+))?")
_PORT_MAX: Final = 65535
_HEARTBEAT_MAX: Final = 65535
# The files of TLS by their kind: in PEM, or as a key store.
_FILES: Final = {
    "truststore": ("ca", "trust_store"), "keystore": ("cert", "client_store"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitSettings:
    """Where messages go, and with which account."""

    addresses: tuple[tuple[str, int], ...]  # host and port; of one cluster
    virtual_host: str = "/"
    exchange: str = ""  # empty: the default one, which routes to the queue of the name
    username: str = "guest"
    password: str = field(default="guest", repr=False)
    queue: str = ""  # that is declared; empty: none
    routing_key: str = ""  # with which that is bound
    exchange_type: str = ""
    heartbeat_s: int = HEARTBEAT_S
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def servers(self) -> str:
        """Return the addresses as text."""
        return ",".join(address_text(*each) for each in self.addresses)

    @property
    def declares_exchange(self) -> bool:
        """Return whether the exchange is declared and bound to the queue."""
        return bool(
            self.queue and self.exchange and self.exchange_type and self.routing_key
        )


def address_text(host: str, port: int) -> str:
    """Return an address as people write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def rabbit_settings(given: Mapping[str, str]) -> RabbitSettings:
    """Return the settings by keys without `rabbitmq.`; blank ones count as missing.

    Raises ConfigError with every problem; none shows a secret.
    """
    problems: list[str] = []
    given = {key: value for key, value in given.items() if value}
    for key in given:
        if key not in (*_KEYS, _OF_ALIYUN):
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"; did you mean rabbitmq.{close[0]}?" if close else ""
            problems.append(f"rabbitmq.{key}: unknown key{hint}")
    made = _of_host(given, problems)
    for key, name in (
        ("virtual.host", "virtual_host"), ("exchange", "exchange"),
        ("username", "username"), ("password", "password"), ("queue", "queue"),
        ("routingKey", "routing_key"),
    ):  # fmt: skip
        if key in given:
            made[name] = given[key]
    kind = given.get("deliveryMode", "")
    if kind and kind not in EXCHANGE_TYPES and not kind.startswith("x-"):
        problems.append(
            f"rabbitmq.deliveryMode = {kind}: write the type of the exchange:"
            f" {', '.join(EXCHANGE_TYPES)}; messages are always persistent"
        )
    made["exchange_type"] = kind
    made["heartbeat_s"] = _number(
        given, "heartbeat", HEARTBEAT_S, (1, _HEARTBEAT_MAX), problems
    )
    if made.pop("is_tls", False):
        made["tls"] = _context(given, problems)
    if problems:
        raise ConfigError(problems)
    return RabbitSettings(**made)  # type: ignore[arg-type]


def _of_host(given: Mapping[str, str], problems: list[str]) -> dict[str, object]:
    """Return the addresses, and what a URI says beside them."""
    text = given.get("host", "")
    word = given.get("ssl.enabled", "false").strip().lower()
    if word not in ("true", "false"):
        problems.append(f"rabbitmq.ssl.enabled = {word}: write true or false")
    is_tls = word == "true"
    if text.partition("://")[0] in _SCHEMES:
        return _of_uri(text, is_tls, given, problems)
    made: dict[str, object] = {"is_tls": is_tls}
    default = _number(
        given, "port", TLS_PORT if is_tls else PORT, (1, _PORT_MAX), problems
    )
    items = [each.strip() for each in text.split(",") if each.strip()]
    if not items:
        problems.append("rabbitmq.host: not set; write host, or host:port,host:port")
    addresses = []
    for item in items:
        found = _ADDRESS.fullmatch(item)
        port = int(found[2] or default) if found else 0
        if found is None or not 0 < port <= _PORT_MAX:
            problems.append(f"rabbitmq.host: {item}: write host or host:port")
        else:
            addresses.append((found[1].strip("[]"), port))
    return made | {"addresses": tuple(addresses)}


def _of_uri(
    text: str, is_tls: bool, given: Mapping[str, str], problems: list[str]
) -> dict[str, object]:
    made: dict[str, object] = {"addresses": ()}
    try:
        parts = urlsplit(text)
        is_tls = is_tls or parts.scheme == "amqps"
        default = TLS_PORT if is_tls else PORT
        port = parts.port or _number(given, "port", default, (1, _PORT_MAX), problems)
    except ValueError:
        parts = None
    if parts is None or not parts.hostname or "," in parts.netloc:
        # Not shown: it may have a password.
        problems.append(
            "rabbitmq.host: not a valid URI; write amqp://host:port/virtual-host, and"
            " several hosts as host:port,host:port"
        )
        return made
    made |= {"addresses": ((parts.hostname, port),), "is_tls": is_tls}
    if parts.username:
        made["username"] = unquote(parts.username)
    if parts.password:
        made["password"] = unquote(parts.password)
    if len(parts.path) > 1:
        made["virtual_host"] = unquote(parts.path[1:])
    return made


def _number(
    given: Mapping[str, str],
    key: str,
    default: int,
    limits: tuple[int, int],
    problems: list[str],
) -> int:
    text = given.get(key)
    if text is None:
        return default
    low, high = limits
    if text.isdecimal() and text.isascii() and low <= int(text) <= high:
        return int(text)
    problems.append(f"rabbitmq.{key} = {text}: write a whole number, {low} to {high}")
    return default


def _context(given: Mapping[str, str], problems: list[str]) -> ssl.SSLContext | None:
    """Return how connections are encrypted; key stores are PEM or PKCS #12."""
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none"):
        problems.append(
            f"rabbitmq.ssl.endpoint.identification.algorithm = {algorithm}: write"
            " https, or none to accept a certificate of any host"
        )
    found: dict[str, Any] = {}
    for store, (of_pem, of_store) in _FILES.items():
        key = f"ssl.{store}.location"
        if not (path := given.get(key)):
            continue
        try:
            found[of_pem if is_pem(path) else of_store] = path
        except OSError as error:
            problems.append(f"rabbitmq.{key} = {path}: {error.strerror}")
            return None
        found[f"{of_store}_password"] = given.get(f"ssl.{store}.password", "")
    mode = TlsMode.VERIFY_CA if algorithm == "none" else TlsMode.VERIFY_IDENTITY
    key_password = given.get("ssl.keystore.password", "")
    options = TlsOptions(mode=mode, key_password=key_password, **found)
    try:
        return options.context()
    except SourceRefused as error:
        problems.append(f"rabbitmq.ssl: {error}")
        return None
