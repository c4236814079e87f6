"""Counting the transactions between two positions of a real binlog."""

from __future__ import annotations

from itertools import pairwise

import pytest
from fix_source_access import access_of

from canal_server.config.schema import (
    Action,
    EventConfig,
    InstanceConfig,
    NamedEvent,
    SourceConfig,
)
from canal_server.errors import BinlogPurged
from canal_server.model.positions import EntryPosition
from canal_server.runtime.lifecycle import Stop
from canal_server.source.begin.survey import Survey, Surveyor


@pytest.fixture
def surveyor(source_server):
    """Yield a surveyor of the MySQL, then of the MariaDB."""
    config = InstanceConfig(destination="survey")
    return Surveyor(config, access_of(source_server), Stop())


@pytest.fixture
def positions(source_server, database):
    """Yield the positions between transactions, in two files."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT)", "FLUSH BINARY LOGS")
    found = []
    for number in range(6):
        file, offset = source_server.binlog_position()
        found.append(EntryPosition(file, offset, included=True))
        source_server.execute(
            f"CREATE TABLE {database}.t{number} (a INT)"
            if number == 1
            else f"INSERT INTO {database}.t VALUES ({number})"
        )
        if number == 2:
            source_server.execute("FLUSH BINARY LOGS")
    file, offset = source_server.binlog_position()
    return [*found, EntryPosition(file, offset, included=True)]


def test_numbers(surveyor, positions):
    """Transactions and statements between two positions count, across files as well."""
    for first, start in enumerate(positions):
        for last, stop in enumerate(positions):
            survey = surveyor.between(start, stop)
            assert survey.transactions == max(0, last - first), (first, last)
            if last > first:
                assert survey.last is not None
                assert survey.first_ms
                # Events that are not transactions may follow the last one.
                before = positions[last - 1]
                assert before.order() < survey.last.order() <= stop.order()


def test_named_events_are_not_reported(source_server, positions, caplog):
    """Events named as unreadable matter only to the reader that delivers them."""
    begin, *_, end = positions
    named = NamedEvent(begin.journal_name, begin.position, Action.SKIP)
    source = SourceConfig(events=EventConfig(unreadable=(named,)))
    config = InstanceConfig(destination="survey", source=source)
    surveyor = Surveyor(config, access_of(source_server), Stop())
    assert surveyor.between(begin, end).transactions == len(positions) - 1
    assert not caplog.messages


def test_what_was_acked(source_server, surveyor, positions):
    """The event at an acked position does not count from it, but counts up to it."""
    rows = source_server.execute(f"SHOW BINLOG EVENTS IN '{positions[0].journal_name}'")
    ends = [
        row[1] for row in rows if row[2] == "Xid" and row[1] > positions[0].position
    ]
    acked = EntryPosition(positions[0].journal_name, ends[0])
    assert surveyor.between(acked, positions[-1]).transactions == 5
    assert surveyor.between(positions[0], acked).transactions == 1
    assert surveyor.between(acked, acked) == Survey()


def test_boundaries(surveyor, positions):
    """The boundary before a position inside a transaction is where that begins."""
    for before, after in pairwise(positions[3:]):
        amid = (before.position + after.position) // 2
        found = surveyor.boundary_before(EntryPosition(before.journal_name, amid))
        # Events that are not transactions may lie in between.
        assert found.order() <= before.order()
        assert surveyor.between(found, before).transactions == 0


def test_a_missing_file(surveyor, positions):
    """What the source does not have cannot be counted."""
    deleted = EntryPosition("binlog.000000", 4, included=True)
    with pytest.raises(BinlogPurged):
        surveyor.between(deleted, positions[-1])
