"""Ranged requests answered: by what serves them, in pieces, one query at a time."""

from __future__ import annotations

import pytest
from fix_server import FakeInstance, FakeInstances

from canal_server.errors import ClientError, MetaStoreError, SourceError
from canal_server.model.columns_known import ColumnMeta, TableMeta
from canal_server.model.ranges import (
    EpochPosition,
    RangeEnds,
    RangePart,
    Subscription,
)
from canal_server.protocol import range_messages
from canal_server.protocol.packets import Ack, Packet, PacketType
from canal_server.protocol.protobuf import decode
from canal_server.protocol.range_messages import RangePosition
from canal_server.server.process_zone import zone_name
from canal_server.server.range_service import RangedService

POSITION = EpochPosition(0, "bin.000001", 400)
INSIDE = EpochPosition(0, "bin.000001", 500, 400)
LATER = EpochPosition(0, "bin.000001", 900)
AT = RangePosition(0, "bin.000001", 400)
THEN = RangePosition(0, "bin.000001", 900)


class FakeRanges:
    """A `ports.RangeSource` that knows one subscription and two pieces."""

    def __init__(self) -> None:
        self.acked: list[EpochPosition] = []
        self.fails: Exception | None = None  # after the first piece
        self.relayed: list[bool] = []
        self.temporary: set[str] = set()

    def subscribe(self, name, expression, start, *, temporary=False):
        """Return the cursor."""
        assert start == "latest"
        if temporary:
            self.temporary.add(name)
        if expression == "refused":
            raise ClientError("no filter")
        return Subscription(name, expression, POSITION), True

    def end_temporary(self, name):
        """Forget it."""
        self.temporary.discard(name)

    def unsubscribe(self, name):
        """Know one name."""
        if name != "lake":
            raise ClientError("there is no subscription", code=404)

    def ack(self, name, position):
        """Record the call."""
        self.acked.append(position)

    def head(self, name, start, limits, wait_s, peer_fd=None):
        """Return the ends."""
        return RangeEnds(LATER, limits.rows, limits.bytes, LATER, 77)

    def plan(self, name, expression, start, end, parts):
        """Cut in two."""
        return [
            RangePart(start, INSIDE, 1, 2, LATER, 77),
            RangePart(INSIDE, end, 3, 4),
        ]

    def locate(self, name, text):
        """Know one position."""
        assert (name, text) == ("lake", "acked")
        return POSITION

    def read(self, name, expression, start, end, take, *, relays, cut):
        """Return two pieces."""
        del cut
        self.relayed.append(relays)
        take((b"\x12\x01a", memoryview(b"\x12\x01b")), 6)
        if self.fails:
            raise self.fails
        take((b"\x12\x01c",), 3)

    def columns(self, schema, table, at):
        """Know one table."""
        if table != "t":
            return None
        columns = (
            ColumnMeta("a", "int", None, is_key=True, nullable=False),
            ColumnMeta("b", "text", "utf8mb4"),
        )
        return TableMeta(schema, table, columns)

    def left_out(self, table):
        """Hide deletes."""
        return "deletes"


@pytest.fixture
def source():
    """Return a source of ranges."""
    return FakeRanges()


@pytest.fixture
def instances(source):
    """Return destinations: `example` has ranges, `merged` has none."""
    example, merged = FakeInstance("example"), FakeInstance("merged")
    example.ranges = source
    return FakeInstances({"example": example, "merged": merged}, broken={"idle"})


@pytest.fixture
def ask(instances):
    """Return `ask(request, asker)`, which returns the packets of the answer."""
    service = RangedService(instances)

    def answer(request, asker="one"):
        sent: list[bytes] = []
        service.answer(
            request, asker, None, lambda slices: sent.append(b"".join(slices))
        )
        for frame in sent:
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        return [decode(Packet, frame[4:]) for frame in sent]

    answer.service = service  # type: ignore[attr-defined]
    return answer


