"""Where a stream is, as the lake keeps it: what follows on from it, and what not."""

from __future__ import annotations

import pytest

from canal_server.client.range_client import RangePosition
from canal_server.errors import LakeError
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run.requests import copy_all
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.feed import FILE, Feed, read_feed, write_feed

ONE, TWO = (f"{n}0000000-0000-0000-0000-000000000000" for n in (1, 2))
FED = Feed(
    "d", RangePosition(1, "b.000007", 500, gtids=f"{ONE}:1-9"), 3, "a-uuid", "q", 4,
    moved={TableName("shop", "t"): 7},
)  # fmt: skip


def test_kept_and_read_again(tmp_path) -> None:
    """It is read as written, for its own stream; an invalid file is an error."""
    folder = open_folder(LakeSettings(path=str(tmp_path)), "_mirror/m")
    assert read_feed(folder, 3) is None
    write_feed(folder, FED)
    found = read_feed(folder, 3)
    assert found == FED
    assert found.position.gtids == FED.position.gtids  # not compared
    assert read_feed(folder, 4) is None
    folder.write(FILE, b'{"form": 1}')
    with pytest.raises(LakeError, match="mirror copy --all"):
        read_feed(folder, 3)


def test_a_copy_of_all_tables_restarts(tmp_path) -> None:
    """The old stream's state is deleted, even if it is invalid."""
    text = (
        "{name: m, canal: {destination: d, servers: '127.0.0.1:1'}, source: {host: db, "
        "user: u}, lake: {path: lake}, tables: [{match: .*}]}"
    )
    settings = read(text, str(tmp_path / "m.yml"), {})
    folder = open_folder(settings.lake, settings.folder)
    folder.write(FILE, b"{")
    assert "the old subscription m" in copy_all(settings).warning
    assert read_feed(folder, 1) is None


@pytest.mark.parametrize(
    ("query", "batch", "start", "follows"),
    [
        # Spark numbers batches without a gap as long as it has its checkpoint.
        ("q", 5, RangePosition(1, "b.000009", 4), True),
        ("q", 4, RangePosition(1, "b.000009", 4), True),
        ("q", 6, RangePosition(1, "b.000009", 4), False),
        ("new", 0, RangePosition(1, "b.000009", 4), False),
        ("new", 0, RangePosition(1, "b.000007", 501), False),
        ("new", 0, RangePosition(1, "b.000007", 500), True),
        ("new", 0, RangePosition(0, "b.000009", 4), True),
        # In another server's binlog, GTID sets decide.
        ("new", 0, RangePosition(2, "c.000001", 4, gtids=f"{ONE}:1-9"), True),
        ("new", 0, RangePosition(2, "c.000001", 4, gtids=f"{ONE}:1-3"), True),
        ("new", 0, RangePosition(2, "c.000001", 4, gtids=f"{ONE}:1-10"), False),
        ("new", 0, RangePosition(2, "c.000001", 4, gtids=f"{TWO}:1"), False),
        ("new", 0, RangePosition(2, "c.000001", 4), False),
        ("new", 0, RangePosition(2, "c.000001", 4, gtids="0-1-7"), False),
    ],
)
def test_what_follows_on(query, batch, start, follows) -> None:
    """The next batch of the query, or what begins before the end of the last one."""
    assert FED.follows_on(query, batch, start) is follows


def test_sets_of_mariadb_count_as_well() -> None:
    """A set of domains has all of one that stands before it in each of them."""
    fed = Feed("d", RangePosition(0, "b.000001", 4, gtids="0-1-7,1-1-5"))
    for gtids, follows in (("0-2-7,1-1-5", True), ("0-1-7", True), ("0-1-8", False)):
        start = RangePosition(1, "b.000001", 4, gtids=gtids)
        assert fed.follows_on("q", 0, start) is follows, gtids


@pytest.mark.parametrize(
    ("end", "is_in_another"),
    [
        (RangePosition(1, "b.000007", 600, gtids=f"{ONE}:1-12"), False),
        (RangePosition(1, "b.000007", 500, gtids=f"{ONE}:1-9"), False),
        (RangePosition(1, "b.000007", 600, gtids=f"{ONE}:1-9,{TWO}:1"), False),
        (RangePosition(1, "b.000007", 600, gtids=f"{ONE}:1-3"), True),
        (RangePosition(1, "b.000008", 4, gtids=f"{TWO}:1-99"), True),
        # What comes again is before it; of another epoch, sets were looked at before.
        (RangePosition(1, "b.000007", 400, gtids=f"{ONE}:1-3"), False),
        (RangePosition(2, "b.000007", 600, gtids=f"{TWO}:1-3"), False),
        (RangePosition(1, "b.000007", 600), False),
        # Domains of MariaDB may go back, or be deleted.
        (RangePosition(1, "b.000007", 600, gtids="0-77-8"), False),
    ],
)
def test_a_binlog_instead_of_another(end, is_in_another) -> None:
    """GTIDs executed at a position are so at later ones of the same binlog."""
    assert FED.is_in_another(end) is is_in_another
