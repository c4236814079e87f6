"""Logging in with each kind of account and TLS, and PyMySQL's errors translated."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from fake_mysql import account, fake_server, greeting, packet, session
from fix_source_access import PATIENCE_S, access_of

from canal_server.errors import ConnectionLost, SourceError, SourceRefused
from canal_server.mysql import login_session
from canal_server.mysql.replication import COM_REGISTER_SLAVE
from canal_server.mysql.source_settings import Access, Address, Credentials
from canal_server.tls.source_tls import TlsMode, TlsOptions

if TYPE_CHECKING:
    from canal_server.mysql.login_session import Session

CIPHER = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"


def test_rows_and_parameters(source_server):
    """Parameters are returned as they were sent, and a bare percent sign is one."""
    text = "quote ' backslash \\ percent % ümlaut 日本 😀"
    with closing(session(access_of(source_server))) as opened:
        assert opened.query("SELECT %s, %s", (text, 7)) == [(text, 7)]
        assert opened.query("SELECT '100%'") == [("100%",)]
        assert opened.query("DO 1") == []
        assert opened.is_mariadb == (source_server.flavour == "mariadb")
        assert opened.query("SELECT CONNECTION_ID()") == [(opened.connection_id,)]


def test_tls_is_not_used_by_default(mysql_server):
    """A server that offers TLS gets a plain connection by default."""
    with closing(session(access_of(mysql_server))) as opened:
        assert opened.query(CIPHER)[0][1] == ""


@pytest.mark.parametrize("mode", [TlsMode.PREFERRED, TlsMode.REQUIRED])
def test_tls_without_verifying(mysql_server, mode):
    """PREFERRED and REQUIRED encrypt, whoever signed the server's certificate."""
    access = access_of(mysql_server, tls=TlsOptions(mode))
    with closing(session(access)) as opened:
        assert opened.query(CIPHER)[0][1] != ""


def test_tls_without_support(mariadb_server):
    """Without TLS on the server PREFERRED continues in plain, REQUIRED refuses."""
    if mariadb_server.execute("SELECT @@have_ssl")[0][0] == "YES":
        pytest.skip("this MariaDB has TLS")
    preferred = access_of(mariadb_server, tls=TlsOptions(TlsMode.PREFERRED))
    with closing(session(preferred)) as opened:
        assert opened.query(CIPHER)[0][1] == ""
    required = access_of(mariadb_server, tls=TlsOptions(TlsMode.REQUIRED))
    with pytest.raises(SourceRefused, match="enable TLS"):
        session(required)


def test_the_certificate_is_verified(own_server):
    """VERIFY_CA accepts only the server's own CA; VERIFY_IDENTITY checks the name."""
    server = own_server("mysql", [])
    ca = str(server.data_folder / "ca.pem")
    with closing(
        session(access_of(server, tls=TlsOptions(TlsMode.VERIFY_CA, ca=ca)))
    ) as opened:
        assert opened.query(CIPHER)[0][1] != ""
    for options in (
        TlsOptions(TlsMode.VERIFY_CA),  # of the operating system
        TlsOptions(TlsMode.VERIFY_IDENTITY, ca=ca),  # issued for no host name
    ):
        with pytest.raises(SourceRefused, match="certificate was rejected"):
            session(access_of(server, tls=options))


def test_a_client_certificate(own_server):
    """An account that requires a certificate accepts a login with one, and no other."""
    server = own_server("mysql", [])
    folder = server.data_folder
    tls = TlsOptions(
        TlsMode.REQUIRED,
        cert=str(folder / "client-cert.pem"),
        key=str(folder / "client-key.pem"),
    )
    with account(server, "certified", "IDENTIFIED BY 'x' REQUIRE X509"):

        def log_in(options: TlsOptions) -> Session:
            return session(
                access_of(server, user="certified", password="x", tls=options)
            )

        with closing(log_in(tls)) as opened:
            assert opened.query("SELECT 1") == [(1,)]
        with pytest.raises(SourceRefused, match="Access denied"):
            log_in(TlsOptions(TlsMode.REQUIRED))


