"""A program that uses the public client; type checkers read it, nothing runs it.

`assert_type` states what they know. A line that ignores an error must be one: checkers
report an ignore without an error.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, TypedDict, assert_type

import msgspec
import pydantic

from canal_server.client import (
    AsyncCanalClient,
    CanalClient,
    Change,
    ClientError,
    Column,
    Entry,
    EntryType,
    EventType,
    Header,
    MappedChange,
    Message,
    ProtocolError,
    RowMapper,
    RowMappingError,
    TransactionTooLarge,
)
from canal_server.client.consume import Consumer
from canal_server.client.handlers import Handler, Rejected, RetryLater


@dataclass
class Order:
    """A class for rows of each kind."""

    id: int
    total: Decimal


class OrderDict(TypedDict):
    """As a dict."""

    id: int
    total: Decimal


class OrderModel(pydantic.BaseModel):
    """As a model."""

    id: int
    total: Decimal


class OrderStruct(msgspec.Struct):
    """As a struct."""

    id: int
    total: Decimal


def connected(address: str) -> None:
    """Note an address."""


def all_options() -> CanalClient:
    """Give every option."""
    return CanalClient(
        "zk://127.0.0.1:2181",
        11111,
        destination="example",
        client_id=1001,
        user="canal",
        password="secret",
        timeout_s=5,
        filter=r"shop\..*",
        batch_size=500,
        values="typed",
        time_zone=UTC,
        load_json=json.loads,
        ack=0.5,
        whole_transactions=True,
        transaction_bytes_max=1 << 20,
        over_limit="part",
        reconnect_for_s=None,
        on_connect=connected,
        on_disconnect=lambda error: print(error.args),
        on_redelivery=lambda: None,
    )


def wrong_options() -> None:
    """Give options values that they do not have."""
    CanalClient(values="text", ack="transaction")
    CanalClient(values="texts")  # type: ignore[arg-type]
    CanalClient(ack="never")  # type: ignore[arg-type]
    CanalClient(over_limit="ignore")  # type: ignore[arg-type]
    CanalClient(port="11111")  # type: ignore[arg-type]
    CanalClient(on_connect=lambda: None)  # type: ignore[arg-type, misc]
    AsyncCanalClient(batch_bytes=1)  # type: ignore[call-arg]


def attributes_of_a_change(change: Change) -> None:
    """Look at all attributes of a change."""
    assert_type(change.schema, str)
    assert_type(change.table, str)
    assert_type(change.key, dict[str, Any])
    assert_type(change.updated, tuple[str, ...])
    assert_type(change.sql, str | None)
    assert_type(change.statement_schema, str)
    assert_type(change.file, str)
    assert_type(change.position, tuple[str, int])
    assert_type(change.end_position, tuple[str, int])
    assert_type(change.server_id, int)
    assert_type(change.gtid, str)
    assert_type(change.commit_time, datetime)
    assert_type(change.commit_time_ms, int)
    assert_type(change.transaction, int)
    assert_type(change.is_last, bool)
    assert_type(change.mysql_types, Mapping[str, str])
    change.table = "x"  # type: ignore[misc]


def kinds_of_a_change(change: Change) -> None:
    """Compare with a kind that there is not."""
    assert_type(
        change.kind,
        Literal[
            "insert",
            "update",
            "delete",
            "ddl",
            "truncate",
            "statement",
            "xa_commit",
            "xa_rollback",
        ],
    )
    print(change.kind == "updated")  # type: ignore[comparison-overlap]


def rows_of_a_change(change: Change) -> None:
    """Look at a row that may be missing."""
    print(change.after["id"])  # type: ignore[index]
    if change.after is not None:
        order_id: int = change.after["id"]
        print(order_id, change.after.get("total"))


def blocking() -> None:
    """Send the requests of the protocol, and look at the state of a client."""
    with CanalClient("127.0.0.1", destination="example") as client:
        assert_type(client, CanalClient)
        client.subscribe(r"shop\..*")
        message = client.get(timeout_s=None)
        assert_type(message, Message)
        client.ack(message.id)
        client.ack()
        client.rollback()
        client.unsubscribe()
        assert_type(client.lag, float | None)
        assert_type(client.destination, str)
        assert_type(client.client_id, int)
        client.stop()
    client.ack("1")  # type: ignore[arg-type]


def iterations(client: CanalClient) -> None:
    """Iterate in every way."""
    for change in client:
        assert_type(change, Change)
    assert_type(client.changes(), Iterator[Change])
    assert_type(client.changes("shop.orders"), Iterator[Change])
    for message in client.messages(batch_size=10, empty=True):
        assert_type(message, Message)
    for batch in client.arrow("shop.orders", updates="both"):
        assert_type(batch.schema, str)
        assert_type(batch.table, str)
    client.arrow(updates="all")  # type: ignore[arg-type]


def rows_of_a_class(client: CanalClient) -> None:
    """Ask for rows of classes of all kinds."""
    for change in client.changes("shop.orders", into=Order):
        assert_type(change, MappedChange[Order])
        assert_type(change.before, Order | None)
        assert_type(change.change, Change)
        if change.after is not None:
            assert_type(change.after.total, Decimal)
            print(change.after.totl)  # type: ignore[attr-defined]
        print(change.after.total)  # type: ignore[union-attr]
        change.after = None  # type: ignore[misc]
    as_dict = next(client.changes(table="shop.orders", into=OrderDict))
    assert_type(as_dict.after, OrderDict | None)
    as_model = next(client.changes("shop.orders", OrderModel))
    assert_type(as_model, MappedChange[OrderModel])
    as_struct = next(client.changes("shop.orders", OrderStruct))
    assert_type(as_struct, MappedChange[OrderStruct])
    client.changes(into=Order)  # type: ignore[call-overload]
    client.changes("shop.orders", into=Order(1, Decimal(2)))  # type: ignore[call-overload]


def renamed_rows(client: CanalClient, message: Message) -> None:
    """Use a mapper, which carries its class."""
    mapper = RowMapper(Order, renames={"id": "order_id"})
    assert_type(mapper, RowMapper[Order])
    for change in client.changes("shop.orders", into=mapper):
        assert_type(change, MappedChange[Order])
    for each in message.changes():
        assert_type(mapper.mapped(each).after, Order | None)


async def with_asyncio() -> None:
    """Do the same with asyncio."""
    async with AsyncCanalClient("127.0.0.1", destination="example") as client:
        assert_type(client, AsyncCanalClient)
        await client.subscribe()
        assert_type(await client.get(), Message)
        await client.ack()
        await client.rollback()
        async for change in client:
            assert_type(change, Change)
        async for mapped in client.changes("shop.orders", into=Order):
            assert_type(mapped, MappedChange[Order])
        async for message in client.messages():
            assert_type(message, Message)
        async for batch in client.arrow():
            assert_type(batch.table, str)
        assert_type(client.changes(), AsyncGenerator[Change, None])
        print(client.get().id)  # type: ignore[attr-defined]
        assert_type(client.lag, float | None)
        client.stop()


def content_of_a_message(message: Message) -> None:
    """Read a message as changes, entries and Arrow."""
    assert_type(message.id, int)
    assert_type(message.rows, int)
    assert_type(message.ends_transaction, bool)
    assert_type(message.changes(), Iterator[Change])
    assert_type(message.entries, tuple[Entry, ...])
    for schema, table in message.to_arrow():  # pyright: ignore[reportUnknownMemberType]
        assert_type(schema + table, str)
    for entry in message.entries:
        assert_type(entry.header, Header)
        assert_type(entry.entry_type, EntryType | int | None)


def a_message_for_a_test() -> Message:
    """Make a message of entries."""
    header = Header(schema_name="shop", event_type=EventType.INSERT)
    print(Column(name="id").value.upper())
    return Message.of_entries(1, [Entry(header=header)])


def errors(client: CanalClient) -> int:
    """Catch errors, and use what they carry."""
    try:
        client.connect()
    except ClientError as error:
        assert_type(error.code, int)
        return error.code
    except (ProtocolError, RowMappingError, TransactionTooLarge, OSError) as error:
        print(error)
    return 0


class MyChange(Change):  # type: ignore[misc]
    """The compiled class cannot be inherited."""


class Printer:
    """A handler, though it inherits nothing."""

    def open(self) -> None:
        """Prepare."""

    def handle(self, change: Change) -> None:
        """Process a change, or say why not."""
        if change.sql is not None:
            raise Rejected("no statements")
        raise RetryLater("later", after_s=5)

    def flush(self) -> None:
        """Make durable."""

    def rollback(self) -> None:
        """Forget."""

    def close(self) -> None:
        """Release."""


def consuming() -> None:
    """Run a handler."""
    handler: Handler = Printer()
    consumer = Consumer(handler)
    client = CanalClient(ack="manual", on_redelivery=consumer.forget)
    with contextlib.closing(client):
        consumer.run(client)