def refusal(packets):
    """Return the code and the text of a refusal."""
    assert packets[-1].type == PacketType.ACK
    ack = decode(Ack, packets[-1].body)
    return ack.error_code, ack.error_message


def test_a_set_comes_back_with_its_position(ask, source):
    """The GTIDs of a position are sent in both directions."""
    text = range_messages.RangePosition(0, "bin.000001", 400, gtids="0-1-7")
    ask(range_messages.RangeAck("example", "lake", text))
    assert source.acked[0].gtids == "0-1-7"
    (packet,) = ask(range_messages.RangePlan("example", "lake", text, THEN, 2))
    parts = decode(range_messages.RangeParts, packet.body).parts
    assert [part.start.gtids for part in parts] == ["0-1-7", ""]


def test_cursors_that_cannot_be_had_now(ask, source):
    """While nothing can be written, a retry, or another server, may help."""
    source.fails = MetaStoreError("cannot write /otter: no session")
    code, text = refusal(ask(range_messages.RangeRead("example", "lake", AT, THEN)))
    assert (code, "cannot write" in text) == (503, True)


def test_each_request_has_its_answer(ask, source):
    """An error of the source is the message of that request's refusal."""
    (packet,) = ask(range_messages.RangeSubscribe("example", "lake", "x"))
    assert packet.type == PacketType.RANGE_SUBSCRIBED
    subscribed = decode(range_messages.RangeSubscribed, packet.body)
    assert subscribed == range_messages.RangeSubscribed(AT, created=True, filter="x")

    head = range_messages.RangeHead("example", "lake", AT, 5, 6, 7, ack=True)
    (packet,) = ask(head)
    assert decode(range_messages.RangeEnds, packet.body) == range_messages.RangeEnds(
        THEN, 5, 6, THEN, 77
    )
    assert source.acked == [POSITION]

    (packet,) = ask(range_messages.RangePlan("example", "lake", AT, THEN, 2))
    inside = RangePosition(0, "bin.000001", 500, 400)
    assert decode(range_messages.RangeParts, packet.body).parts == (
        range_messages.RangePart(AT, inside, 1, 2, THEN, 77),
        range_messages.RangePart(inside, THEN, 3, 4),
    )

    (packet,) = ask(range_messages.RangeAck("example", "lake", THEN))
    assert (packet.type, packet.body) == (PacketType.ACK, b"")
    assert source.acked == [POSITION, LATER]

    (packet,) = ask(range_messages.RangeSchema("example", "s", "t"))
    table = decode(range_messages.RangeTable, packet.body)
    assert (table.found, table.zone) == (True, zone_name())
    assert table.left_out == "deletes"
    assert table.columns == (
        range_messages.RangeColumn("a", "int", key=True),
        range_messages.RangeColumn("b", "text", nullable=True, charset="utf8mb4"),
    )
    (packet,) = ask(range_messages.RangeSchema("example", "s", "gone"))
    assert not decode(range_messages.RangeTable, packet.body).found

    (packet,) = ask(range_messages.RangeLocate("example", "lake", "acked"))
    assert decode(range_messages.RangeFound, packet.body).position == AT

    (packet,) = ask(range_messages.RangeUnsubscribe("example", "lake"))
    assert (packet.type, packet.body) == (PacketType.ACK, b"")


def test_a_range_comes_in_pieces(ask, source):
    """Pieces are numbered from 1, and the last one is empty; errors come between."""
    request = range_messages.RangeRead("example", "lake", AT, THEN)
    packets = ask(request)
    assert {each.type for each in packets} == {PacketType.RANGE_DATA}
    assert [each.body for each in packets] == [
        b"\x08\x01\x12\x01a\x12\x01b",
        b"\x08\x02\x12\x01c",
        b"\x08\x00",
    ]
    ask(
        range_messages.RangeRead(
            "example", "lake", AT, THEN, range_messages.Wire.BINLOG
        )
    )
    assert source.relayed == [False, True]
    source.fails = SourceError("the source went away")
    packets = ask(request)
    assert len(packets) == 2
    assert refusal(packets) == (400, "the source went away")


