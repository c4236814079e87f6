"""Commands at a running server whose output nobody reads, or finds no room."""

from __future__ import annotations

import pytest
from command_outputs import unwritable


@pytest.fixture
def commands(make_pipeline, mysql_server, database):
    """Give commands that print something, with the options to reach a server."""
    pipeline = make_pipeline(mysql_server, database)
    # Not the oldest: a command that must look for it for long says that it does so.
    start = "{}:{}".format(*pipeline.source.binlog_position())
    pipeline.start()
    pipeline.source.execute(
        f"CREATE TABLE {database}.red (a INT)", f"INSERT INTO {database}.red VALUES (1)"
    )
    with pipeline.client() as client:
        pipeline.rows(client, 2)
    conf = ("--conf", str(pipeline.conf))
    port = ("--port", str(pipeline.server_port), "--destination", "example")
    return [
        ("status", *conf),
        ("status", *conf, "--json"),
        ("status", *conf, "--check"),
        ("position", "show", *conf),
        ("position", "seek", *conf, "--to", "latest", "--dry-run"),
        ("subscriptions", "list", *conf),
        ("schema", "show", *conf),
        ("schema", "history", *conf, "--table", f"{database}.red"),
        ("schema", "verify", *conf),
        ("schema", "export", *conf, "-"),
        ("tail", *port, "--from", start),
        ("decode", *conf, "--from", start, "--follow"),
    ]


def test_commands(commands):
    """Each fails, on a full disk with one line, without a reader quietly.

    Also those that would never end.
    """
    unwritable(commands)
