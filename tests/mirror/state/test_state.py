"""What a mirror keeps in files: states, requests, status, history, and its lease."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import pickle
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyarrow import fs

from canal_server.client.range_client import RangePosition
from canal_server.errors import LakeError
from canal_server.mirror.lake.lake_storage import Folder, open_folder
from canal_server.mirror.lake.stores.object_stores import store_of
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_lease import FILE, LASTS_S, Lease
from canal_server.mirror.state.run_history import (
    FILES_MAX,
    LINES_MAX,
    Batch,
    History,
    Status,
    read_history,
    read_status,
    write_status,
)
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.model.columns_known import ColumnMeta

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ODD = TableName("sh.op", "or/ders é")
STATE = TableState(
    source=ODD,
    target="shop/x",
    phase=Phase.COPYING,
    copy_id="7",
    position=RangePosition(2, "binlog.000003", 4, gtids="a:1-7"),
    columns=(
        ColumnMeta("id", "int", None, is_key=True, nullable=False),
        ColumnMeta("ü", "varchar(9)", "utf8mb4"),
    ),
    kept=("old",),
    message="because",
    rows=5,
    rows_expected=6,
    copies=2,
)


@pytest.fixture(params=["files", "objects"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """Give a folder of the file system, then one that is as in an object store."""
    if request.param == "files":
        return open_folder(LakeSettings(path=str(tmp_path)), "_mirror/shop")
    (tmp_path / "bucket/shop").mkdir(parents=True)
    inner = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for name in ("tables", "requests", "history"):
        (tmp_path / "bucket/shop" / name).mkdir()
    return Folder(inner, "bucket/shop")


def test_states_come_back(folder: Folder):
    """A state is read as written, also by another process."""
    states = States(folder)
    assert states.read_all() == {}
    stored = states.write(STATE)

    assert stored.updated_at_ms > 0
    assert States(folder).read_all() == {ODD: stored}
    assert replace(stored, updated_at_ms=0) == STATE
    waiting = states.write(TableState(TableName("a", "b"), "a/b"))
    assert states.read(TableName("a", "b")) == waiting
    assert states.read(TableName("a", "c")) is None
    states.forget(ODD)
    states.forget(ODD)
    assert list(states.read_all()) == [("a", "b")]
    assert STATE.moved(Phase.FOLLOWING).message == ""


def test_a_state_that_nobody_wrote(folder: Folder):
    """A file that is something else is named, with what to do."""
    for text in (b"", b"[]", b"\xff", b'{"form": 9}', b'{"form": 1}'):
        folder.write("tables/s.t.json", text)
        with pytest.raises(
            LakeError, match=r"tables/s.t.json is not a valid state .* delete it"
        ):
            States(folder).read_all()


def test_requests(folder: Folder):
    """A request stays until its table's state has it; invalid files are deleted."""
    states = States(folder)
    states.request_copy([ODD, TableName("a", "b")])
    folder.write("requests/x.json", b"rubbish")

    assert sorted(states.requested()) == sorted([ODD, TableName("a", "b")])
    states.remove_request(ODD)
    assert states.requested() == [TableName("a", "b")]


def test_long_names(folder: Folder, tmp_path: Path):
    """Tables with the longest names of MySQL have files, each a separate one.

    Names that file systems accept are unchanged: existing lakes continue.
    """
    states = States(folder)
    long = [TableName("商" * 64, "品" * 63 + last) for last in "ab"]
    longest = TableName("s" * 64, "商" * 15 + "t" * 13)  # that had a file
    longer = TableName("s" * 64, "商" * 15 + "t" * 14)
    names = [*long, longest, longer, TableName("s", "t")]
    states.request_copy(names)
    for name in names:
        states.write(TableState(name, "x"))
        states.write(TableState(name, str(name)))
    found = {name: states.read(name) for name in names}
    assert {n: s and s.target for n, s in found.items()} == {n: str(n) for n in names}
    assert states.read_all().keys() == set(names)
    assert sorted(states.requested()) == sorted(names)
    states.forget(long[0])
    states.remove_request(long[0])
    assert states.read_all().keys() == set(names[1:])
    assert sorted(states.requested()) == sorted(names[1:])

    there = {path.name for path in tmp_path.rglob("*.json")}
    assert "s.t.json" in there
    kept = f"{'s' * 64}.{'%E5%95%86' * 15}{'t' * 13}.json"
    assert kept in there
    assert max(map(len, there)) == len(kept)


