"""A user's limits where changes come from several sources, or could not be read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fix_group import GROUP_WIRING

from canal_server import cli
from canal_server.client import CanalClient
from canal_server.client.range_client import RangedClient
from canal_server.protocol.range_messages import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fix_pipeline import Pipeline

DESTINATION = "example"
SECRET = "T0p-Secret"
PASSWORD = "pass-of-limited"
MASK = b"****"
CLIENT_OF = {"all": 5, "limited": 6}


@pytest.fixture
def limit(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Pipeline, str], None]:
    """Give a function that lets `limited` see one table, with a masked column."""

    def add(pipeline: Pipeline, schema: str) -> None:
        with (pipeline.conf / "canal.properties").open("a") as main:
            main.write("canal.users.file = users.yml\n")
        file = tmp_path / "password"
        file.write_text(PASSWORD + "\n")
        for options in (
            ("all", "--read", "*", "--ranges", "*"),
            (
                "limited", "--read", DESTINATION, "--ranges", DESTINATION,
                "--tables", rf"{schema}\.orders",
                "--mask-columns", f"{schema}.orders:card",
            ),
        ):  # fmt: skip
            with file.open() as given:
                monkeypatch.setattr("sys.stdin", given)
                conf = str(pipeline.conf)
                words = ["user", "add", "--conf", conf, *options, "--password-stdin"]
                assert cli.main(words) == 0

    return add


def client_of(pipeline: Pipeline, user: str) -> CanalClient:
    """Return a client that has subscribed to everything."""
    client = CanalClient(
        "127.0.0.1",
        pipeline.server_port,
        DESTINATION,
        CLIENT_OF[user],
        user,
        PASSWORD,
    )
    client.connect()
    client.subscribe(".*\\..*")
    return client


def drained(pipeline: Pipeline, user: str, until: bytes, times: int = 1) -> bytes:
    """Return the bytes of the batches that a user gets, until they have a text."""
    raw = b""
    with client_of(pipeline, user) as client:
        while raw.count(until) < times:
            message = client.get(100, timeout_s=60)
            assert message, f"no more changes, but {until!r} is missing"
            raw += bytes(message.body)
            client.ack(message.id)
    return raw


def ranged(pipeline: Pipeline, file: str, offset: int) -> Iterator[bytes]:
    """Yield what `limited` reads by ranges from a position on, in each form."""
    port = pipeline.server_port
    with (
        RangedClient("127.0.0.1", port, "all", PASSWORD) as everything,
        RangedClient("127.0.0.1", port, "limited", PASSWORD) as limited,
    ):
        end = everything.subscribe(DESTINATION, "lake", ".*\\..*").cursor
        start = replace(end, journal=file, position=offset, gtids="")
        for wire in Wire:
            read = limited.read(DESTINATION, "", start, end, wire=wire)
            yield b"".join(map(bytes, read))


def test_a_group(
    make_pipeline, common_schema: str, two_sources, limit: Callable[..., None]
) -> None:
    """The rows of each source have the limits, and no other table is in any byte."""
    schema = common_schema
    pipeline = make_pipeline(two_sources[0], schema)
    sources: dict[str, object] = dict.fromkeys(
        (
            "canal.instance.master.address",
            "canal.instance.master.journal.name",
            "canal.instance.master.position",
        )
    )
    for number, server in enumerate(two_sources, 1):
        server.execute(
            f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY, card VARCHAR(40))",
            f"CREATE TABLE {schema}.secrets (id INT PRIMARY KEY, word VARCHAR(40))",
        )
        file, offset = server.binlog_position()
        key = f"canal.instance.master{number}"
        sources |= {
            f"{key}.address": f"{server.host}:{server.port}",
            f"{key}.journal.name": file,
            f"{key}.position": offset,
        }
    pipeline.configure(sources, wiring=GROUP_WIRING)
    limit(pipeline, schema)
    pipeline.start()
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    for user in CLIENT_OF:
        client_of(pipeline, user).close()
    for number, server in enumerate(two_sources, 1):
        server.execute(
            f"INSERT INTO {schema}.orders VALUES ({number}, '{SECRET} {number}')",
            f"INSERT INTO {schema}.secrets VALUES ({number}, '{SECRET}')",
            f"ALTER TABLE {schema}.secrets ADD c VARCHAR(40) DEFAULT '{SECRET}'",
            f"INSERT INTO {schema}.orders VALUES (9, 'the end {number}')",
        )
    raw = drained(pipeline, "limited", MASK, 4)  # two rows of each source
    for text in (SECRET, "secrets", "the end"):
        assert text.encode() not in raw
    raw = drained(pipeline, "all", b"the end", 2)
    assert raw.count(SECRET.encode()) >= 4


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_raw_events(
    make_pipeline, own_server, flavour: str, limit: Callable[..., None]
) -> None:
    """A user with limits never gets the bytes of an event that could not be read."""
    server = own_server(flavour, ())
    server.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, card VARCHAR(100))",
        "CREATE TABLE shop.secrets (id INT PRIMARY KEY, word VARCHAR(100))",
    )
    file, start = server.binlog_position()
    server.execute("INSERT INTO shop.orders VALUES (0, 'before')")
    damaged = []
    for table in ("orders", "secrets"):
        text = f"{SECRET} of {table}, to be found"
        server.execute(f"INSERT INTO shop.{table} VALUES (1, '{text}')")
        damaged.append(damage(server, file, start, text))
    server.execute("INSERT INTO shop.orders VALUES (2, 'after')")
    pipeline = make_pipeline(server, "shop")
    named = ", ".join(f"{file}:{event}=raw" for event in damaged)
    pipeline.configure(
        {
            "canal.instance.master.journal.name": file,
            "canal.instance.master.position": start,
            "canal.instance.master.unreadable.events": named,
        }
    )
    limit(pipeline, "shop")
    pipeline.start()
    for user in CLIENT_OF:
        client_of(pipeline, user).close()
    everything = drained(pipeline, "all", b"after")
    assert everything.count(b"rawEvent") == len(damaged)
    found = drained(pipeline, "limited", MASK, 2)
    for raw in (found, *ranged(pipeline, file, start)):
        assert MASK in raw
        for text in (SECRET, "secrets", "rawEvent", "canal: event"):
            assert text.encode() not in raw


def damage(server, file: str, start: int, text: str) -> int:
    """Change a byte of a row in the binlog; returns the event's offset."""
    path = server.data_folder / file
    data = bytearray(path.read_bytes())
    at = data.rindex(text.encode())  # the statement's text may be there, before the row
    with path.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"?")
    event = position = start
    while position <= at:
        event = position
        position += int.from_bytes(data[position + 9 : position + 13], "little")
    return event
