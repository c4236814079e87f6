"""The output of `mirror status`, from the files in the lake."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

from canal_server.mirror.follow.micro_batches import BatchReport
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.report.report import Report
from canal_server.mirror.rows.chunks import Chunk
from canal_server.mirror.run.overview import as_text, overview
from canal_server.mirror.run.pauses import paused
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_lease import Lease
from canal_server.mirror.state.manifests import ChunkManifest, CopyPlan
from canal_server.mirror.state.run_history import (
    STATUS,
    Batch,
    Status,
    read_status,
    write_status,
)
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.mirror.state.verify_results import VerifyResult, VerifyResults

TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables: [{match: .*}]
"""


SAID = "the stream has been failing since "


def test_a_mirror_that_ended_and_a_table_that_waits(tmp_path) -> None:
    """The reason of its end is shown until it runs again, with a table's pause."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    folder = open_folder(settings.lake, settings.folder)
    report = Report(settings, folder)
    report.end("nothing was reported before")
    assert overview(settings).status is None

    now = time.time()
    last = Batch(round(now * 1000), rows=5, journal="b.000001", position=4)
    status = Status("shop", "here", 1, 0, round(now * 1000), last=last)
    write_status(folder, status)
    report.end("changes would be missing")
    table = TableState(
        TableName("shop", "t"), "shop/t", Phase.FOLLOWING, leaves=4,
        left_at_ms=round(now * 1000), copies=5,
    )  # fmt: skip
    States(folder).write(paused(table, "its key is another one", now))

    found = overview(settings)
    assert found.status is not None
    assert (found.status.ended_at_ms or 0) >= round(now * 1000)
    ended = replace(status, message="changes would be missing")
    assert replace(found.status, ended_at_ms=None) == ended
    text = list(as_text(found))
    assert text[2] == "ended: changes would be missing"
    assert re.search(r"waiting, \d+ (s|min) left", text[5])
    assert text[6] == (
        "shop.t: its key is another one (the copy had to be repeated 5 times in a row, "
        "so it waits for 2 min)"
    )
    at = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S+"
    assert re.fullmatch(
        f"shop.t: the lake has its rows as of {at}; it is copied again at {at}", text[7]
    )
    (shown,) = found.to_json()["tables"]
    assert shown["old_since_ms"] == round(now * 1000)
    assert shown["due_at_ms"] == round((now + 120) * 1000)

    report.store()
    assert "ended: " not in "\n".join(as_text(overview(settings)))


def test_a_stream_that_fails_again_and_again(tmp_path, monkeypatch) -> None:
    """Since when, and why it did the last time, until a batch goes through."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    monkeypatch.setattr("canal_server.mirror.report.report.EVERY_S", 0.0)
    report = Report(settings, open_folder(settings.lake, settings.folder))
    shown = SAID + r"\d{4}-\d\d-\d\dT\S+ \(\d+ s\): the disk is full"

    def lines() -> list[str]:
        report.store()
        return [line for line in as_text(overview(settings)) if line.startswith(SAID)]

    assert lines() == []
    started_ms = time.time() * 1000
    report.failed("no server answers")
    report.store()
    first = overview(settings).to_json()["status"]
    assert first["failing"] == "no server answers"
    assert started_ms - 1 <= first["failing_since_ms"] <= time.time() * 1000
    report.failed("the disk is full")
    (line,) = lines()
    assert re.fullmatch(shown, line)
    status = overview(settings).status
    assert status is not None
    assert status.failing_since_ms == first["failing_since_ms"]
    report.note(BatchReport(1, None))
    assert lines() == []

    report.failed("the disk is full")
    report.failed("")
    assert lines() == []
    report.failed("the disk is full")
    report.store()
    report.end("changes would be missing")
    text = list(as_text(overview(settings)))
    assert "ended: changes would be missing" in text
    assert not any(line.startswith(SAID) for line in text)


