"""canal-admin's requests to a server that reads a real MySQL or MariaDB."""

from __future__ import annotations

from contextlib import closing

import pytest
from admin_connector import Connector
from fix_pipeline import DESTINATION

from canal_server.admin.admin_messages import (
    AdminPacketType,
    InstanceAdmin,
    ServerAdmin,
)
from canal_server.daemon.control import ask


@pytest.fixture
def pipeline(make_pipeline, source_server, database, monkeypatch):
    """Give a running pipeline with a port for canal-admin."""
    monkeypatch.setenv("CANAL_ADMIN_PORT", "0")
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    pipeline = make_pipeline(source_server, database, {})
    pipeline.start()
    pipeline.wait_for_status(lambda status: status["running"])
    return pipeline


def test_stop_and_restart(pipeline):
    """A destination that was stopped serves nobody, and loses nothing."""
    port = int(str(ask(pipeline.conf, "status")["admin_port"]))
    with closing(Connector(port)) as connector:
        # Without a password, everybody on this host may log in.
        assert connector.log_in("anybody", "").code == 0

        def say(action):
            request = InstanceAdmin(DESTINATION, action)
            return connector.ask(AdminPacketType.INSTANCE, request).message

        listed = connector.ask(AdminPacketType.SERVER, ServerAdmin("list"))
        assert (listed.message, say("check")) == (DESTINATION, "1")
        assert say("stop") == "1"
        pipeline.wait_for_status(lambda status: status["life"] == "stopped")
        assert say("check") == "0"
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES (1)")
        assert say("restart") == "1"
        pipeline.wait_for_status(lambda status: status["running"])
        assert say("check") == "1"
    with pipeline.client() as client:
        assert next(pipeline.messages(client)).entries
