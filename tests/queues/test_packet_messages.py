"""Messages in the form of protobuf, against the same rules in plain Python."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from client_entries import row, statement, transaction
from damaged_entries import damaged_body
from fix_random import longer
from golden_form import DATA, decode_fields, load_workload
from java_hashes import java_hash, partition_of
from random_entries import random_body, random_entry

from canal_server.client.frame_reader import entries_of
from canal_server.config.schema import RoutingConfig
from canal_server.errors import ProtocolError
from canal_server.model.entry import EntryType, EventType
from canal_server.protocol.entry_messages import RowChange, decode_entry
from canal_server.protocol.packets import Messages, Packet, PacketType
from canal_server.protocol.protobuf import decode, encode, varint
from canal_server.queues.message_form import MessageForm
from canal_server.queues.packet_messages import PacketMessages
from canal_server.queues.routing import Router
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from canal_server.protocol.entry_messages import Entry

WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
PARTITIONS, PARTITION = 4, 2
BATCH = 7
HASHES = {
    "": "",
    "table": r".*\..*",
    "key": r".*\..*:$pk$",
    "columns": r".*\..*:ID0^v1",
}
NAMED = ("id0", "v1")
KEPT = MessageForm(flat=False, raw=True, drops_markers=False)
FORMS = {
    "kept": KEPT,
    "no markers": replace(KEPT, drops_markers=True),
    "not raw": replace(KEPT, raw=False),
}
Found = list[tuple[str, int, bytes]]


def body_of(entries: list[bytes]) -> bytes:
    """Return a body of Messages."""
    return b"".join(b"\x12" + varint(len(each)) + each for each in entries)


def ours(how: str, body: bytes, form: MessageForm = KEPT, dynamic: str = "") -> Found:
    """Return the messages of a body."""
    settings = RoutingConfig(
        topic="top",
        partition=PARTITION,
        partitions=PARTITIONS,
        partition_hash=HASHES[how],
        dynamic_topic=dynamic,
    )
    found = form.encoder(Router(settings))(BATCH, body, 0)
    return [(topic, partition, value or b"") for topic, partition, value, *_ in found]


def plain(how: str, body: bytes, form: MessageForm, dynamic: str) -> Found:
    """Return the same, made by the rules."""
    whole = not how and not dynamic
    found: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for raw in entries_of(body):
        entry = decode_entry(raw)
        if entry.entry_type is not EntryType.ROWDATA and (
            form.drops_markers or not whole
        ):
            continue
        header = entry.header
        topic = "top"
        if dynamic and header.schema_name and header.table_name:
            name = f"{header.schema_name}.{header.table_name}"
            topic = name.lower().replace(".", "_")
        if not how:
            found[topic, PARTITION].append(raw)
            continue
        for partition, part in parts_of(how, entry):
            found[topic, partition].append(encode(part))
    topics = list(dict.fromkeys(topic for topic, _ in found))
    messages = []
    for topic, partition in sorted(found, key=lambda key: (topics.index(key[0]), key)):
        with_id = whole and form.raw
        content = Messages(
            batch_id=BATCH if with_id else 0, messages=tuple(found[topic, partition])
        )
        packet = Packet(
            version=None if with_id else 1,
            type=PacketType.MESSAGES,
            body=encode(content),
        )
        messages.append((topic, partition, encode(packet)))
    return messages


def parts_of(how: str, entry: Entry) -> list[tuple[int, Entry]]:
    """Return what an entry is taken apart to, and where that goes."""
    change = entry.row_change()
    if change.is_ddl or not change.row_datas:
        return [(0, entry)]
    if how == "table":
        hashed = java_hash(entry.header.table_name)
        return [(partition_of(hashed, PARTITIONS), entry)]
    found = []
    for each in change.row_datas:
        hashed = java_hash(entry.header.schema_name)
        deleted = change.event_type is EventType.DELETE
        for column in each.before_columns if deleted else each.after_columns:
            if column.is_key if how == "key" else column.name.lower() in NAMED:
                hashed ^= java_hash(column.value)
        part = replace(entry, store_value=encode(replace(change, row_datas=(each,))))
        found.append((partition_of(hashed, PARTITIONS), part))
    return found


@pytest.mark.parametrize("name", WORKLOADS)
def test_recorded(name: str, tmp_path: Path) -> None:
    """Of all recorded workloads: the bytes, topics and partitions of the rules."""
    body = decode_fields(load_workload(name), tmp_path)
    for how in HASHES:
        for dynamic in ("", r".*\..*"):
            expected = plain(how, body, KEPT, dynamic)
            assert ours(how, body, KEPT, dynamic) == expected, (how, dynamic)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", HASHES)
def test_random(rng: random.Random, how: str, form: str) -> None:
    """Of all letters, NULLs, partial images, kinds of entries, and forms."""
    for _ in range(longer(100)):
        body = random_body(rng, 6, has_markers=True)
        dynamic = rng.choice(("", r".*\..*"))
        expected = plain(how, body, FORMS[form], dynamic)
        assert ours(how, body, FORMS[form], dynamic) == expected


def test_damaged(rng: random.Random) -> None:
    """Whatever the bytes are, there are messages, or a ProtocolError."""
    refused = 0
    entries = [encode(random_entry(rng)) for _ in range(40)]
    for _ in range(longer(2_000)):
        body = damaged_body(rng, entries)
        try:
            found = ours(rng.choice(("table", "key", "columns")), body)
        except ProtocolError:
            refused += 1
        else:
            for _, _, value in found:
                assert decode(Messages, decode(Packet, value).body).messages
    assert refused


def test_a_whole_batch() -> None:
    """It is one message: the entries as they are, with the batch's id."""
    entries = transaction(1, 2)
    ((topic, partition, value),) = ours("", body_of(entries))
    assert (topic, partition) == ("top", PARTITION)
    packet = decode(Packet, value)
    assert (packet.version, packet.type) == (None, PacketType.MESSAGES)
    content = decode(Messages, packet.body)
    assert content.batch_id == BATCH
    assert list(content.messages) == entries


