"""Real servers and conf folders for `canal-server check`, and its answers."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from fix_servers import FLAVOURS
from servers import PrivateServer, Unavailable

from canal_server import cli

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


SECRET = "the-secret"  # of accounts that are made here
MYSQL, MARIADB = FLAVOURS
HOUR_MS = 3_600_000
SET_UP = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, n INT)",
    (
        "CREATE TABLE shop.items (id INT PRIMARY KEY, o INT,"
        " CONSTRAINT fk FOREIGN KEY (o) REFERENCES shop.orders (id) ON DELETE CASCADE)"
    ),
)
REPLICATE = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'"
SELECT = "GRANT SELECT ON *.* TO '{user}'@'%'"


def _servers(flavour: str, *options: str, statements=SET_UP) -> Iterator[PrivateServer]:
    try:
        with PrivateServer(flavour, options) as server:
            server.execute(*statements)
            yield server
    except Unavailable as error:
        pytest.skip(f"no {flavour} of our own: {error}")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in FLAVOURS],
)
def checked_server(request) -> Iterator[PrivateServer]:
    """Give a server that is set up well, a MySQL and then a MariaDB."""
    yield from _servers(request.param)


@pytest.fixture(scope="module")
def server_without_binlog(checked_server) -> Iterator[PrivateServer]:
    """Give another one, which writes no binlog and is set up badly in other ways."""
    yield from _servers(
        checked_server.flavour,
        "--skip-log-bin",
        "--binlog-format=STATEMENT",
        "--binlog-row-image=MINIMAL",
    )


@dataclass
class Found:
    """What a run of the command printed, and its exit status."""

    status: int
    checks: list[dict[str, str]]

    def of(self, check: str, subject: str = "example") -> list[tuple[str, str]]:
        """Return outcome and message of a check about a subject."""
        return [
            (each["outcome"], "; ".join(filter(None, (each["text"], each["remedy"]))))
            for each in self.checks
            if (each["check"], each["subject"]) == (check, subject)
        ]

    def failing(self) -> list[str]:
        """Return the names of all checks that fail."""
        return [each["check"] for each in self.checks if each["outcome"] == "fail"]


@pytest.fixture
def check(capsys) -> Callable[..., Found]:
    """Return a function that runs the command, and finds no secret in its output."""

    def run(conf: Path, *arguments: str) -> Found:
        status = cli.main(["check", "--conf", str(conf), "--json", *arguments])
        printed = capsys.readouterr()
        assert SECRET not in printed.out + printed.err
        answer = json.loads(printed.out)
        assert answer["ok"] == (status == 0)
        return Found(status, answer["checks"])

    return run


@pytest.fixture
def conf_for(make_conf) -> Callable[..., Path]:
    """Return a function that writes a conf folder for a server, and more lines."""

    def make(server, *lines: str, main: str = "", user="canal", password="canal"):
        return make_conf(
            f"canal.destinations = example\ncanal.port = 0\n{main}\n",
            example="\n".join(
                [
                    f"canal.instance.master.address = 127.0.0.1:{server.port}",
                    f"canal.instance.dbUsername = {user}",
                    f"canal.instance.dbPassword = {password}",
                    "canal.instance.filter.regex = shop\\\\.orders",
                    *lines,
                ]
            ),
        )

    return make


@contextmanager
def applied(server, statement: str, undo: str) -> Iterator[None]:
    """Have a server changed by a statement."""
    server.execute(statement)
    try:
        yield
    finally:
        server.execute(undo)


@contextmanager
def account(server, *grants: str, created: str = f"IDENTIFIED BY '{SECRET}'"):
    """Have an account on a server; gives its name."""
    server.execute(f"CREATE USER 'u'@'%' {created}")
    try:
        server.execute("DO 1", *(grant.format(user="u") for grant in grants))
        yield "u"
    finally:
        server.execute("DROP USER 'u'@'%'")
