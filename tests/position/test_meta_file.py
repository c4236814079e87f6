"""The JSON of `meta.dat`, written as canal does and read liberally."""

from __future__ import annotations

import pytest

from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position import meta_file
from canal_server.position.meta_file import decode, encode

CURSOR = LogPosition(
    LogIdentity("localhost", 3306),
    EntryPosition("mysql-bin.000001", 1234, 1700000000000, 1, "", included=False),
)
CURSOR_TEXT = (
    '{"identity":{"slaveId":-1,"sourceAddress":{"address":"localhost","port":3306}},'
    '"postion":{"gtid":"","included":false,"journalName":"mysql-bin.000001",'
    '"position":1234,"serverId":1,"timestamp":1700000000000}}'
)


def client(content):
    """Return the text of a file with one client."""
    return f'{{"clientDatas":[{content}],"destination":"example"}}'.encode()


def identity_of(clients):
    """Return all fields of the clients, because filters are not compared."""
    return [(each.destination, each.client_id, each.filter) for each, _ in clients]


def test_text():
    """The content is that of canal, byte for byte."""
    identity = ClientIdentity("example", 1001, r".*\..*,表")
    assert encode("example", [(identity, CURSOR)]).decode() == (
        '{"clientDatas":[{"clientIdentity":{"clientId":1001,"destination":"example",'
        '"filter":".*\\\\..*,表"},"cursor":'
        + CURSOR_TEXT
        + '}],"destination":"example"}'
    )


def test_without_cursor_or_clients():
    """A client without a cursor has no such key; no clients are an empty list."""
    assert encode("e", [(ClientIdentity("e", 1), None)]) == (
        b'{"clientDatas":[{"clientIdentity":{"clientId":1,"destination":"e",'
        b'"filter":""}}],"destination":"e"}'
    )
    assert encode("e", []) == b'{"clientDatas":[],"destination":"e"}'


def test_round_trip():
    """What was written is read again, filters included."""
    clients = [
        (ClientIdentity("example", 1001, r"a\..*"), CURSOR),
        (ClientIdentity("example", 1002), None),
    ]
    found = decode("example", encode("example", clients))
    assert found == clients
    assert identity_of(found) == identity_of(clients)


def test_reads_what_others_wrote():
    """Missing filters, type hints, blanks, other keys, a copied folder are accepted."""
    hinted = CURSOR_TEXT.replace(
        "{", '{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition",', 1
    )
    content = client(
        '\n{"clientIdentity" : {"clientId":1001,"destination":"other", "new": 1},'
        f'"cursor":{hinted}, "more": [1]}}'
    )
    found = decode("example", content)
    assert found == [(ClientIdentity("example", 1001), CURSOR)]
    assert identity_of(found) == [("example", 1001, "")]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(200),
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b"[" * 100_000,
        client(f'{{"clientIdentity":{{"clientId":1}},"cursor":{CURSOR_TEXT}}}')[:-9],
        client("null"),
        client('{"clientIdentity":{"clientId":"x"}}'),
        client('{"clientIdentity":{"clientId":1},"cursor":{}}'),
        client('{"clientIdentity":{"clientId":1},"cursor":[]}'),
        client(
            '{"clientIdentity":{"clientId":1},"cursor":'
            + CURSOR_TEXT.replace("1234", '"1234"')
            + "}"
        ),
        client(
            '{"clientIdentity":{"clientId":1},"cursor":'
            + CURSOR_TEXT.replace('"mysql-bin.000001"', "7")
            + "}"
        ),
    ],
)
def test_damage(content):
    """Any other content is a ValueError."""
    with pytest.raises(ValueError, match=r".+"):
        decode("example", content)


def test_clients_that_did_not_move_are_not_encoded_again(monkeypatch):
    """The content equals one without a cache, whichever clients moved or left."""
    encoded: list[object] = []
    made = meta_file.compact

    def watched(content):
        encoded.append(content)
        return made(content)

    monkeypatch.setattr(meta_file, "compact", watched)
    encoder = meta_file.Encoder("example")
    clients: meta_file.Clients = [
        (ClientIdentity("example", i, "a"), CURSOR) for i in range(50)
    ]
    steps: list[meta_file.Clients] = [
        clients,
        clients,
        [*clients[:10], (ClientIdentity("example", 10, "b"), CURSOR), *clients[11:]],
        [(clients[0][0], None), *clients[5:]],
    ]
    for step, expected in zip(steps, (50, 0, 1, 2), strict=True):
        encoded.clear()
        content = encoder.encode(step)
        assert len(encoded) == expected
        assert content == encode("example", step)
