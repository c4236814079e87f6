"""Which form of rows a server is asked for, and what it refuses."""

from __future__ import annotations

import pytest
from fix_server import DESTINATION

from canal_server.client.range_client import RangePosition
from canal_server.errors import ClientError
from canal_server.spark.options.servers import Channel
from canal_server.spark.options.source_options import read_options
from canal_server.spark.reading.range_tasks import Range, pieces

AT = RangePosition(0, "bin.000001", 400)
THEN = RangePosition(0, "bin.000001", 900)


class OldRanges:
    """A `ports.RangeSource` of a server that knows entries only."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def read(self, name, expression, start, end, take, *, relays, cut=None):
        """Give one piece."""
        self.asked.append(relays)
        if relays:
            raise ClientError("unsupported wire form 2; request entries (1)")
        if name:
            raise ClientError("the source is down")
        take((b"\x12\x00",), 2)


def test_a_server_that_knows_entries_only(serve, instance) -> None:
    """It is asked for them then, and not again for what it refuses."""
    old = OldRanges()
    instance.ranges = old
    server = serve()
    options = read_options(
        {"servers": f"127.0.0.1:{server.port}", "destination": DESTINATION}
    )
    channel = Channel(options, DESTINATION)
    part = Range(DESTINATION, AT, THEN)
    for _ in range(2):
        assert [bytes(each) for each in pieces(channel, options, part)] == [b"\x12\x00"]
    assert old.asked == [True, False, False]
    channel.close()


def test_another_refusal_is_reported(serve, instance) -> None:
    """What is wrong with more than the form is the error, as if asked for entries."""
    instance.ranges = OldRanges()
    server = serve()
    options = read_options(
        {
            "servers": f"127.0.0.1:{server.port}",
            "destination": DESTINATION,
            "subscription": "lake",
        }
    )
    channel = Channel(options, DESTINATION)
    with pytest.raises(ClientError, match="the source is down"):
        list(pieces(channel, options, Range(DESTINATION, AT, THEN)))
    channel.close()
