"""The sources of a destination, and the server that each is read from."""

from __future__ import annotations

from canal_server.config.schema import (
    HostConfig,
    HostPort,
    InstanceConfig,
    SourceConfig,
)
from canal_server.cursor_moves.source_cursors import access_for
from canal_server.model.cursors import ClientCursor, DestinationCursors
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition


def test_which_source_is_looked_at():
    """It is the one that was read last, which may be the standby."""
    config = InstanceConfig(
        destination="one",
        source=SourceConfig(
            master=HostConfig(address=HostPort("192.0.2.1", 3306)),
            standby=HostConfig(address=HostPort("192.0.2.2", 3307)),
        ),
    )
    identity = ClientIdentity("one", 1001)
    for host, port, found in (
        ("192.0.2.1", 3306, "192.0.2.1:3306"),
        ("192.0.2.2", 3307, "192.0.2.2:3307"),
        ("192.0.2.3", 3306, "192.0.2.1:3306"),
    ):
        position = LogPosition(LogIdentity(host, port), EntryPosition("f.000001", 4))
        cursors = DestinationCursors((ClientCursor(identity, position),))
        assert str(access_for(config, cursors).address) == found
    standby = DestinationCursors(cursors.clients, reads=LogIdentity("192.0.2.2", 3307))
    assert str(access_for(config, standby).address) == "192.0.2.2:3307"
    assert str(access_for(config, DestinationCursors(())).address) == "192.0.2.1:3306"