def write_by_turns(folder: Folder, texts: list[bytes]) -> None:
    """Write the one text and the other into a file."""
    for number in range(40):
        folder.write("x", texts[number % 2])


def test_a_reader_never_sees_half_a_file(tmp_path: Path):
    """While a file is written again and again, each reading is one of the versions."""
    folder = open_folder(LakeSettings(path=str(tmp_path)))
    texts = [bytes([65 + n]) * 200_000 for n in range(2)]
    folder.write("x", texts[0])
    writer = multiprocessing.get_context("fork").Process(
        target=write_by_turns, args=(folder, texts)
    )
    writer.start()
    while writer.is_alive():
        assert folder.read("x") in texts
    writer.join()
    assert folder.names() == ["x"]


def test_status(folder: Folder):
    """The status comes back, also when a later version wrote more into it."""
    assert read_status(folder) is None
    status = Status("shop", "here", 7, 1, 2, last=Batch(3, rows=9, delay_ms=5))
    write_status(folder, status)
    assert read_status(folder) == status
    text = status.to_json().replace('"pid"', '"new": 1, "pid"', 1)
    assert Status.from_json(text.replace('"rows"', '"more": 1, "rows"')) == status
    folder.write("status.json", b"{")
    assert read_status(folder) is None


def test_history_is_bounded(folder: Folder):
    """Lines go into files of a limited size, of which the oldest are deleted."""
    history = History(folder)
    for number in range(LINES_MAX + 10):
        history.add(Batch(number))
    history.flush()
    history.flush()
    again = History(folder)
    again.add(Batch(-1, delay_ms=7))
    again.flush()
    found = list(read_history(folder))

    assert [each.at_ms for each in found] == [*range(LINES_MAX + 10), -1]
    for number in range(FILES_MAX):
        one = History(folder)
        one.add(Batch(number))
        one.flush()
    assert [each.at_ms for each in read_history(folder)] == [*range(FILES_MAX)]


def test_one_mirror_at_a_time(folder: Folder):
    """While the lease is held, another process learns the owner, and gets it later."""
    waited: list[float] = []
    with Lease(folder, wait=waited.append) as first:
        first.check()
        with pytest.raises(LakeError, match=f"process {os.getpid()} on .*{FILE}"):
            Lease(folder, wait=waited.append).acquire()
    with Lease(folder, wait=waited.append):
        assert bool(waited) is (folder.local_path is None)
    first.release()  # does nothing


def hold_lease(path: str, pipe) -> None:
    """Acquire a lease and keep it until this process is killed."""
    with Lease(open_folder(LakeSettings(path=path))):
        pipe.send("held")
        signal.pause()