def test_rows_of_one_entry_are_taken_apart() -> None:
    """Each is an entry with the same header, in the order of the rows."""
    rows = [decode_entry(row(number)).row_change().row_datas[0] for number in range(9)]
    change = RowChange(
        table_id=5, event_type=EventType.INSERT, is_ddl=False, row_datas=tuple(rows)
    )
    entry = replace(decode_entry(row(1)), store_value=encode(change))
    found = ours("key", body_of([encode(entry)]))
    seen = []
    for _, partition, value in found:
        assert decode(Packet, value).version == 1
        content = decode(Messages, decode(Packet, value).body)
        assert content.batch_id == 0
        for part in map(decode_entry, content.messages):
            assert part.header == entry.header
            (one,) = part.row_change().row_datas
            assert part.row_change() == replace(change, row_datas=(one,))
            seen.append((rows.index(one), partition))
    assert sorted(number for number, _ in seen) == list(range(9))
    assert len({partition for _, partition in seen}) > 1
    for partition in range(PARTITIONS):
        of_it = [number for number, where in seen if where == partition]
        assert of_it == sorted(of_it)


@pytest.mark.parametrize("how", HASHES)
def test_nothing_is_left(how: str) -> None:
    """A batch of begins and ends alone is no message, if these are left out."""
    body = body_of(transaction(1, 0))
    assert ours(how, body, FORMS["no markers"]) == []
    assert bool(ours(how, body)) == (how == "")
    assert ours(how, b"") == []


def test_statements_go_to_the_first_partition() -> None:
    """Whatever the hash is."""
    entry = statement(2, "ALTER TABLE t ADD a INT")
    for how in ("table", "key", "columns"):
        ((_, partition, value),) = ours(how, body_of([entry]))
        assert partition == 0
        assert decode(Messages, decode(Packet, value).body).messages == (entry,)


def test_too_many_columns() -> None:
    """Their number is limited, as in the servers."""
    change = decode_entry(row(1)).row_change()
    (only,) = change.row_datas
    wide = replace(only, after_columns=only.after_columns * 4097)
    content = encode(replace(change, row_datas=(wide,)))
    entry = encode(replace(decode_entry(row(1)), store_value=content))
    with pytest.raises(ProtocolError, match="more than 4096 columns"):
        ours("columns", body_of([entry]))


def test_routes_are_asked_for_once() -> None:
    """However many entries a table has; tables of one topic share a message."""
    asked: list[tuple[str, str]] = []

    def route_of(schema: str, table: str) -> Route:
        asked.append((schema, table))
        return Route("all", partition=3)

    body = body_of([row(1), row(2, "items"), row(3)])
    messages = PacketMessages(route_of)
    for _ in range(2):
        ((topic, partition, value),) = messages.convert(1, body, 2)
        assert (topic, partition) == ("all", 3)
        assert len(decode(Messages, decode(Packet, value).body).messages) == 3
    assert asked == [("shop", "orders"), ("shop", "items")]
