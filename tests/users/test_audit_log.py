"""The audit file: its lines, its limits, and what happens to it."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import threading

import pytest

from canal_server.errors import ConfigError
from canal_server.model.identity import ClientIdentity
from canal_server.users import audit_log
from canal_server.users.audit_log import FILES_MAX, NAME_MAX, AuditLog, ReadSums


def lines(path) -> list[dict[str, object]]:
    """Return the events of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_of_many_threads(tmp_path):
    """Each event is one whole line, whatever its texts hold, and whoever writes."""
    path = tmp_path / "new" / "audit.jsonl"
    audit = AuditLog(path)
    audit.open()
    hostile = "a\nb\x1b[31m\u2028" + "x" * 200

    def write(number: int) -> None:
        for _ in range(200):
            audit.note("login_refused", hostile, f"host:{number}", filter="\n")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = lines(path)
    assert len(found) == 1600
    assert {each["user"] for each in found} == {hostile[:NAME_MAX]}
    assert path.read_bytes().isascii()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_rotation(tmp_path):
    """A new file begins at the limit; so many are kept, with the newest events."""
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path, bytes_max=1000)
    for number in range(1000):
        audit.note("login", "a", "b", number=number)
    files = [path, *(tmp_path / f"audit.jsonl.{n}" for n in range(1, FILES_MAX))]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(each.stat().st_size <= 1000 for each in files)
    numbers = [each["number"] for file in reversed(files) for each in lines(file)]
    assert numbers == list(range(1000 - len(numbers), 1000))


def test_moved_away(tmp_path):
    """A file that logrotate has moved is created again."""
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    audit.note("login", "a", "b")
    path.rename(tmp_path / "old")
    audit.note("logout", "a", "b")
    assert [each["event"] for each in lines(path)] == ["logout"]


def test_unusable_files(tmp_path):
    """A file that cannot be written is an error of the settings that names it."""
    target = tmp_path / "target"
    target.write_text("keep")
    link = tmp_path / "link"
    link.symlink_to(target)
    for path in (link, tmp_path):
        with pytest.raises(ConfigError, match=f"canal.audit.file = {path}"):
            AuditLog(path).open()
    assert target.read_text() == "keep"


def test_a_pipe_is_not_waited_for(tmp_path):
    """A pipe that nobody reads is an error at once."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match=f"canal.audit.file = {path}: cannot write"):
        AuditLog(path).open()


def test_a_line_that_does_not_fit_is_not_cut(tmp_path):
    """Where the disk has room for a part of a line only, nothing of it stays."""
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    audit.note("login", "a", "b")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, before[1]))
    try:
        audit.note("login", "c", "d")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    audit.note("login", "e", "f")
    assert [each["user"] for each in lines(path)] == ["a", "e"]


def test_a_full_disk_is_reported_once(tmp_path, caplog):
    """What cannot be written is lost and reported, and later events are written."""
    path = tmp_path / "audit.jsonl"
    full = AuditLog(path)
    path.symlink_to("/dev/full")
    for _ in range(3):
        full.note("login", "a", "b")
    assert caplog.text.count("cannot write the audit file") == 1
    path.unlink()
    full.note("login", "a", "b")
    assert len(lines(path)) == 1


def test_sums(tmp_path, monkeypatch):
    """Reads are summed by client, and noted after a while and at the end."""
    path = tmp_path / "audit.jsonl"
    sums = ReadSums(AuditLog(path), "ann", "host:1")
    one, two = ClientIdentity("d", 1), ClientIdentity("d", 2)
    for start in range(3):
        sums.add(one, f"f:{start}", f"f:{start + 1}", 10, 100, lambda _: "a.*")
    sums.add(two, "f:7", "f:9", 1, 5, lambda _: "")
    assert not path.exists()
    monkeypatch.setattr(audit_log, "SUM_S", 0.0)
    sums.add(two, "f:9", "f:10", 1, 5, lambda _: "")
    sums.flush()
    found = [{k: v for k, v in each.items() if k != "time"} for each in lines(path)]
    common = {"event": "read", "user": "ann", "address": "host:1", "destination": "d"}
    assert found == [
        common | {"client_id": 1, "filter": "a.*", "from": "f:0", "to": "f:3",
                  "batches": 3, "rows": 30, "bytes": 300},
        common | {"client_id": 2, "filter": "", "from": "f:7", "to": "f:10",
                  "batches": 2, "rows": 2, "bytes": 10},
    ]  # fmt: skip


def test_repeated_refusals(tmp_path, monkeypatch):
    """What is refused again and again is one line in five minutes, with a count."""
    now_s = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    path = tmp_path / "audit.log"
    audit = AuditLog(path)
    for port in range(50):
        audit.note_refusal("eve", f"10.0.0.7:{port}", "read", "shop")
    audit.note_refusal("eve", "10.0.0.8:1", "read", "shop")
    audit.note_refusal("eve", "10.0.0.7:1", "operate", None)
    now_s += audit_log.SUM_S
    audit.note_refusal("eve", "10.0.0.7:99", "read", "shop")
    noted = [(each["address"], each["action"], each["times"]) for each in lines(path)]
    assert noted == [
        ("10.0.0.7:0", "read", 1),
        ("10.0.0.8:1", "read", 1),
        ("10.0.0.7:1", "operate", 50),
        ("10.0.0.7:99", "read", 1),
    ]


def test_many_different_refusals(tmp_path, monkeypatch):
    """Whoever asks for many things gets few lines, which count them all."""
    now_s = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    path = tmp_path / "audit.log"
    audit = AuditLog(path)
    for number in range(500):
        audit.note_refusal("eve", "10.0.0.7:1", "read", str(number))
    assert len(lines(path)) == audit_log.REFUSALS_MAX
    now_s += audit_log.SUM_S
    audit.note_refusal("eve", "10.0.0.7:1", "read", "0")
    assert sum(int(str(each["times"])) for each in lines(path)) == 501


def test_refusals_of_many_users(tmp_path, monkeypatch):
    """Those who were refused longest ago are forgotten first."""
    monkeypatch.setattr(audit_log, "REFUSED_MAX", 3)
    path = tmp_path / "audit.log"
    audit = AuditLog(path)
    for user in "abcadba":
        audit.note_refusal(user, "10.0.0.7:1", "read", "shop")
    assert [each["user"] for each in lines(path)] == list("abcdb")


def test_off(tmp_path):
    """Without a file, nothing is noted."""
    audit = AuditLog(None)
    audit.open()
    audit.note("login", "a", "b")
    assert not audit.is_on
    assert not list(tmp_path.iterdir())
