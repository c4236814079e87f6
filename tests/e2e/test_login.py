"""How the server logs in at its source: passwords, and TLS or not."""

from __future__ import annotations

import uuid
from contextlib import contextmanager

import pytest

GRANTS = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"


@contextmanager
def account(server, plugin, password, requirement=""):
    """Give the name of a fresh account with our grants."""
    name = f"u{uuid.uuid4().hex[:10]}"
    server.execute(
        f"CREATE USER '{name}'@'%' IDENTIFIED WITH {plugin} BY '{password}'"
        f" {requirement}",
        f"GRANT {GRANTS} ON *.* TO '{name}'@'%'",
    )
    try:
        yield name
    finally:
        server.execute(f"DROP USER '{name}'@'%'")


@pytest.fixture
def logs_in(make_pipeline, mysql_server, database, rng):
    """Give `logs_in(settings)`: start, and see that changes arrive."""

    def check(settings):
        pipeline = make_pipeline(mysql_server, database, settings)
        pipeline.start()
        writer = pipeline.writer(rng, table=f"t{uuid.uuid4().hex[:6]}")
        checker = pipeline.checker(writer)
        with pipeline.client() as client:
            writer.write(5)
            pipeline.receive(client, checker)
        return pipeline

    return check


@pytest.mark.parametrize("mode", ["DISABLED", "PREFERRED", "REQUIRED"])
@pytest.mark.parametrize("password", ["x", "pa ss#中\\'x" * 3], ids=["short", "odd"])
def test_caching_sha2(logs_in, mysql_server, mode, password):
    """A caching_sha2_password account logs in for the first time, TLS or not."""
    with account(mysql_server, "caching_sha2_password", _quoted(password)) as name:
        logs_in(
            {
                "canal.instance.dbUsername": name,
                "canal.instance.dbPassword": password,
                "canal.instance.master.sslMode": mode,
            }
        )


def _quoted(password):
    return password.replace("\\", "\\\\").replace("'", "''")


def test_tls_is_used(logs_in, mysql_server):
    """An account that requires TLS is let in with sslMode=REQUIRED."""
    with account(mysql_server, "caching_sha2_password", "pw", "REQUIRE SSL") as name:
        logs_in(
            {
                "canal.instance.dbUsername": name,
                "canal.instance.dbPassword": "pw",
                "canal.instance.master.sslMode": "REQUIRED",
            }
        )


def test_tls_is_missing(make_pipeline, mysql_server, database):
    """Without TLS such an account is refused with an error that a person sees."""
    with account(mysql_server, "caching_sha2_password", "pw", "REQUIRE SSL") as name:
        pipeline = make_pipeline(
            mysql_server,
            database,
            {
                "canal.instance.dbUsername": name,
                "canal.instance.dbPassword": "pw",
            },
        )
        pipeline.start()
        pipeline.process.wait_for_log("ERROR .* SourceRefused: .*1045")
        pipeline.stop()


def test_certificate_of_nobody(make_pipeline, mysql_server, database):
    """With VERIFY_CA a certificate that nobody trusted vouches for is refused."""
    pipeline = make_pipeline(
        mysql_server, database, {"canal.instance.master.sslMode": "VERIFY_CA"}
    )
    pipeline.start()
    pipeline.process.wait_for_log("ERROR .*(certificate|CERTIFICATE)")
    pipeline.wait_for_status(lambda status: status["state"] == "waiting")
    pipeline.stop()


def test_certificate_of_the_source(own_server, make_pipeline, rng):
    """With VERIFY_CA and the source's own authority changes arrive."""
    source = own_server("mysql")
    source.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
    pipeline = make_pipeline(
        source,
        "shop",
        {
            "canal.instance.master.sslMode": "VERIFY_CA",
            "canal.instance.master.sslCa": source.data_folder / "ca.pem",
        },
    )
    pipeline.start()
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    with pipeline.client() as client:
        writer.write(5)
        pipeline.receive(client, checker)
