"""Clients that others wrote get, ack and roll back as they are used to."""

from __future__ import annotations

from fix_interop import KINDS, PYTHON, of_kinds
from interop_form import ends_with, ids_of, insert, make_table, wait_until_stored


@of_kinds(*KINDS)
def test_empty(daemon, start_client, client_kind):
    """Without entries a get ends, at once or when its time is over."""
    daemon.start()
    client = start_client(daemon)
    for timeout in ("", "1", "300"):
        received = client.do("get", 10, timeout)
        assert received == {"id": client_kind.empty_id, "entries": []}


@of_kinds(*KINDS)
def test_waiting(daemon, start_client, client_kind):
    """A get that waits is answered when something comes."""
    daemon.start()
    client = start_client(daemon)
    client.order("get", 1000, 50_000)
    table = make_table(daemon)
    entries = client.answer()["entries"]
    assert entries[0]["content"]["sql"].startswith(f"CREATE TABLE {table}")


@of_kinds(*KINDS)
def test_rollback(daemon, start_client, client_kind):
    """What is rolled back comes again under new ids, and can be acked then."""
    daemon.start()
    client = start_client(daemon)
    table = make_table(daemon)
    insert(daemon, table, *range(50))
    wait_until_stored(daemon, 50)

    first = client.do("get", 1, 1000)
    second = client.do("get", 1, 1000)
    assert second["id"] == first["id"] + 1
    assert first["entries"]
    assert second["entries"]
    client.do("rollback", first["id"])
    again = client.do("get", 1000, 1000)
    assert again["id"] > second["id"]
    assert ids_of(again["entries"]) == list(range(50))
    client.do("rollback", "")
    once_more = client.do("get", 1000, 1000)
    assert once_more["entries"] == again["entries"]
    client.do("ack", once_more["id"])
    assert client.do("get", 1000, "")["entries"] == []


@of_kinds(*KINDS)
def test_take(daemon, start_client, client_kind):
    """What a client takes with an ack does not come again."""
    daemon.start()
    client = start_client(daemon)
    table = make_table(daemon)
    insert(daemon, table, 1, 2, 3)
    wait_until_stored(daemon, 3)
    assert ids_of(client.do("take", 1000)["entries"]) == [1, 2, 3]
    assert client.do("take", 1000)["entries"] == []
    client.do("rollback", "")
    assert client.do("take", 1000)["entries"] == []


@of_kinds(*KINDS)
def test_killed_client(daemon, start_client, client_kind):
    """What a client had not acked when it died goes to its next run."""
    daemon.start()
    client = start_client(daemon)
    table = make_table(daemon)
    insert(daemon, table, 1)
    client.get_all(ends_with(1))
    insert(daemon, table, 2, 3)
    wait_until_stored(daemon, 3)
    assert ids_of(client.do("get", 1000, 1000)["entries"]) == [2, 3]
    client.close()
    insert(daemon, table, 4)
    again = start_client(daemon)
    assert ids_of(again.get_all(ends_with(4))) == [2, 3, 4]


@of_kinds(*KINDS)
def test_wrong_ack(daemon, start_client, client_kind):
    """A client learns at its next get that an ack was refused; nothing is lost."""
    daemon.start()
    client = start_client(daemon)
    table = make_table(daemon)
    insert(daemon, table, 1, 2)
    wait_until_stored(daemon, 2)
    client.do("get", 1, 1000)
    client.do("ack", 77)
    error = client.try_("get", 1, 1000)
    # This client stumbles over the refusal before it reads it.
    assert ("Ack" if client_kind is PYTHON else "batchId:77 is not exist") in error
    client.close()
    again = start_client(daemon)
    assert ids_of(again.get_all(ends_with(2))) == [1, 2]