def test_refusals_have_codes(ask):
    """A refused request says why, and whether another server may help."""
    unsubscribe = range_messages.RangeUnsubscribe
    assert refusal(ask(unsubscribe("nowhere", "lake")))[0] == 400
    assert refusal(ask(unsubscribe("example", "other")))[0] == 404
    code, text = refusal(ask(unsubscribe("merged", "lake")))
    assert (code, "several sources" in text) == (400, True)
    assert refusal(ask(unsubscribe("idle", "lake")))[0] == 503


def test_an_unknown_destination_is_named_on_one_line(ask):
    """The answer about its status has it, too."""
    unknown = "no\nsuch\x1b[31m\u202e"
    code, text = refusal(ask(range_messages.RangeStatus(unknown)))
    assert (code, text) == (400, r"can't find destination:no\nsuch\x1b[31m\u202e")


def test_one_query_at_a_time(ask):
    """A second query is refused until the connection of the first one has ended."""

    def head(query):
        return range_messages.RangeHead("example", "lake", AT, query=query)

    def kind(packets):
        return packets[0].type

    assert kind(ask(head("q1"), "one")) == PacketType.RANGE_ENDS
    code, text = refusal(ask(head("q2"), "two"))
    assert (code, "another query, 'q1'" in text) == (423, True)
    assert kind(ask(head(""), "three")) == PacketType.RANGE_ENDS
    # The same query on a new connection continues, and the old one's end does not
    # count.
    assert kind(ask(head("q1"), "four")) == PacketType.RANGE_ENDS
    ask.service.on_disconnect("one")
    assert refusal(ask(head("q2"), "two"))[0] == 423
    ask.service.on_disconnect("four")
    assert kind(ask(head("q2"), "two")) == PacketType.RANGE_ENDS


def test_what_sending_raises_is_not_caught(instances):
    """A client that accepts no data ends its connection, as everywhere."""
    service = RangedService(instances)

    def send(_slices):
        raise TimeoutError("the client accepted no data")

    with pytest.raises(TimeoutError):
        service.answer(
            range_messages.RangeRead("example", "lake", AT, THEN), 1, None, send
        )


# --- temporary subscriptions ----------------------------------------------------------


def temporary(name: str, expression: str = "") -> range_messages.RangeSubscribe:
    """Return a request for a subscription that ends with its connection."""
    return range_messages.RangeSubscribe("example", name, expression, temporary=True)


def test_it_ends_with_its_connection(instances, source):
    """A temporary subscription ends with the connection that made it, no other."""
    service = RangedService(instances)
    for name, asker in (("one", "a"), ("two", "b"), ("one", "a")):
        service.answer(temporary(name), asker, None, lambda _: None)
    assert source.temporary == {"one", "two"}
    service.on_disconnect("c")
    service.on_disconnect("a")
    assert source.temporary == {"two"}
    del instances.started["example"]
    service.on_disconnect("b")  # where it does not run, there is none


def test_one_of_another_connection(ask):
    """A name that another connection has is refused until that ends."""
    ask(temporary("one"), "a")
    code, text = refusal(ask(temporary("one"), "b"))
    assert code == range_messages.IN_USE
    assert "subscription one of example belongs to another connection" in text
    (packet,) = ask(temporary("two"), "b")
    assert packet.type == PacketType.RANGE_SUBSCRIBED


def test_one_that_is_refused(ask, source):
    """Nothing of it remains; an earlier subscription does."""
    assert refusal(ask(temporary("one", "refused"), "a"))[1] == "no filter"
    assert source.temporary == set()
    ask(temporary("one"), "b")
    ask(temporary("one", "refused"), "b")
    assert source.temporary == {"one"}
