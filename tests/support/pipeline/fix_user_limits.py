"""A pipeline whose users have limits, and whose tables have what these hide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fix_pipeline import DESTINATION

from canal_server import cli
from canal_server.client import CanalClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fix_pipeline import Pipeline
    from fix_tls import Authority
    from servers import Server

SECRET = "T0p-Secret"
PASSWORD = "pass-of-limited"
# The text of a statement about a table that is shown is shown whole.
ORDERS = (
    "(id INT PRIMARY KEY, total DECIMAL(8,2), card VARCHAR(40), email VARCHAR(40),"
    " pin INT)"
)
# What a limited user never gets: values, and names of a column and of a table.
HIDDEN = (SECRET.encode(), b"77777", b"card", b"secrets", b"codename")


@pytest.fixture
def add_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path, str, *tuple[str, ...]], None]:
    """Give a function that adds a user to a conf folder, with `PASSWORD` if any."""
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")

    def add(conf: Path, name: str, *options: str) -> None:
        how = () if "--no-password" in options else ("--password-stdin",)
        with file.open() as given:
            monkeypatch.setattr("sys.stdin", given)
            arguments = ["user", "add", "--conf", str(conf), name, *options, *how]
            assert cli.main(arguments) == 0

    return add


@pytest.fixture
def limited_pipeline(  # noqa: PLR0917  # fixtures
    make_pipeline: Callable[..., Pipeline],
    source_server: Server,
    database: str,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    add_user: Callable[..., None],
) -> Pipeline:
    """Give a pipeline that is not started, with users and tables that have secrets.

    `all` has all rights, `limited` one table without a column and with masked ones, and
    `bot` a certificate.
    """
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    source_server.execute(
        f"CREATE TABLE {database}.orders {ORDERS}",
        f"CREATE TABLE {database}.secrets (id INT PRIMARY KEY, codename VARCHAR(40))",
    )
    config = authority.server()
    pipeline = make_pipeline(source_server, database, {})
    pipeline.main_settings |= {
        "canal.tls.certFile": config.cert_file,
        "canal.tls.keyFile": config.key_file,
        "canal.tls.clientCaFile": authority.ca_file,
        "canal.tls.clientCertificates": "optional",
        "canal.http.tls": "false",
        "canal.metrics.tls": "false",
        "canal.users.file": "users.yml",
        "canal.audit.file": "audit.jsonl",
    }
    pipeline.configure({})
    table = rf"{database}\.orders"
    columns = f"{database}.orders"
    every = ("--read", "*", "--ranges", "*", "--operate", "*")
    add_user(pipeline.conf, "all", *every)
    add_user(
        pipeline.conf, "limited", "--read", DESTINATION, "--ranges", DESTINATION,
        "--tables", table, "--remove-columns", f"{columns}:card",
        "--mask-columns", f"{columns}:email/pin", "--client", "5-6",
    )  # fmt: skip
    certificate = ("--certificate", "CN=bot", "--no-password")
    add_user(pipeline.conf, "bot", "--read", DESTINATION, *certificate)
    return pipeline


def write_secrets(pipeline: Pipeline) -> None:
    """Change rows of both tables, in one transaction and in others."""
    orders, secrets = f"{pipeline.schema}.orders", f"{pipeline.schema}.secrets"
    values = f"'{SECRET} card', '{SECRET} mail', 77777"
    pipeline.source.execute(
        "BEGIN",
        f"INSERT INTO {orders} VALUES (1, 5.5, {values})",
        f"INSERT INTO {secrets} VALUES (1, '{SECRET}')",
        f"UPDATE {orders} SET total = 6 WHERE id = 1",
        "COMMIT",
        f"INSERT INTO {secrets} VALUES (2, '{SECRET}')",
        f"ALTER TABLE {secrets} ADD COLUMN c VARCHAR(40) DEFAULT '{SECRET}'",
        f"ALTER TABLE {orders} ADD COLUMN note INT FIRST",
        f"INSERT INTO {orders} VALUES (8, 2, 9, {values})",
        f"DELETE FROM {orders} WHERE id = 1",
    )


def client_of(
    pipeline: Pipeline, authority: Authority, user: str, client_id: int, **more: Any
) -> CanalClient:
    """Return a client, which uses TLS by default."""
    options = {"tls": True, "tls_ca_file": authority.ca_file, **more}
    return CanalClient(
        "127.0.0.1",
        pipeline.server_port,
        DESTINATION,
        client_id,
        user,
        PASSWORD if user else "",
        reconnect_for_s=0,
        **options,
    )
