"""An operator's targets, and their positions on a real source."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from fix_pipeline import POLL_S
from fix_source_access import access_of
from purge import purge

from canal_server.config.schema import InstanceConfig, SourceConfig
from canal_server.core.gtid.mysql_sets import GtidSet
from canal_server.errors import PositionError
from canal_server.source.begin.seek_target import (
    Kind,
    TargetFinder,
    TargetText,
    parse_target,
)
from canal_server.source.begin.source_lag import SourceView

UUID = "4fc5fb63-e620-11f1-9489-02fc00000001"
T0_MS = 1763719200000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oldest", TargetText(Kind.OLDEST, "oldest")),
        ("LATEST", TargetText(Kind.LATEST, "LATEST")),
        (str(T0_MS), TargetText(Kind.TIME, str(T0_MS), T0_MS)),
        ("2025-11-21T10:00:00Z", TargetText(Kind.TIME, "2025-11-21T10:00:00Z", T0_MS)),
        (
            "2025-11-21 11:00:00+01:00",
            TargetText(Kind.TIME, "2025-11-21 11:00:00+01:00", T0_MS),
        ),
        (f"{UUID}:1-5", TargetText(Kind.GTIDS, f"{UUID}:1-5")),
        (
            f"{UUID}:tag:1-5,{UUID}:7",
            TargetText(Kind.GTIDS, f"{UUID}:tag:1-5,{UUID}:7"),
        ),
        ("0-1-5", TargetText(Kind.GTIDS, "0-1-5")),
        ("0-1-5,3-1-8", TargetText(Kind.GTIDS, "0-1-5,3-1-8")),
        ("a.b-bin.000003:4711", TargetText(Kind.POSITION, "a.b-bin.000003:4711")),
        (" binlog.1000000:4 ", TargetText(Kind.POSITION, "binlog.1000000:4")),
    ],
)
def test_what_may_be_written(text, expected):
    """The kind of a target follows from its form."""
    assert parse_target(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a position; write FILE:POSITION"),
        ("soon", "is not a position"),
        ("binlog.000003", "is not a position"),
        ("1763719200", "milliseconds since 1970, and this one is too small"),
        ("2025-11-21T10:00:00", "a time zone is required"),
        ("2025-13-21T10:00:00Z", "expected a time as"),
    ],
)
def test_what_may_not(text, why):
    """The error for an invalid target lists the accepted forms."""
    with pytest.raises(ValueError, match=why):
        parse_target(text)


def viewed(server, *, gtid_on=False):
    """Return an unopened view of a server."""
    config = InstanceConfig(destination="target", source=SourceConfig(gtid_on=gtid_on))
    return SourceView(config, access_of(server))


@contextlib.contextmanager
def finding(server, *, gtid_on=False):
    """Yield `find(text)` on a server: file, offset, requested position or None."""
    with viewed(server, gtid_on=gtid_on) as view:

        def find(text):
            found = TargetFinder(view).find(parse_target(text))
            position = found.position
            assert position.included
            assert position.server_id == view.info.server_id
            assert position.timestamp
            assert bool(position.gtid) is gtid_on
            return position, found.inside and found.inside.position

        yield find


@pytest.fixture
def positioned(source_server, database):
    """Yield a server and the positions between some transactions in a separate file."""
    server = source_server
    server.execute(f"CREATE TABLE {database}.t (a INT)", "FLUSH BINARY LOGS")
    positions = [server.binlog_position()]
    for number in range(3):
        server.execute(
            "BEGIN",
            f"INSERT INTO {database}.t VALUES ({number})",
            f"INSERT INTO {database}.t VALUES ({number})",
            "COMMIT",
        )
        positions.append(server.binlog_position())
    server.execute(f"ALTER TABLE {database}.t ADD b INT")
    positions.append(server.binlog_position())
    return server, positions


def test_positions(positioned):
    """A position between transactions is unchanged, one inside moves back."""
    server, positions = positioned
    with finding(server) as find:
        for file, offset in positions[1:]:
            position, inside = find(f"{file}:{offset}")
            assert (position.journal_name, position.position) == (file, offset)
            assert inside is None
        for (file, offset), (_, after) in pairwise(positions[1:]):
            for within in (offset + 1, (offset + after) // 2, after - 1):
                position, inside = find(f"{file}:{within}")
                assert (position.journal_name, position.position) == (file, offset)
                assert inside == within
        file = positions[0][0]
        position, _ = find(f"{file}:5")
        assert (position.journal_name, position.position) == (file, 4)


def test_positions_that_do_not_exist(positioned):
    """Files that never existed or do not exist yet, and offsets after the end, fail."""
    server, positions = positioned
    file, end = positions[-1]
    with finding(server) as find:
        for text, why in (
            (f"{file}:{end + 1}", f"does not exist: {file} ends at {end}"),
            ("nobody.000001:4", "no binlog file has the name nobody.000001"),
            (
                f"{file[:-6]}999999:4",
                "does not exist yet: the newest binlog file",
            ),
        ):
            with pytest.raises(PositionError, match=why):
                find(text)


def test_ends_of_the_binlog(positioned):
    """`oldest` is the first event of the first file, `latest` the end."""
    server, positions = positioned
    with finding(server) as find:
        first = server.execute("SHOW BINARY LOGS")[0][0]
        position, _ = find("oldest")
        assert (position.journal_name, position.position) == (first, 4)
        position, _ = find("latest")
        assert (position.journal_name, position.position) == positions[-1]


def clock_s(server):
    """Return the seconds of the server's clock."""
    return int(server.execute("SELECT UNIX_TIMESTAMP()")[0][0])


