"""The client of the registry of schemas, with a registry that does as a test says.

The last tests are with Apicurio, with CANAL_INTEROP=1.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest
from avro_messages import AvroReader
from random_reading import random_load
from row_rules import body_of, table_entry

from canal_server.config.schema import RegistryConfig, SubjectNames
from canal_server.passwords.password_source import PasswordSource
from canal_server.queues import schema_registry
from canal_server.queues.forms.avro_rows import AvroRows
from canal_server.queues.forms.debezium_rows import DebeziumRows
from canal_server.queues.producers.queue_producer import (
    BrokerUnavailableError,
    SchemaRefusedError,
)
from canal_server.queues.schema_registry import SchemaRegistry
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from fix_registry import Apicurio, PlainRegistry
    from fix_tls import Authority

RECORD, SCHEMA = "srv.shop.orders.Envelope", '{"type":"record"}'
PATIENCE_S = 120.0
DEAD = "http://127.0.0.1:9"  # nothing listens there


@pytest.fixture
def registry(make_registry: Callable[[], PlainRegistry]) -> PlainRegistry:
    """Give a registry."""
    return make_registry()


def client(*addresses: str, **settings: object) -> SchemaRegistry:
    """Return a client of registries."""
    return SchemaRegistry(RegistryConfig(urls=addresses, **settings))  # type: ignore[arg-type]


def ask(found: SchemaRegistry, schema: str = SCHEMA, *, is_key: bool = False) -> int:
    """Return the id of a schema of a topic."""
    return found.id_of("shop orders", is_key, RECORD, schema)


def test_a_schema_is_registered_once(registry: PlainRegistry) -> None:
    """Its id is kept, and so is what it stands for."""
    found = client(f"http://{registry.address}/path")
    assert [ask(found), ask(found), ask(found, "{}"), ask(found)] == [1, 1, 2, 1]
    assert [each[:2] for each in registry.requests] == [
        ("POST", "/path/subjects/shop%20orders-value/versions"),
    ] * 2
    assert [found.schema_of(each) for each in (1, 2, 3)] == [SCHEMA, "{}", None]
    assert found.subjects() == 1


@pytest.mark.parametrize(
    ("subjects", "is_key", "expected"),
    [
        (SubjectNames.TOPIC, False, "shop%20orders-value"),
        (SubjectNames.TOPIC, True, "shop%20orders-key"),
        (SubjectNames.RECORD, True, RECORD),
        (SubjectNames.TOPIC_RECORD, True, f"shop%20orders-{RECORD}"),
    ],
)
def test_subjects(
    registry: PlainRegistry, subjects: SubjectNames, is_key: bool, expected: str
) -> None:
    """They are named as Confluent's clients do."""
    ask(client(f"http://{registry.address}", subjects=subjects), is_key=is_key)
    assert list(registry.subjects) == [expected]


def test_schemas_that_are_only_looked_up(registry: PlainRegistry) -> None:
    """One that is not there is refused; nothing is registered."""
    found = client(f"http://{registry.address}", registers=False)
    with pytest.raises(SchemaRefusedError, match="does not have the schema"):
        ask(found)
    registry.schemas.append(SCHEMA)
    assert ask(found) == 1
    assert {each[1] for each in registry.requests} == {"/subjects/shop%20orders-value"}


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (409, SchemaRefusedError, "shop orders-value: the schema is not compatible"),
        (422, SchemaRefusedError, "refuses the schema: said no"),
        (401, BrokerUnavailableError, "refuses the login (401 said no)"),
        (404, BrokerUnavailableError, "is one missing in the URL?"),
        (301, BrokerUnavailableError, "answers 301 said no"),
        (500, BrokerUnavailableError, "does not answer: http://127.0.0.1:"),
    ],
)
def test_refusals(
    registry: PlainRegistry, status: int, error: type[Exception], words: str
) -> None:
    """Those of a schema need a person; others pass, and the next try succeeds."""
    found = client(f"http://{registry.address}")
    registry.answer = lambda _: (status, status)
    with pytest.raises(error) as caught:
        ask(found)
    assert words in str(caught.value)
    registry.answer = lambda _: None
    assert ask(found) == 1


def test_several_addresses(make_registry: Callable[[], PlainRegistry]) -> None:
    """The next one is asked, and stays in use, until all have failed."""
    first, second = make_registry(), make_registry()
    found = client(DEAD, f"http://{first.address}", f"http://{second.address}")
    assert [ask(found, each) for each in ("1", "2")] == [1, 2]
    assert len(first.requests) == 2
    first.answer = lambda _: (503, 1)
    assert ask(found, "3") == 1
    assert len(second.requests) == 1
    second.close()
    with pytest.raises(BrokerUnavailableError) as caught:
        ask(found, "4")
    for each in (DEAD, first.address, second.address):
        assert each in str(caught.value)


