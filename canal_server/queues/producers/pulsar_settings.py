"""Settings of the delivery to Pulsar: keys `pulsarmq.…`, as the Java server has them.

Ours in addition are `tlsTrustCertsFilePath` and `tlsEnableHostnameVerification`, by the
names of Pulsar's own client.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canal_server.doors.web_service import WebTarget
from canal_server.errors import ConfigError
from canal_server.tls.store_files import is_pem

if TYPE_CHECKING:
    from collections.abc import Mapping

PORT: Final = 6650
TLS_PORT: Final = 6651
COMPRESSIONS: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")

_KEYS: Final = (
    "serverUrl", "roleToken", "topicTenantPrefix", "adminServerUrl", "listenerName",
    "enableChunking", "compressionType", "tlsTrustCertsFilePath",
    "tlsEnableHostnameVerification",
)  # fmt: skip
# Of the Java client that reads messages, in the same file; no effect here.
_OF_CONSUMERS: Final = (
    "getBatchTimeoutSeconds", "batchProcessTimeout", "subscriptName",
    "redeliveryDelaySeconds", "ackTimeoutSeconds", "isRetry", "isRetryDLQUpperCase",
    "maxRedeliveryCount",
)  # fmt: skip
_URL: Final = re.compile(r"(pulsar|pulsar\+ssl)://([^/?#@]+)/?")
_ADDRESS: Final = re.compile(r"(\[[^\]]+\]|[^:\[\],\s]+)(?::(\d+))?")
_PREFIX: Final = re.compile(r"(?:(?:non-)?persistent://)?[^/\s]+/[^/\s]+/?")
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSettings:
    """Where messages go, and with which token."""

    addresses: tuple[tuple[str, int], ...]  # host and port; of one cluster
    is_tls: bool = False
    token: str = field(default="", repr=False)  # empty: no login
    prefix: str = ""  # tenant/namespace of topics; empty: public/default
    admin_url: str = ""  # where topics are created; empty: they are not
    listener: str = ""  # which of the brokers' listeners; empty: the default
    chunking: bool = False  # a message that is too large is sent in pieces
    compression: str = "NONE"
    trusted_file: Path | None = None  # authorities, as PEM; None: the library's
    verifies_host: bool = True

    @property
    def servers(self) -> str:
        """Return the addresses as text."""
        return ",".join(_address_text(*each) for each in self.addresses)

    @property
    def url(self) -> str:
        """Return the address as the library wants it."""
        return f"pulsar{'+ssl' if self.is_tls else ''}://{self.servers}"

    def full_topic(self, topic: str) -> str:
        """Return the name of a topic with tenant and namespace, as far as given."""
        return f"{self.prefix.rstrip('/')}/{topic}" if self.prefix else topic


def pulsar_settings(given: Mapping[str, str]) -> PulsarSettings:
    """Return the settings by keys without `pulsarmq.`; blank ones count as missing.

    Raises ConfigError with every problem; none shows a secret.
    """
    problems: list[str] = []
    given = {key: value.strip() for key, value in given.items() if value.strip()}
    for key in given:
        if key not in (*_KEYS, *_OF_CONSUMERS):
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"; did you mean pulsarmq.{close[0]}?" if close else ""
            problems.append(f"pulsarmq.{key}: unknown key{hint}")
    is_tls, addresses = _of_url(given.get("serverUrl", ""), problems)
    prefix = given.get("topicTenantPrefix", "")
    if prefix and not _PREFIX.fullmatch(prefix):
        problems.append(
            f"pulsarmq.topicTenantPrefix = {prefix}: write tenant/namespace, or"
            " persistent://tenant/namespace"
        )
    made = PulsarSettings(
        addresses=addresses,
        is_tls=is_tls,
        token=given.get("roleToken", ""),
        prefix=prefix,
        admin_url=_admin_url(given.get("adminServerUrl", ""), problems),
        listener=given.get("listenerName", ""),
        chunking=_flag(given, "enableChunking", "false", problems),
        compression=_compression(given.get("compressionType", "NONE"), problems),
        trusted_file=_trusted(given.get("tlsTrustCertsFilePath"), problems),
        verifies_host=_flag(given, "tlsEnableHostnameVerification", "true", problems),
    )
    if problems:
        raise ConfigError(problems)
    return made


def _address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _of_url(text: str, problems: list[str]) -> tuple[bool, tuple[tuple[str, int], ...]]:
    """Return whether TLS is used, and the addresses."""
    remedy = "write pulsar://host:port,host:port, or pulsar+ssl:// for TLS"
    if not text:
        problems.append(f"pulsarmq.serverUrl: not set; {remedy}")
        return False, ()
    found = _URL.fullmatch(text)
    if found is None:
        # Not shown: it may have a password, which Pulsar has no use for.
        problems.append(f"pulsarmq.serverUrl: not a URL of Pulsar; {remedy}")
        return False, ()
    is_tls = found[1] != "pulsar"
    addresses = []
    for item in found[2].split(","):
        parts = _ADDRESS.fullmatch(item)
        port = int(parts[2] or (TLS_PORT if is_tls else PORT)) if parts else 0
        if parts is None or not 0 < port <= _PORT_MAX:
            problems.append(f"pulsarmq.serverUrl: {item}: {remedy}")
        else:
            addresses.append((parts[1].strip("[]"), port))
    return is_tls, tuple(addresses)


def _admin_url(text: str, problems: list[str]) -> str:
    if text:
        try:
            WebTarget(text)
        except ValueError:
            problems.append(
                "pulsarmq.adminServerUrl: write http://host:port or https://host:port"
            )
    return text.rstrip("/")


def _flag(
    given: Mapping[str, str], key: str, default: str, problems: list[str]
) -> bool:
    word = given.get(key, default).lower()
    if word not in ("true", "false"):
        problems.append(f"pulsarmq.{key} = {word}: write true or false")
    return word == "true"


def _compression(text: str, problems: list[str]) -> str:
    if text.upper() not in COMPRESSIONS:
        problems.append(
            f"pulsarmq.compressionType = {text}: write one of {', '.join(COMPRESSIONS)}"
        )
    return text.upper()


def _trusted(text: str | None, problems: list[str]) -> Path | None:
    if text is None:
        return None
    key = "pulsarmq.tlsTrustCertsFilePath"
    try:
        if not is_pem(text):
            problems.append(f"{key} = {text}: is not in PEM; write a file in PEM")
    except OSError as error:
        problems.append(f"{key} = {text}: {error.strerror}")
    return Path(text)