def test_a_killed_owner_leaves_the_lock_free(tmp_path: Path):
    """A lock of the file system ends with its process, however that ends."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    owner = context.Process(target=hold_lease, args=(str(tmp_path), theirs))
    owner.start()
    assert ours.poll(60)
    lease = Lease(open_folder(LakeSettings(path=str(tmp_path))))
    with pytest.raises(LakeError, match=f"process {owner.pid} on"):
        lease.acquire()
    owner.kill()
    owner.join()
    lease.acquire()
    lease.release()


def test_a_link_instead_of_the_lock(tmp_path: Path):
    """What a symbolic link points to is not emptied: the link is refused, by name."""
    target = tmp_path / "of somebody"
    target.write_text("precious")
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / FILE).symlink_to(target)
    with pytest.raises(LakeError, match=rf"{FILE} is a symbolic link, .*: remove it"):
        Lease(open_folder(LakeSettings(path=str(lake)))).acquire()
    assert target.read_text() == "precious"


def test_large_files(folder: Folder):
    """A file is written bit by bit, also where its folder went to another process."""
    there = pickle.loads(pickle.dumps(folder)).below("tables")  # our own
    with there.create("a") as file:
        file.write(b"one")
        file.write(b"two")
    there.keep("a")
    assert str(there) == str(folder.below("tables"))
    assert folder.below("tables").sizes() == {"a": 6}
    with pytest.raises(LakeError, match=r"cannot write .*/a/b"):
        there.create("a/b")


def test_an_old_lease_is_taken_over(tmp_path: Path):
    """In an object store, who was not heard of for long has lost the right."""
    inner = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    folder = Folder(inner, "")
    clock = [1000.0]
    lost = threading.Event()

    def lease(renewed_s: float = 3600, wait=lambda _: None) -> Lease:
        return Lease(
            folder,
            now=lambda: clock[0],
            wait=wait,
            renewed_s=renewed_s,
            on_lost=lost.set,
        )

    old, new = lease(), lease()
    old.acquire()
    (file,) = tmp_path.iterdir()
    written = file.read_bytes()
    clock[0] += LASTS_S - 1
    with pytest.raises(LakeError, match="this mirror is already running"):
        new.acquire()
    clock[0] += 2
    new.acquire()
    old.release()
    assert json.loads(file.read_bytes()) != json.loads(written)  # the new owner's

    # Another one acquired it at the same moment, and wrote last.
    clock[0] += LASTS_S + 1
    with pytest.raises(LakeError, match="; if it was killed, start this one 60 sec"):
        lease(wait=lambda _: file.write_bytes(written)).acquire()

    clock[0] += LASTS_S + 1
    quick = lease(renewed_s=0.01)
    quick.acquire()
    assert not lost.is_set()
    file.write_bytes(written)
    assert lost.wait(60)
    assert "was taken over by process" in str(quick.lost)
    quick.release()
    assert file.read_bytes() == written
    new.release()


def test_a_lease_is_renewed_by_itself(tmp_path: Path):
    """In an object store, a process that is busy for long keeps the lease.

    A renewal that fails is reported until one succeeds.
    """

    def put(path: str, content: bytes) -> None:  # as a whole
        new = tmp_path / "new"
        new.write_bytes(content)
        new.replace(tmp_path / path.lstrip("/"))

    inner = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    folder = Folder(inner, "", put=put)
    clock = [1000.0]

    def lease() -> Lease:
        return Lease(folder, now=lambda: clock[0], wait=lambda _: None, renewed_s=0.01)

    def renewed() -> bool:
        return bool(json.loads((tmp_path / FILE).read_bytes())["at"] == clock[0])

    with lease() as busy:
        for _ in range(3):
            clock[0] += LASTS_S - 1
            wait_until(renewed)
            with pytest.raises(LakeError, match="this mirror is already running"):
                lease().acquire()
        busy.check()
        wait_until(lambda: is_blocked(tmp_path / FILE))
        wait_until(lambda: failure_of(busy) is not None)
        (tmp_path / FILE).rmdir()
        wait_until(lambda: failure_of(busy) is None)
        assert busy.lost is None
    assert not (tmp_path / FILE).exists()


def test_a_lease_that_another_process_had(tmp_path: Path):
    """A process that was suspended does not go on, even if the other one has ended."""
    folder = Folder(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "")
    times = itertools.count(1000.0, LASTS_S + 1)  # each renewal is late
    lost = threading.Event()
    suspended = Lease(
        folder, now=lambda: next(times), wait=lambda _: None, renewed_s=0.01,
        on_lost=lost.set,
    )  # fmt: skip
    with suspended:
        before = (tmp_path / FILE).read_bytes()
        wait_until(lambda: (tmp_path / FILE).read_bytes() not in {before, b""})
        assert not lost.is_set()
        wait_until(lambda: is_lost_without(tmp_path / FILE, lost))
    assert "was not renewed for" in str(suspended.lost)
    assert not (tmp_path / FILE).exists()


def is_blocked(file: Path) -> bool:
    """Put a folder in a file's place; false if the file was written meanwhile."""
    file.unlink(missing_ok=True)
    try:
        file.mkdir()
    except FileExistsError:
        return False
    return True


