"""Settings of the Java producer, as librdkafka has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from canal_server.errors import ConfigError
from canal_server.queues.producers.kafka_settings import (
    librdkafka_settings,
    refused_setting,
)

if TYPE_CHECKING:
    from pathlib import Path

SERVERS = {"bootstrap.servers": "a:9092,b:9092"}
SHIPPED = {  # of canal's own file
    "bootstrap.servers": "127.0.0.1:9092",
    "acks": "all",
    "compression.type": "none",
    "batch.size": "16384",
    "linger.ms": "1",
    "max.request.size": "1048576",
    "buffer.memory": "33554432",
    "max.in.flight.requests.per.connection": "1",
    "retries": "0",
    "kerberos.enable": "false",
    "kerberos.krb5.file": "../conf/kerberos/krb5.conf",
    "kerberos.jaas.file": "../conf/kerberos/jaas.conf",
}


def problems(**given: str) -> list[str]:
    """Return what is wrong with settings, whose names have `__` for a point."""
    names = {key.replace("__", "."): value for key, value in given.items()}
    with pytest.raises(ConfigError) as raised:
        librdkafka_settings(SERVERS | names)
    return raised.value.problems


def test_the_file_of_canal() -> None:
    """Names that differ are translated; what is decided here is left out.

    So are the size of batches and their wait, which would make requests that small.
    """
    assert librdkafka_settings(SHIPPED) == {
        "bootstrap.servers": "127.0.0.1:9092",
        "compression.type": "none",
        "message.max.bytes": "1048576",
        "queue.buffering.max.kbytes": "32768",
    }


@pytest.mark.parametrize("size", ["16383", "65536", "1000000"])
def test_a_size_of_batches(size: str) -> None:
    """A size that is not the default of the Java client is used as it is."""
    assert librdkafka_settings({**SHIPPED, "batch.size": size})["batch.size"] == size


def test_they_are_known(tmp_path: Path) -> None:
    """A producer accepts what is made of the file, and of a log-in."""
    kafka = pytest.importorskip("confluent_kafka", reason="no extra `kafka`")
    kafka.Producer(librdkafka_settings(SHIPPED))
    pem = tmp_path / "ca.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----\n")
    made = librdkafka_settings(
        SERVERS
        | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram."
            r'ScramLoginModule required username="canal" password="a\"b c";',
            "ssl.truststore.location": str(pem),
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert (made["sasl.username"], made["sasl.password"]) == ("canal", 'a"b c')
    assert made["ssl.ca.location"] == str(pem)
    assert made["ssl.endpoint.identification.algorithm"] == "none"


def test_names_of_librdkafka_stay() -> None:
    """Whoever knows them may write them."""
    given = SERVERS | {"statistics.interval.ms": "5000", "ssl.ca.location": "/x"}
    assert librdkafka_settings(given) == given


def test_certificates_of_java_stores(tmp_path: Path) -> None:
    """PKCS #12 is read; for JKS, the error says how to convert it."""
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (text,) = problems(ssl__truststore__location=str(store))
    assert text.startswith(f"kafka.ssl.truststore.location = {store}: a key store in")
    assert "keytool -importkeystore" in text
    (text,) = problems(ssl__keystore__location=str(tmp_path / "none.p12"))
    assert text.endswith("none.p12: No such file or directory")