def test_a_stream_that_rests(tmp_path) -> None:
    """It has caught up when a poll brought nothing; a missing position is not shown."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    folder = open_folder(settings.lake, settings.folder)
    report = Report(settings, folder)
    newest_ms = round(time.time() * 1000) - 114_000
    report.note(BatchReport(1, None, rows=3, newest_ms=newest_ms))
    assert not report.is_caught_up
    report.failed("no server")
    report.idle()
    report.store()
    with Lease(folder):
        shown = list(as_text(overview(settings)))[1]
    assert shown == "stream: caught up, 0 rows/s, last batch 3 rows in 0.00 s, 0 s ago"
    status = read_status(folder)
    assert status is not None
    assert (status.caught_up, status.failing) == (True, "")
    # Unknown for a mirror that no longer runs.
    assert list(as_text(overview(settings)))[1].startswith("stream: delay 114.")
    report.note(BatchReport(2, None, rows=1, newest_ms=newest_ms))
    assert not report.is_caught_up


def test_a_mirror_that_stores_nothing(tmp_path) -> None:
    """A process that runs and cannot write is not shown as if all were well."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    folder = open_folder(settings.lake, settings.folder)
    now_ms = round(time.time() * 1000)
    last = Batch(now_ms, rows=5, journal="b.000001", position=4)
    status = Status("shop", "here", 1, 0, now_ms, last=last, caught_up=True)
    said = "it has stored nothing for 5 min: if the lake is full or cannot be written"
    with Lease(folder):
        write_status(folder, status)
        text = "\n".join(as_text(overview(settings)))
        assert "stream: caught up" in text
        assert said not in text
        write_status(folder, replace(status, updated_at_ms=now_ms - 300_000))
        text = "\n".join(as_text(overview(settings)))
        assert said in text
        assert "caught up" not in text
    assert said not in "\n".join(as_text(overview(settings)))  # it does not run


def test_a_mirror_that_was_killed(tmp_path, caplog) -> None:
    """It has not stopped, and `status` does not claim so."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    folder = open_folder(settings.lake, settings.folder)
    report = Report(settings, folder)
    report.store(at_once=True)
    first = next(iter(as_text(overview(settings))))
    assert "not running; it was killed, or crashed: its last status is " in first
    report.end()
    assert "not running; stopped " in next(iter(as_text(overview(settings))))
    file = Path(settings.lake.path, settings.folder, STATUS)
    file.unlink()
    file.mkdir()
    for _ in range(3):
        report.store(at_once=True)
    assert len(caplog.messages) == 1, "not every two seconds"


def test_spark_that_gives_no_executor(tmp_path) -> None:
    """What keeps a mirror waiting is in its status while it runs."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    folder = open_folder(settings.lake, settings.folder)
    Report(settings, folder).store("no executor")
    with Lease(folder):
        assert list(as_text(overview(settings)))[2] == "no executor"
    assert "no executor" not in list(as_text(overview(settings)))


def test_when_a_copy_will_be_done(tmp_path) -> None:
    """From the chunks that are done, while the lake has the rows from before."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    folder = open_folder(settings.lake, settings.folder)
    now_ms = round(time.time() * 1000)
    state = TableState(
        TableName("shop", "t"), "shop/t", Phase.COPYING, "c1", copies=2,
        old_since_ms=now_ms - 60_000,
    )  # fmt: skip
    States(folder).write(state)
    copies = folder.below("copies").below("c1")
    chunks = tuple(Chunk(number) for number in range(4))
    CopyPlan(1, (), chunks).write(copies)
    (table,) = overview(settings).tables
    assert (table.old_since_ms, table.new_at_ms) == (now_ms - 60_000, 0)

    ChunkManifest(0, 10, ()).write(copies)
    found = overview(settings)
    (table,) = found.tables
    assert table.new_at_ms >= now_ms
    assert "; the copy will be done in about " in list(as_text(found))[-1]
    States(folder).write(replace(state, phase=Phase.FOLLOWING))
    (table,) = overview(settings).tables
    assert (table.old_since_ms, table.new_at_ms) == (0, 0)


def test_comparisons(tmp_path) -> None:
    """How many tables were equal, what differed, and the age of the oldest result."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    folder = open_folder(settings.lake, settings.folder)
    for name in "abcd":
        state = TableState(TableName("shop", name), f"shop/{name}", Phase.FOLLOWING)
        States(folder).write(state)
    assert not [line for line in as_text(overview(settings)) if "verify" in line]
    now_ms = round(time.time() * 1000)
    results = VerifyResults(folder)
    for name, outcome, hours, differing, problem in (
        ("a", "equal", 1, 0, ""),
        ("b", "different", 2, 1_300, ""),
        ("c", "not compared", 3, 0, "it is locked"),
    ):
        at_ms = now_ms - hours * 3_600_000
        table = TableName("shop", name)
        results.write(VerifyResult(table, outcome, at_ms, differing, problem))
    found = overview(settings)
    text = [line for line in as_text(found) if "following" not in line]
    numbers, differs, failed = text[-3:]
    assert numbers.startswith("verify: 1 equal, 1 different, 1 not compared, of 4 ")
    assert re.fullmatch(r"shop\.b: 1,300 or more rows differed \S+ \S+ ago", differs)
    assert re.fullmatch(r"shop\.c: could not be compared .+ ago: it is locked", failed)
    shown = {each["table"]: each["verified"] for each in found.to_json()["tables"]}
    assert shown["shop.d"] is None
    assert shown["shop.b"] == {
        "outcome": "different",
        "at_ms": now_ms - 7_200_000,
        "differing": 1_300,
        "problem": "",
    }
