"""Settings of the delivery to Pulsar, as files of canal have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_tls import Authority

from canal_server.errors import ConfigError
from canal_server.queues.producers.pulsar_settings import (
    PulsarSettings,
    pulsar_settings,
)

if TYPE_CHECKING:
    from pathlib import Path

URL = "pulsar://broker:6000"


def problems(**given: str) -> list[str]:
    """Return what is wrong with settings."""
    with pytest.raises(ConfigError) as raised:
        pulsar_settings({"serverUrl": URL, **given})
    return raised.value.problems


def test_the_file_of_canal() -> None:
    """Its keys are read; those that are blank count as missing."""
    shipped = dict.fromkeys(
        ("roleToken", "topicTenantPrefix", "adminServerUrl"), ""
    )  # fmt: skip
    found = pulsar_settings(shipped | {"serverUrl": URL})
    assert found == PulsarSettings(addresses=(("broker", 6000),))
    assert found.url == URL
    assert found.full_topic("shop") == "shop"
    found = pulsar_settings(
        {
            "serverUrl": "pulsar+ssl://a,b:1,[::1]/",
            "roleToken": "s3cret",
            "topicTenantPrefix": "persistent://tenant/space/",
            "adminServerUrl": "http://broker:8080/",
            "listenerName": "outside",
            "enableChunking": "TRUE",
            "compressionType": "lz4",
            "ackTimeoutSeconds": "3",
        }
    )
    assert found == PulsarSettings(
        addresses=(("a", 6651), ("b", 1), ("::1", 6651)),
        is_tls=True,
        token="s3cret",
        prefix="persistent://tenant/space/",
        admin_url="http://broker:8080",
        listener="outside",
        chunking=True,
        compression="LZ4",
    )
    assert found.url == "pulsar+ssl://a:6651,b:1,[::1]:6651"
    assert found.full_topic("shop") == "persistent://tenant/space/shop"
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("serverUrl", "", "pulsarmq.serverUrl: not set; write pulsar://host:port"),
        ("serverUrl", "pulsar://a:0", "pulsarmq.serverUrl: a:0: write pulsar://host"),
        ("serverUrl", "pulsar://a:b", "pulsarmq.serverUrl: a:b: write pulsar://host"),
        ("topicTenantPrefix", "a", "pulsarmq.topicTenantPrefix = a: write tenant/name"),
        ("enableChunking", "yes", "pulsarmq.enableChunking = yes: write true or false"),
        ("compressionType", "gzip", "pulsarmq.compressionType = gzip: write one of NO"),
        ("roletoken", "x", "unknown key; did you mean pulsarmq.roleToken?"),
        ("unheardOf", "x", "pulsarmq.unheardOf: unknown key"),
        ("tlsTrustCertsFilePath", "/none", "= /none: No such file or directory"),
    ],
)
def test_problems(key: str, value: str, expected: str) -> None:
    """Each names the key, the value and the remedy."""
    (problem,) = problems(**{key: value})
    assert expected in problem


def test_urls_with_secrets() -> None:
    """They are not shown."""
    (problem,) = problems(serverUrl="http://user:s3cret@broker")
    assert "not a URL of Pulsar" in problem
    assert "s3cret" not in problem
    (problem,) = problems(adminServerUrl="broker?token=s3cret")
    assert problem.startswith("pulsarmq.adminServerUrl: write http://host:port")
    assert "s3cret" not in problem


def test_authorities(tmp_path: Path) -> None:
    """They are in a file in PEM."""
    authority = Authority(tmp_path)
    found = pulsar_settings(
        {"serverUrl": URL, "tlsTrustCertsFilePath": str(authority.ca_file)}
    )
    assert found.trusted_file == authority.ca_file
    other = tmp_path / "store"
    other.write_bytes(b"\xfe\xed\xfe\xed")
    (problem,) = problems(tlsTrustCertsFilePath=str(other))
    assert "is not in PEM; write a file in PEM" in problem