def test_problems() -> None:
    """All are reported; none shows a value that may be secret."""
    found = problems(
        transactional__id="x",
        buffer__memory="many",
        sasl__jaas__config="my.own.Module required secret=s3cret;",
    )
    assert found == [
        "kafka.transactional.id: cannot be set",
        "kafka.buffer.memory: write a number of bytes, 1024 or more",
        "kafka.sasl.jaas.config: expected PlainLoginModule, ScramLoginModule or"  # noqa: ISC004
        " Krb5LoginModule with their options; for OAuth, set librdkafka's"
        " kafka.sasl.oauthbearer.*",
    ]
    assert problems(sasl__jaas__config="a.PlainLoginModule required username=u;") == [
        "kafka.sasl.jaas.config: PlainLoginModule without password"
    ]
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers: not set"):
        librdkafka_settings({})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"linger.ms": "-5"},
            "kafka.linger.ms = -5: write a number from 0 to 900000",
        ),
        (
            {"max.request.size": "10"},
            "kafka.max.request.size = 10: write a number from 1000 to 1000000000",
        ),
        (
            {"compression.type": "zip"},
            ("kafka.compression.type = zip: write none, gzip, snappy, lz4 or zstd"),
        ),
        ({"partitioner": "foo"}, "kafka.partitioner = foo: invalid value"),
        ({"debug": "foo"}, "kafka.debug = foo: invalid value"),
        (
            {"linger.mss": "5"},
            (
                "kafka.linger.mss: no setting of Kafka's producer in Java, nor of"
                " librdkafka; did you mean kafka.linger.ms?"
            ),
        ),
        (
            {"lingr.ms": "5"},
            (
                "kafka.lingr.ms: no setting of Kafka's producer in Java, nor of"
                " librdkafka; did you mean kafka.linger.ms?"
            ),
        ),
        (
            {"max.in.flight": "7"},
            "kafka.max.in.flight = 7: `max.in.flight` must be set <= 5 when",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "FOO"},
            "kafka.sasl.mechanism = FOO: Unsupported SASL mechanism: FOO",
        ),
        (
            {"socket.keepalive.enable": "maybe"},
            "kafka.socket.keepalive.enable = maybe: write true or false",
        ),
    ],
)
def test_what_librdkafka_refuses(given: dict[str, str], problem: str) -> None:
    """The key is as it was written, though librdkafka has another name for it."""
    kafka = pytest.importorskip("confluent_kafka", reason="no extra `kafka`")
    settings = librdkafka_settings(SERVERS | given) | {"enable.idempotence": "true"}
    with pytest.raises((kafka.KafkaException, ValueError)) as raised:
        kafka.Producer(settings)
    found = refused_setting(raised.value.args[0].str(), SERVERS | given)
    assert found.startswith(problem)


def test_numbers_with_something_after_them() -> None:
    """Their values show, and what to write; numbers of all settings are read so."""
    assert problems(batch__size="12k", linger__ms="5ms", request__timeout__ms="x") == [
        "kafka.batch.size = 12k: write a number, without a unit",
        "kafka.linger.ms = 5ms: write a number, without a unit",
        "kafka.request.timeout.ms = x: write a number, without a unit",
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sasl.pasword", "sasl.password"),
        ("ssl.keypass", "ssl.key.password"),
        ("ssl.keystore.passwd", "ssl.keystore.password"),
        ("ssl.truststore.locaton", "ssl.truststore.location"),
        ("sasl.oauthbearer.client.secrt", "sasl.oauthbearer.client.secret"),
    ],
)
def test_a_misspelt_secret(written: str, meant: str) -> None:
    """Its value does not show, though nothing in its name says that it is a secret."""
    kafka = pytest.importorskip("confluent_kafka", reason="no extra `kafka`")
    given = SERVERS | {written: "s3cret"}
    with pytest.raises(kafka.KafkaException) as raised:
        kafka.Producer(librdkafka_settings(given))
    assert refused_setting(raised.value.args[0].str(), given) == (
        f"kafka.{written}: no setting of Kafka's producer in Java, nor of librdkafka;"
        f" did you mean kafka.{meant}?"
    )


def test_a_secret_that_librdkafka_refuses() -> None:
    """Its value does not show."""
    text = "Failed to create producer: ssl.key.password: bad"
    assert refused_setting(text, {"ssl.key.password": "s3cret"}) == (
        "kafka.ssl.key.password = (hidden): ssl.key.password: bad"
    )


def test_the_login_of_oauth_is_a_secret() -> None:
    """The parameters of a token do not show, as they may contain a password."""
    for name in ("sasl.oauthbearer.config", "sasl.oauthbearer.assertion.passphrase"):
        found = refused_setting(f"{name}: bad", {name: "s3cret"})
        assert found == f"kafka.{name} = (hidden): {name}: bad"