def is_lost_without(file: Path, lost: threading.Event) -> bool:
    """Delete a file, which may be written again; returns whether that was noticed."""
    file.unlink(missing_ok=True)
    return lost.wait(0.02)


def wait_until(look: Callable[[], bool]) -> None:
    """Wait until something is so; fails after a minute."""
    deadline = time.monotonic() + 60
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def failure_of(lease: Lease) -> str | None:
    """Return why the last renewal failed."""
    try:
        lease.check()
    except LakeError as error:
        return str(error)
    return None


def test_positions_that_cannot_be(tmp_path: Path):
    """A lake that cannot be written is named, without a traceback's words only."""
    (tmp_path / "file").write_text("")
    folder = open_folder(LakeSettings(path=str(tmp_path / "file")))
    for attempt in (
        lambda: folder.write("x", b""),
        lambda: Lease(folder).acquire(),
    ):
        with pytest.raises(LakeError, match=r"cannot write .*file"):
            attempt()


def test_options_of_an_object_store():
    """The options of delta-rs open the same store for Arrow."""
    found = store_of(
        "s3://lake/x",
        {
            "AWS_ACCESS_KEY_ID": "a",
            "aws_secret_access_key": "b",
            "AWS_REGION": "eu",
            "AWS_ENDPOINT_URL": "http://minio:9000/",
        },
    )
    assert found.options == {
        "access_key": "a",
        "secret_key": "b",
        "region": "eu",
        "endpoint_override": "minio:9000",
        "scheme": "http",
    }
    assert (found.root, found.endpoint) == ("lake/x", "http://minio:9000")
    assert found.name == "bucket lake at http://minio:9000"
    assert "secret" not in repr(found)
    plain = store_of("s3://b/x", {"endpoint": "minio:9000", "allow_http": "true"})
    assert plain.options["scheme"] == "http"
    assert store_of("s3://b/x", {}).name == "bucket b of S3"


def test_options_of_azure(monkeypatch: pytest.MonkeyPatch):
    """The account is in the address; keys are as delta-rs names them."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "key of the environment")
    path = "abfss://lake@shop.dfs.core.windows.net/x"
    found = store_of(path, {})
    assert (found.root, found.name) == ("lake/x", "container lake of account shop")
    assert found.options == {
        "account_name": "shop",
        "account_key": "key of the environment",
    }
    found = store_of(path, {"azure_storage_access_key": "k", "use_emulator": "true"})
    assert found.options["account_key"] == "k"
    assert found.options["blob_storage_scheme"] == "http"
    china = store_of("abfss://lake@shop.dfs.core.chinacloudapi.cn/x", {})
    assert china.options["blob_storage_authority"] == ".blob.core.chinacloudapi.cn"
    assert china.options["dfs_storage_authority"] == ".dfs.core.chinacloudapi.cn"


def test_options_of_google():
    """Credentials are those of the environment; an endpoint may be another."""
    found = store_of("gs://lake/x", {})
    assert (found.root, found.options) == ("lake/x", {})
    assert found.name == "bucket lake of Google Cloud Storage"
    given = {"google_base_url": "http://127.0.0.1:1/", "google_skip_signature": "true"}
    assert store_of("gs://lake/x", given).options == {
        "scheme": "http",
        "endpoint_override": "127.0.0.1:1",
        "anonymous": True,
    }
    with pytest.raises(LakeError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        store_of("gs://lake/x", {"google_service_account": "/secret.json"})


def test_a_folder_is_removed(folder: Folder) -> None:
    """It is deleted with its contents, its neighbours stay; idempotent."""
    folder.write("tables/b.json", b"1")
    folder.write("e.json", b"3")
    for _ in range(2):
        folder.below("tables").remove()
        assert folder.below_names() == ["e.json"]
