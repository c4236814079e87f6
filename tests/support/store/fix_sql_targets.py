"""Databases for the handler SqlUpsert: of each kind, of PostgreSQL, of SQLite."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sql_targets import SqlTarget

TARGETS = ("sqlite", "generic", "postgres", "mysql")


def target_at(url: str) -> SqlTarget:
    """Return a database at an address."""
    from sql_targets import SqlTarget  # noqa: PLC0415  # SQLAlchemy is an extra

    return SqlTarget(url)


@pytest.fixture(params=TARGETS)
def sql_target(request, tmp_path, monkeypatch):
    """Give each kind of database; `generic` has no statement for upserts."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url
    elif request.param == "mysql":
        server = request.getfixturevalue("mysql_server")
        name = request.getfixturevalue("database")
        user, password = server.admin
        url = f"mysql+pymysql://{user}:{password}@{server.host}:{server.port}/{name}"
    else:
        url = f"sqlite:///{tmp_path}/target.db"
    if request.param == "generic":
        monkeypatch.setattr("canal_server.client.handlers.sql_table._ON_CONFLICT", {})
    with contextlib.closing(target_at(url)) as made:
        yield made


@pytest.fixture
def postgres_target(postgres):
    """Give a database of PostgreSQL."""
    with contextlib.closing(target_at(postgres.url)) as made:
        yield made


@pytest.fixture
def sqlite_target(tmp_path):
    """Give a database of SQLite with the table `orders`."""
    with contextlib.closing(target_at(f"sqlite:///{tmp_path}/target.db")) as made:
        made.execute("CREATE TABLE orders (id INT PRIMARY KEY, name TEXT)")
        yield made