def test_times(positioned):
    """A time means the end of the last transaction before it."""
    server, _ = positioned
    started_s = now_s = clock_s(server)
    while now_s == started_s:  # a new server has nothing older
        time.sleep(POLL_S)
        now_s = clock_s(server)
    with finding(server) as find:
        position, _ = find(str(now_s * 1000))
        assert position.timestamp == now_s * 1000
        assert position.position is not None
        with pytest.raises(PositionError, match="is in the future by the clock of"):
            find(str((now_s + 3600) * 1000))


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_time_before_the_oldest_file(own_server, flavour):
    """It means the beginning of a whole binlog; what was purged is refused."""
    server, early = own_server(flavour), "2001-01-01T00:00:00Z"
    first = server.execute("SHOW BINARY LOGS")[0][0]
    with viewed(server) as view:
        found = TargetFinder(view).find(parse_target(early))
    assert found.is_before
    assert (found.position.journal_name, found.position.position) == (first, 4)
    server.execute("FLUSH BINARY LOGS")
    file, _ = server.binlog_position()
    purge(server, file)
    refused = pytest.raises(PositionError, match="is before the oldest binlog file")
    with finding(server) as find, refused:
        find(early)


def test_sets(positioned):
    """A GTID set means the first transaction that is not in it."""
    server, positions = positioned
    with viewed(server, gtid_on=True) as view:
        end = view.end.gtids
    if server.flavour == "mysql":
        uuid = server.execute("SELECT @@server_uuid")[0][0]
        number = int(end.rpartition("-")[2])
        before = str(GtidSet.parse(end).subtract(GtidSet.parse(f"{uuid}:{number}")))
        unknown = f"{end},{uuid}:{number + 5}"
    else:
        domain, origin, number = (int(part) for part in end.split("-"))
        before = f"{domain}-{origin}-{number - 1}"
        unknown = f"{domain}-{origin}-{number + 5}"
    for gtid_on in (True, False):
        with finding(server, gtid_on=gtid_on) as find:
            position, _ = find(before)
            # The last transaction is the ALTER.
            assert (position.journal_name, position.position) == positions[-2]
            position, _ = find(end)
            assert (position.journal_name, position.position) == positions[-1]
            with pytest.raises(PositionError, match="was not fully executed by"):
                find(unknown)


def test_sets_of_a_server_without(positioned):
    """Where transactions have no GTIDs a set means nothing."""
    server, _ = positioned
    with viewed(server) as view:
        view.info = replace(view.info, gtid_mode="OFF")
        with pytest.raises(PositionError, match="has no GTIDs"):
            TargetFinder(view).find(parse_target(f"{UUID}:1"))
