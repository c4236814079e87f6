"""Which server `canal-server schema verify` compares a table history with."""

from __future__ import annotations

import argparse

import pytest

from canal_server.cli.schema.schema_options import load_config
from canal_server.cli.schema.schema_verify import _access_to_read
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.position.file_meta import MetaFiles
from canal_server.position.stored_meta import StoredClient

MAIN = (
    "canal.destinations = shop\n"
    "canal.instance.global.spring.xml = classpath:spring/file-instance.xml\n"
    "canal.instance.detecting.enable = true\n"
    "canal.instance.detecting.heartbeatHaEnable = true\n"
    "canal.instance.dbUsername = canal\n"
    "canal.instance.dbPassword =\n"
)
MASTER = "canal.instance.master.address = 192.0.2.1:3306\n"
STANDBY = "canal.instance.standby.address = 192.0.2.2:3306\n"


@pytest.mark.parametrize(
    ("lines", "read", "expected"),
    [
        (MASTER, "192.0.2.1", "192.0.2.1:3306"),
        (MASTER + STANDBY, "192.0.2.1", "192.0.2.1:3306"),
        (MASTER + STANDBY, "192.0.2.2", "192.0.2.2:3306"),
        (MASTER + STANDBY, None, "192.0.2.1:3306"),
    ],
)
def test_the_server_that_is_read(make_conf, lines, read, expected):
    """It is the one whose positions the clients have, which may be the standby."""
    conf = make_conf(MAIN, shop=lines)
    if read is not None:
        position = LogPosition(
            LogIdentity(read, 3306), EntryPosition("binlog.000001", 4, 1)
        )
        client = StoredClient(ClientIdentity("shop", 1001), position)
        MetaFiles(conf).write("shop", [client])
    args = argparse.Namespace(conf=conf, destination="shop")
    assert str(_access_to_read(*load_config(args)).address) == expected