def test_caching_sha2_password_without_tls(mysql_server):
    """A password that the server has not cached yet is sent encrypted, any text."""
    name, password = "sha2", "пароль-ü-" + "x" * 40
    with account(
        mysql_server,
        name,
        f"IDENTIFIED WITH caching_sha2_password BY '{password}'",
    ):
        access = access_of(mysql_server, user=name, password=password)
        for _ in range(2):  # not cached, cached
            with closing(session(access)) as opened:
                assert opened.query("SELECT 1") == [(1,)]


def test_a_wrong_password_is_refused(source_server):
    """The error names server and account, not the password."""
    with pytest.raises(SourceRefused) as refused:
        session(access_of(source_server, password="wr0ng"))

    assert f"{source_server.host}:{source_server.port}" in str(refused.value)
    assert f"'{source_server.user}'" in str(refused.value)
    assert "wr0ng" not in str(refused.value)
    assert refused.value.errno == 1045


def test_a_grant_names_the_account_of_this_host(source_server, database):
    """The statement of the message can be run: it names the existing account."""
    name = f"u{database[-8:]}"
    source_server.execute(
        f"CREATE USER '{name}'@'127.0.0.0/255.0.0.0' IDENTIFIED BY 'x'"
    )
    try:
        access = access_of(source_server, user=name, password="x")
        with closing(session(access)) as opened:
            with pytest.raises(SourceRefused) as refused:
                opened.query("SHOW BINARY LOGS")
            source_server.execute(str(refused.value).partition(" run: ")[2])
        with closing(session(access)) as opened:
            assert opened.query("SHOW BINARY LOGS")
    finally:
        source_server.execute(f"DROP USER '{name}'@'127.0.0.0/255.0.0.0'")


def test_missing_rights_are_refused(source_server, database):
    """The error for an account that must not replicate names the missing grant."""
    name = f"u{database[-8:]}"
    with account(source_server, name, "IDENTIFIED BY 'x'"):
        access = access_of(source_server, user=name, password="x")
        with closing(session(access)) as opened:
            with pytest.raises(SourceRefused, match=f"GRANT .* TO '{name}'@'%'"):
                opened.command(COM_REGISTER_SLAVE, bytes(18))
            with pytest.raises(SourceRefused, match="REPLICATION CLIENT"):
                opened.query("SHOW BINARY LOGS")


def test_other_errors_keep_the_servers_number(source_server):
    """A wrong statement raises neither of the special errors."""
    with closing(session(access_of(source_server))) as opened:
        with pytest.raises(SourceError) as failed:
            opened.query("SELEKT 1")
        assert type(failed.value) is SourceError
        assert failed.value.errno == 1064
        assert opened.query("SELECT 1") == [(1,)]


def test_a_killed_connection_is_lost(source_server):
    """After KILL the next statement reports the lost connection."""
    with closing(session(access_of(source_server))) as opened:
        source_server.execute(f"KILL {opened.connection_id}")
        with pytest.raises(ConnectionLost):
            opened.query("SELECT 1")
        with pytest.raises(ConnectionLost, match="closed"):
            opened.query("SELECT 1")
        opened.close()


def test_a_slow_answer_is_lost(source_server):
    """A statement that exceeds the I/O timeout ends as lost."""
    access = access_of(source_server, io_timeout_s=2.0)  # the login has it, too
    with (
        closing(session(access)) as opened,
        pytest.raises(ConnectionLost, match="timed out"),
    ):
        opened.query("SELECT SLEEP(20)")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        packet(0, b"\x0a"),
        packet(0, b"\x0a9.9.9\0\x01"),
        packet(0, bytes(40)),
        packet(9, b"\x0a9.9.9\0" + bytes(60)),
        b"",
    ],
)
def test_another_protocol_is_an_error_of_the_source(answer):
    """Whatever a stranger sends as greeting ends in SourceError."""
    with fake_server(answer, b"") as port:
        access = Access(
            address=Address("127.0.0.1", port),
            credentials=Credentials("canal", "s3cret"),
            io_timeout_s=PATIENCE_S if answer else 0.5,
        )
        with pytest.raises(SourceError, match=f"127.0.0.1:{port}") as failed:
            session(access)
        if answer:
            assert "does not speak the MySQL protocol" in str(failed.value)
        assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_the_password_is_not_sent_in_clear_text(plugin):
    """A server without TLS that asks for the password itself does not get it."""
    switch = packet(2, b"\xfe" + plugin + b"\0\x02Password: ")
    with fake_server(greeting(), switch, b"") as port:
        access = Access(
            address=Address("127.0.0.1", port),
            credentials=Credentials("canal", "s3cret"),
        )
        with pytest.raises(SourceRefused, match="clear text"):
            session(access)


