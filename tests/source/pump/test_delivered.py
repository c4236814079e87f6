"""What was delivered of a binlog is left out, in each kind of session."""

from __future__ import annotations

from fix_blocks import BEGIN, END, ROWS, Entries, numbers_in

from canal_server.mysql.binlogs import BinaryLog
from canal_server.source.pump.delivered import Delivered
from canal_server.source.read.available_positions import SourceFiles
from canal_server.source.read.start_position import StartPosition

BY_FILE = StartPosition("bin.000001", 4, None)
BY_GTID = StartPosition("", 0, None, by_gtid=True)


def delivered_to(number: int, offset: int, ordinal: int = 0) -> Delivered:
    """Return an object that knows that the transaction that ends here was delivered."""
    entries = Entries(file=f"bin.{number:06}", file_number=number)
    entries.add(END, offset=offset, ordinal=ordinal)
    delivered = Delivered()
    delivered.note(entries.take(), "one")
    return delivered


def rest(
    entries: Entries,
    delivered: Delivered,
    position: StartPosition = BY_FILE,
    server: str = "one",
) -> list[int]:
    """Return the numbers of the entries that a session delivers."""
    delivered.begin(position, server, truncated=False)
    return numbers_in(delivered.rest_of(entries.take()))


def test_skips_up_to_the_last_record() -> None:
    """Records at or before the last one that was delivered are left out."""
    entries = Entries()
    for _ in range(2):
        entries.transaction(2)
    assert rest(entries, delivered_to(1, 300)) == [4, 5, 6, 7]


def test_skips_whole_files() -> None:
    """Records of earlier files are left out, those of later ones are not."""
    entries = Entries()
    entries.transaction(1)
    entries.rotate("bin.000002", 2)
    entries.transaction(1)
    entries.rotate("bin.000003", 3)
    entries.transaction(1)
    assert rest(entries, delivered_to(2, 10_000)) == [6, 7, 8]


def test_goes_on_skipping() -> None:
    """Where nothing is new yet, skipping continues with the next chunk."""
    entries = Entries()
    entries.transaction(1)
    delivered = delivered_to(1, 350)
    assert rest(entries, delivered) == []
    entries.transaction(1)
    assert numbers_in(delivered.rest_of(entries.take())) == [4, 5]


def test_skips_within_one_event() -> None:
    """Records of one compressed transaction differ by their ordinal."""
    entries = Entries()
    for ordinal, kind in enumerate((BEGIN, ROWS, ROWS, END)):
        entries.add(kind, offset=500, ordinal=ordinal)
    assert rest(entries, delivered_to(1, 500, 1)) == [2, 3]


def test_positions_of_another_server_mean_nothing() -> None:
    """All that another server sends is delivered, whatever its offsets."""
    entries = Entries()
    entries.transaction(1)
    assert rest(entries, delivered_to(1, 10_000), server="two") == [0, 1, 2]


def test_a_set_leaves_out_what_was_delivered() -> None:
    """By GTID everything is new after the end of a transaction."""
    entries = Entries()
    entries.transaction(1)
    assert rest(entries, delivered_to(1, 10_000), BY_GTID) == [0, 1, 2]


def test_a_set_sends_an_open_transaction_again() -> None:
    """By GTID a transaction of which a part was delivered comes from its beginning."""
    sent = Entries()
    sent.transaction(1)
    sent.add(BEGIN)
    sent.add(ROWS)
    delivered = Delivered()
    delivered.note(sent.take(), "one")
    again = Entries()
    again.transaction(1)
    again.transaction(2)
    assert rest(again, delivered, BY_GTID) == [5, 6]


def test_the_position_is_that_of_the_last_record() -> None:
    """It moves on amid a transaction, too; before anything it is nowhere."""
    delivered, entries = Delivered(), Entries()
    assert delivered.position() == ("", None)
    entries.transaction(1)
    entries.add(BEGIN)
    delivered.note(entries.take(), "one")
    assert delivered.position() == ("bin.000001", (1, 300))
    entries.add(ROWS)
    delivered.note(entries.take(), "one")
    assert delivered.position() == ("bin.000001", (1, 400))


def test_a_truncated_transaction_comes_whole() -> None:
    """What was delivered of a transaction that is given up is delivered again."""
    sent = Entries()
    sent.transaction(1)
    sent.add(BEGIN)
    sent.add(ROWS)
    delivered = Delivered()
    delivered.note(sent.take(), "one")
    again = Entries()
    again.transaction(1)
    again.transaction(2)
    assert delivered.begin(BY_FILE, "one", truncated=True)
    assert numbers_in(delivered.rest_of(again.take())) == [3, 4, 5, 6]


def test_a_binlog_that_was_reset() -> None:
    """Where the last position is no longer in the binlog, nothing is left out."""
    delivered = delivered_to(1, 10_000)
    delivered.check(SourceFiles((BinaryLog("bin.000001", 500),)))
    entries = Entries()
    entries.transaction(1)
    assert rest(entries, delivered) == [0, 1, 2]
