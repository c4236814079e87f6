"""Settings of the delivery to RabbitMQ, as files of canal have them."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
from fix_tls import Authority

from canal_server.errors import ConfigError
from canal_server.queues.producers.rabbit_settings import (
    RabbitSettings,
    rabbit_settings,
)

if TYPE_CHECKING:
    from pathlib import Path


def problems(**given: str) -> list[str]:
    """Return what is wrong with settings, whose names have `__` for a point."""
    with pytest.raises(ConfigError) as raised:
        rabbit_settings({key.replace("__", "."): each for key, each in given.items()})
    return raised.value.problems


def test_the_file_of_canal() -> None:
    """Its keys are read; those that are blank count as missing."""
    shipped = dict.fromkeys(
        ("virtual.host", "exchange", "username", "password", "queue", "routingKey",
         "deliveryMode"), "",
    )  # fmt: skip
    assert rabbit_settings(shipped | {"host": "broker"}) == RabbitSettings(
        addresses=(("broker", 5672),)
    )
    found = rabbit_settings(
        {
            "host": "broker:5000",
            "virtual.host": "shop",
            "exchange": "changes",
            "username": "canal",
            "password": "s3cret",
            "queue": "all",
            "routingKey": "#",
            "deliveryMode": "topic",
        }
    )
    assert found == RabbitSettings(
        addresses=(("broker", 5000),),
        virtual_host="shop",
        exchange="changes",
        username="canal",
        password="s3cret",
        queue="all",
        routing_key="#",
        exchange_type="topic",
    )
    assert found.declares_exchange
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("host", "port", "servers"),
    [
        ("a", "", "a:5672"),
        ("a:1, b:2,c", "", "a:1,b:2,c:5672"),
        ("a,b:2", "7", "a:7,b:2"),
        ("[::1]:7", "", "[::1]:7"),
        ("[::1]", "", "[::1]:5672"),
        ("amqp://a", "", "a:5672"),
        ("amqp://a:7/shop", "", "a:7"),
    ],
)
def test_addresses(host: str, port: str, servers: str) -> None:
    """A host, a host with a port, several of a cluster, or a URI."""
    assert rabbit_settings({"host": host, "port": port}).servers == servers


def test_a_uri() -> None:
    """Its account and virtual host count unless keys of their own say otherwise."""
    uri = {"host": "amqp://can%40al:s3%2Fcret@a/my%2Fshop"}
    found = rabbit_settings(uri)
    assert (found.username, found.password) == ("can@al", "s3/cret")
    assert found.virtual_host == "my/shop"
    found = rabbit_settings(uri | {"username": "other", "virtual.host": "v"})
    assert (found.username, found.password) == ("other", "s3/cret")
    assert found.virtual_host == "v"
    assert found.tls is None
    found = rabbit_settings({"host": "amqps://a"})
    assert found.servers == "a:5671"
    assert found.tls is not None


def test_tls(tmp_path: Path) -> None:
    """Files are PEM or PKCS #12; the broker is verified in any case."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("client")
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    trusted = authority.store("trusted", "changeit", authority.ca_file)
    store = authority.store("client", "changeit", cert, key)
    on = {"host": "a", "ssl.enabled": "true"}
    for trust, own in ((authority.ca_file, both), (trusted, store)):
        found = rabbit_settings(
            on
            | {
                "ssl.truststore.location": str(trust),
                "ssl.truststore.password": "changeit",
                "ssl.keystore.location": str(own),
                "ssl.keystore.password": "changeit",
            }
        )
        assert found.servers == "a:5671"
        assert found.tls is not None
        assert found.tls.verify_mode is ssl.CERT_REQUIRED
        assert found.tls.check_hostname
        assert len(found.tls.get_ca_certs()) == 1
    found = rabbit_settings(on | {"ssl.endpoint.identification.algorithm": "none"})
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert not found.tls.check_hostname


def test_problems_of_tls(tmp_path: Path) -> None:
    """Each names the file and what is wrong with it; no password shows."""
    (text,) = problems(
        host="a", ssl__enabled="true", ssl__truststore__location=str(tmp_path / "none")
    )
    assert text == (
        f"rabbitmq.ssl.truststore.location = {tmp_path}/none: No such file or directory"
    )
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (text,) = problems(
        host="a",
        ssl__enabled="true",
        ssl__truststore__location=str(store),
        ssl__truststore__password="s3cret",
    )
    assert "keytool -importkeystore" in text
    assert "s3cret" not in text


def test_problems() -> None:
    """All are reported, with what to write; none shows a value that may be secret."""
    assert problems(
        port="70000",
        deliveryMode="2",
        ssl__enabled="perhaps",
        heartbeat="0",
        pasword="s3cret",
    ) == [
        "rabbitmq.pasword: unknown key; did you mean rabbitmq.password?",
        "rabbitmq.ssl.enabled = perhaps: write true or false",
        "rabbitmq.port = 70000: write a whole number, 1 to 65535",
        "rabbitmq.host: not set; write host, or host:port,host:port",
        "rabbitmq.deliveryMode = 2: write the type of the exchange: direct, topic,"  # noqa: ISC004
        " fanout, headers; messages are always persistent",
        "rabbitmq.heartbeat = 0: write a whole number, 1 to 65535",
    ]
    assert problems(host="a:b, c:99999") == [
        "rabbitmq.host: a:b: write host or host:port",
        "rabbitmq.host: c:99999: write host or host:port",
    ]
    (text,) = problems(host="amqp://canal:s3cret@a,b")
    assert "not a valid URI" in text
    assert "s3cret" not in text