def test_silence(registry: PlainRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that does not answer is left after a while."""
    monkeypatch.setattr(schema_registry, "TIMEOUT_S", 0.05)
    registry.server.shutdown()
    with pytest.raises(BrokerUnavailableError, match="timed out"):
        ask(client(f"http://{registry.address}"))


def test_login(registry: PlainRegistry, tmp_path: Path) -> None:
    """The password is read for each request; it is in no text."""
    path = tmp_path / "password"
    source = PasswordSource("canal.mq.schema.registry.password", file=path)
    settings = {"user": "canal", "password": source}
    found = client(f"http://{registry.address}", **settings)
    with pytest.raises(BrokerUnavailableError, match="password"):
        ask(found)
    for number, password in enumerate(("geheim-1", "geheim-ü")):
        path.write_text(password)
        ask(found, str(number))
        expected = base64.b64encode(f"canal:{password}".encode()).decode()
        assert registry.requests[-1][2]["Authorization"] == f"Basic {expected}"
    assert "geheim" not in repr(RegistryConfig(password="geheim"))


def test_tls(make_registry: Callable[..., PlainRegistry], authority: Authority) -> None:
    """The registry's certificate is checked, and our own shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("registry"))
    context.load_verify_locations(authority.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    address = f"https://{make_registry(context).address}"
    cert, key = authority.issue("canal")
    trusting = {"ca_file": authority.ca_file, "cert_file": cert, "key_file": key}
    assert ask(client(address, **trusting)) == 1
    with pytest.raises(BrokerUnavailableError, match="certificate verify failed"):
        ask(client(address, cert_file=cert, key_file=key))
    with pytest.raises(BrokerUnavailableError):
        ask(client(address, ca_file=authority.ca_file))
    with pytest.raises(
        BrokerUnavailableError, match=r"canal\.mq\.schema\.registry\.caFile = .*: "
    ):
        ask(client(address, ca_file=key.with_name("missing")))


def patient(call: Callable[[], Any]) -> Any:
    """Return what a call does, once a registry on a busy machine answers in time."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except BrokerUnavailableError:
            assert time.monotonic() < give_up_at, "the registry does not answer"


def test_a_real_registry(
    apicurio: Apicurio, source_server: Any, database: str, rng: random.Random
) -> None:
    """It has the schemas of random tables as they were made, also after a kill."""
    _, reading = random_load(source_server, database, rng, images=("FULL",))
    found = client(apicurio.url)
    form = AvroRows(lambda *_: Route("x"), name="srv", id_of=found.id_of, has_keys=True)
    made = patient(lambda: form.convert(1, reading.body, 2))
    read = AvroReader(apicurio.text_of)
    other = DebeziumRows(lambda *_: Route("x"), name="srv", has_keys=True)
    expected = other.convert(1, reading.body, 2)
    for ours, theirs in zip(made, expected, strict=True):
        value, text = read(ours[2]), json.loads(theirs[2] or b"null")
        assert (value["op"], value["source"]) == (text["op"], text["source"])
        read(ours[3])
    apicurio.kill()
    with pytest.raises(BrokerUnavailableError):
        client(apicurio.url).subjects()
    apicurio.start()
    assert patient(found.subjects) == 2
    again = AvroRows(
        lambda *_: Route("x"),
        name="srv",
        id_of=client(apicurio.url, registers=False).id_of,
        has_keys=True,
    )
    assert patient(lambda: again.convert(1, reading.body, 2)) == made


def test_rules_of_a_real_registry(apicurio: Apicurio) -> None:
    """It refuses a change that its level of compatibility does not allow."""
    found = client(apicurio.url)
    form = AvroRows(lambda *_: Route("y"), name="srv", id_of=found.id_of)

    def send(**columns: tuple[str, str]) -> None:
        body = body_of(table_entry({"id": ("int", "1"), **columns}))
        patient(lambda: form.convert(1, body, 2))

    send(a=("int", "1"))
    apicurio.set_compatibility("BACKWARD", "y-value")
    send(a=("bigint", "1"))
    send(a=("bigint", "1"), b=("int", "2"))
    send(b=("int", "2"))
    with pytest.raises(SchemaRefusedError, match="y-value: the schema is not compat"):
        send(b=("varchar(9)", "x"))
    apicurio.set_compatibility("NONE", "y-value")
    send(b=("varchar(9)", "x"))