def test_answers_have_a_limit():
    """Packets chained without end are refused before they are in memory."""
    endless = b"\xff\xff\xff\0" + b"\x0a9.9.9\0"
    with fake_server(endless, b"") as port:
        access = Access(
            address=Address("127.0.0.1", port), credentials=Credentials("canal", "")
        )
        with pytest.raises(SourceError, match="a reply of more than 1048576 bytes"):
            session(access)


def test_large_answers_of_a_server(source_server, monkeypatch):
    """A reply is counted with all its rows, and each one separately."""
    monkeypatch.setattr("canal_server.mysql.login_session.ANSWER_BYTES_MAX", 1 << 20)
    connected = session(access_of(source_server))
    try:
        for _ in range(3):
            ((text,),) = connected.query("SELECT REPEAT('x', 900000)")
            assert len(text) == 900_000
        with pytest.raises(SourceError, match="a reply of more than 1048576 bytes"):
            connected.query("SELECT REPEAT('x', 600000) UNION ALL SELECT "
                            "REPEAT('y', 600000)")  # fmt: skip
    finally:
        connected.close()


def test_rows_count_with_their_memory(source_server, monkeypatch):
    """Tiny rows need many times their bytes of memory."""
    numbers = (
        "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
        " SELECT 1 FROM n CROSS JOIN (SELECT 1 FROM n LIMIT {}) AS m"
    )
    with closing(session(access_of(source_server))) as connected:
        assert len(connected.query(numbers.format(11))) == 901 * 11
    monkeypatch.setattr(login_session, "ANSWER_BYTES_MAX", 1 << 18)
    with (
        closing(session(access_of(source_server))) as connected,
        pytest.raises(SourceError, match="a reply of more than 262144 bytes"),
    ):
        connected.query(numbers.format(11))


def test_columns_of_an_answer_have_a_limit():
    """No server has as many as a hostile one announces."""
    column = b"\x03def\0\0\0\x01a\0\x0c\x21\0\xff\0\0\0\xfd\0\0\0\0\0"
    columns = b"".join(packet(each & 255, column) for each in range(2, 4_099))
    answer = packet(1, b"\xfe" + (1 << 40).to_bytes(8, "little")) + columns
    ok = packet(2, b"\0\0\0\x02\0\0\0")
    set_names = packet(1, b"\0\0\0\x02\0\0\0")
    with fake_server(greeting(), ok, set_names, answer, b"") as port:
        access = Access(
            address=Address("127.0.0.1", port), credentials=Credentials("canal", "")
        )
        connected = session(access)
        with pytest.raises(SourceError, match="a reply of more than 4096 columns"):
            connected.query("SELECT 1")
        connected.close()


def test_a_server_that_does_not_greet():
    """A server that accepts connections and sends nothing counts as unreachable."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        access = Access(
            address=Address("127.0.0.1", listener.getsockname()[1]),
            credentials=Credentials("canal", "s3cret"),
            io_timeout_s=0.1,
        )
        with pytest.raises(ConnectionLost, match="timed out") as failed:
            session(access)
    assert failed.value.unreachable
    assert failed.value.heard_s == 0.0


def test_the_servers_own_refusal_before_the_greeting():
    """A blocked host is refused with the remedy."""
    refusal = packet(0, b"\xff\x69\x04Host 'h' is blocked")
    with fake_server(refusal, b"") as port:
        access = Access(
            address=Address("127.0.0.1", port), credentials=Credentials("canal", "")
        )
        with pytest.raises(SourceRefused, match="FLUSH HOSTS"):
            session(access)
