"""Clients that others wrote log in, subscribe and come back."""

from __future__ import annotations

import socket

from fix_followed import followed_by
from fix_interop import GO, JAVA, KINDS, OLD_JAVA, PYTHON, of_kinds
from fix_pipeline import DESTINATION
from interop_form import ends_with, ids_of, insert, make_table, wait_until_stored

from canal_server.protocol.auth import stored_form


def append_properties(daemon, **values):
    """Add settings of the server; they count from its start."""
    with (daemon.conf / "canal.properties").open("a") as file:
        file.writelines(f"canal.{key} = {value}\n" for key, value in values.items())


def free_port():
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@of_kinds(*KINDS)
def test_filter(daemon, start_client, client_kind):
    """A client receives the tables of its filter alone."""
    daemon.start()
    client = start_client(daemon, rf"{daemon.schema}\.b.*,nowhere\..*")
    tables = [make_table(daemon, name) for name in ("a", "ab", "b", "ba")]
    for number, table in enumerate(tables):
        insert(daemon, table, number)
    entries = client.get_all(ends_with(3))
    assert {entry["table"] for entry in entries} == {"b", "ba", ""}
    assert ids_of(entries) == [2, 3]


@of_kinds(JAVA, OLD_JAVA)
def test_unsubscribe(daemon, start_client, client_kind):
    """After unsubscribing a get is refused; a new subscription brings what is new."""
    daemon.start()
    client = start_client(daemon)
    table = make_table(daemon)
    insert(daemon, table, 1)
    client.get_all(ends_with(1))
    client.do("unsubscribe")
    assert "should subscribe first" in client.try_("get", 10, "")
    client.do("subscribe", "")
    insert(daemon, table, 2)
    assert ids_of(client.get_all(ends_with(2))) == [2]


@of_kinds(JAVA, OLD_JAVA)
def test_reconnect(daemon, start_client, client_kind):
    """A client that reconnects subscribes by itself; what it had not acked comes."""
    daemon.start()
    client = start_client(daemon, rf"{daemon.schema}\.item")
    table, other = make_table(daemon), make_table(daemon, "other")
    insert(daemon, other, 7)
    insert(daemon, table, 1, 2)
    wait_until_stored(daemon, 2)  # what no client requests is not stored
    assert ids_of(client.do("get", 1000, 1000)["entries"]) == [1, 2]
    client.do("reconnect")
    assert ids_of(client.get_all(ends_with(2))) == [1, 2]


@of_kinds(JAVA, OLD_JAVA)
def test_cluster(daemon, start_client, client_kind):
    """A cluster client with a list of addresses outlives a crash of the server."""
    append_properties(daemon, port=(port := free_port()))
    daemon.start()
    client = start_client()
    addresses = f"127.0.0.1:{free_port()},127.0.0.1:{port}"
    client.do("cluster", addresses, "", "", DESTINATION)
    client.do("subscribe", "")
    table = make_table(daemon)
    insert(daemon, table, 1)
    client.get_all(ends_with(1))
    acked = 1
    for first in (2, 12, 22):
        insert(daemon, table, *range(first, first + 5))
        client.do("get", 1, 5000)  # open when the server dies
        daemon.kill()
        insert(daemon, table, *range(first + 5, first + 10))
        client.order("get", 1000, 5000)
        daemon.start()
        received = client.answer()
        client.do("ack", received["id"])
        last = first + 9
        ids = ids_of(received["entries"])
        if ids[-1:] != [last]:
            ids += ids_of(client.get_all(ends_with(last)))
        # The last acks may have died with the server: then more comes again.
        assert ids == list(range(ids[0], last + 1))
        assert ids[0] <= acked + 1
        acked = last


@of_kinds(JAVA, OLD_JAVA)
def test_cluster_by_zookeeper(cluster, start_client, rng):
    """A cluster client that asks ZooKeeper is led to the server that takes over."""
    with followed_by(cluster, start_client(), rng) as seen:
        seen.wait_for_more()
        cluster.one.kill()
        seen.wait_for_more()
        cluster.one.start()
        cluster.two.stop()
        seen.wait_for_more()
    assert seen.returns


def with_password(daemon):
    """Start the server so that it requires a password."""
    append_properties(daemon, user="reader", passwd=stored_form("geheim"))
    daemon.start()
    return daemon.server_port


@of_kinds(GO, JAVA)
def test_password(daemon, start_client, client_kind):
    """The right password lets a client in, a wrong one and a wrong name do not."""
    port = with_password(daemon)
    client = start_client()
    for user, password in (("reader", "falsch"), ("writer", "geheim"), ("", "")):
        error = client.try_("connect", "127.0.0.1", port, user, password, DESTINATION)
        assert "auth failed" in error
    client.connect(port, "reader", "geheim")
    client.do("subscribe", "")
    assert client.do("get", 1, "")["entries"] == []


@of_kinds(PYTHON, OLD_JAVA)
def test_password_in_clear(daemon, start_client, client_kind):
    """A client that sends its password in clear is refused with the reason."""
    port = with_password(daemon)
    client = start_client()
    error = client.try_("connect", "127.0.0.1", port, "reader", "geheim", DESTINATION)
    assert "auth failed" in error


@of_kinds(PYTHON)
def test_password_proved(daemon, start_client, client_kind):
    """With a few lines around it, canal-python logs in with a password."""
    port = with_password(daemon)
    client = start_client()
    who = ("connect_proving", "127.0.0.1", port, "reader")
    assert "auth failed" in client.try_(*who, "falsch", DESTINATION)
    client.do(*who, "geheim", DESTINATION)
    client.do("subscribe", "")
    assert client.do("get", 1, "")["entries"] == []


@of_kinds(*KINDS)
def test_open_door(daemon, start_client, client_kind):
    """Without a password configured, whoever names one is let in as well."""
    daemon.start()
    client = start_client()
    client.connect(daemon.server_port, "canal", "canal")
    client.do("subscribe", "")
    assert client.do("get", 1, "")["entries"] == []
