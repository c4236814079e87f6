"""Tables of a lake in S3, on a real server: as in a folder, and errors that help."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from fix_interop import SWITCH
from fix_lake import (
    COPY,
    filled,
    in_order,
    lake_rows,
    lake_table,
    random_table,
)
from fix_s3 import BUCKET, SECRET, USER, staged
from servers import free_port

from canal_server.errors import LakeError
from canal_server.mirror.lake.delta.delta import DeltaLakeTable
from canal_server.mirror.lake.lake_storage import check_bucket, open_folder
from canal_server.mirror.lake.steps import AddColumn
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.state.lake_lease import Lease, holder
from canal_server.mirror.state.lake_tables import Applied, lake_schema

if TYPE_CHECKING:
    import random

    from fix_lake import LakeRows
    from fix_s3 import S3
    from fix_stores import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]

PLAIN = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",))
# fake-gcs-server lacks the interface with which delta-rs makes an object unless it is
# there.
NOT_GOOGLE = pytest.mark.parametrize("store", ["s3", "azure"], indirect=True)
FAST = {"max_retries": "1", "retry_timeout": "2s"}


def opened(lake: LakeSettings, rows: LakeRows) -> DeltaLakeTable:
    """Open the table of these rows."""
    path = f"{lake.path}/{rows.table.target}"
    return DeltaLakeTable(path, rows.table, lake.storage_options)


def copied(lake: LakeSettings, rows: LakeRows, copy: str = COPY) -> DeltaLakeTable:
    """Publish the rows as a copy."""
    table = opened(lake, rows)
    files = staged(lake, rows, copy)
    table.publish(copy, lake_schema(rows.table), files, rows.seq + 1, {"from": copy})
    return table


def reader(lake: LakeSettings, rows: LakeRows) -> DeltaTable:
    """Open a table as its readers do."""
    path = f"{lake.path}/{rows.table.target}"
    return DeltaTable(path, storage_options=lake.storage_options)


@NOT_GOOGLE
def test_a_table(store: Store, rng: random.Random) -> None:
    """Copied, followed, copied again, compacted and vacuumed as in a folder."""
    lake = store.lake("table")
    rows = filled(random_table(rng), rng)
    table = copied(lake, rows)
    first = reader(lake, rows).metadata().id
    for _ in range(3):
        changes = rows.as_changes(rows.random_changes(30))
        table.apply(COPY, changes, rows.seq + 1, {})
        assert table.apply(COPY, changes, rows.seq + 1, {}) == Applied()
    assert in_order(lake_rows(opened(lake, rows))) == in_order(rows.rows.values())
    rows.random_changes(20)
    table = copied(lake, rows, "copy-2")
    table.compact()
    assert table.vacuum(0) > 0
    assert in_order(lake_rows(opened(lake, rows))) == in_order(rows.rows.values())
    table.evolve("copy-2", [AddColumn("more", "int", "", "7")], rows.seq + 9, {})
    added = [row["more"] for row in lake_rows(opened(lake, rows))]
    assert added == [7] * len(rows.rows)
    assert reader(lake, rows).metadata().id == first


@NOT_GOOGLE
def test_two_writers(store: Store, rng: random.Random) -> None:
    """Of two that commit the same version one sees the conflict, and loses nothing."""
    lake = store.lake("writers")
    rows = filled(PLAIN, rng)
    copied(lake, rows)
    tables = [reader(lake, rows) for _ in range(2)]
    start = threading.Barrier(2)
    ended: list[str] = []

    def alter(number: int) -> None:
        start.wait()
        for round_ in range(10):
            name = {f"delta.x{number}": str(round_)}
            try:
                tables[number].alter.set_table_properties(
                    name, raise_if_not_exists=False
                )
            except CommitFailedError:
                tables[number].update_incremental()
                ended.append("conflict")
            else:
                ended.append("committed")

    before = reader(lake, rows).version()
    threads = [threading.Thread(target=alter, args=(each,)) for each in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    committed = ended.count("committed")
    print(ended)
    assert len(ended) == 20
    assert reader(lake, rows).version() == before + committed
    assert in_order(lake_rows(opened(lake, rows))) == in_order(rows.rows.values())


def test_what_the_mirror_keeps(store: Store) -> None:
    """Files are written, listed, moved and deleted; a lease is held by one."""
    folder = open_folder(store.lake("state"), "_mirror/shop")
    assert folder.read("a.json") is None
    assert folder.names() == []
    folder.write("a.json", b"1")
    folder.write("a.json", b"2")
    folder.below("requests").write("b.json", b"3")
    assert folder.read("a.json") == b"2"
    assert folder.below_names() == ["a.json", "requests/b.json"]
    folder.move("a.json", "old/a.json")
    folder.below("other").link(folder, "old/a.json", "c.json")
    folder.below("old").remove()
    assert folder.below_names() == ["other/c.json", "requests/b.json"]
    with Lease(folder, wait=lambda _: None):
        assert holder(folder) is not None
        with pytest.raises(LakeError, match="this mirror is already running"):
            Lease(folder, wait=lambda _: None).acquire()
    assert holder(folder) is None


def test_large_files_in_parts(store: Store) -> None:
    """A file of several parts is visible when it is complete, and not before.

    Arrow shows parts of it in Azure, which no reader of the lake's tables looks at.
    """
    folder = open_folder(store.lake("parts"))
    with folder.open_output("large") as file:
        for _ in range(12):
            file.write(bytes(1 << 20))
        assert store.root.startswith("abfss:") or folder.names() == []
    assert folder.sizes() == {"large": 12 << 20}


def failures(lake: LakeSettings, rows: LakeRows) -> list[str]:
    """Return the errors of what a mirror does first."""
    found = []
    for attempt in (
        lambda: check_bucket(lake),
        lambda: Lease(open_folder(lake, "_mirror/x"), wait=lambda _: None).acquire(),
        lambda: opened(lake, rows).exists(),
    ):
        with pytest.raises(LakeError) as caught:
            attempt()
        found.append(str(caught.value))
    return found


def test_a_wrong_key(s3: S3, rng: random.Random) -> None:
    """The error names bucket, endpoint and what to check, and no secret."""
    rows = filled(PLAIN, rng)
    for wrong in (
        {"aws_secret_access_key": "wrong-word"},
        {"aws_access_key_id": "nobody"},
    ):
        for text in failures(s3.lake("wrong", **wrong, **FAST), rows):
            assert BUCKET in text
            assert s3.endpoint in text
            assert "check" in text
            assert SECRET not in text
            assert "wrong-word" not in text
            assert "\n" not in text
            assert "CanonicalRequest" not in text


def test_a_bucket_that_is_missing(s3: S3, rng: random.Random) -> None:
    """It is not taken for an empty one."""
    lake = replace(s3.lake("x", **FAST), path="s3://other/x")
    for text in failures(lake, filled(PLAIN, rng)):
        assert "other" in text
        assert s3.endpoint in text
        assert "there is no such bucket: create it" in text


def test_another_store_without_its_bucket(
    azure: Store, google: Store, rng: random.Random
) -> None:
    """It is not taken for an empty one there either."""
    rows = filled(PLAIN, rng)
    lake = azure.other_bucket()
    for text in failures(
        replace(lake, storage_options=lake.storage_options | FAST), rows
    ):
        assert "there is no such bucket: create it" in text
        assert "\n" not in text
    with pytest.raises(LakeError, match=r"bucket other of http.*there is no such"):
        check_bucket(google.other_bucket())


def test_a_wrong_key_of_azure(azure: Store, rng: random.Random) -> None:
    """The error says where to correct it, and does not show it."""
    wrong = "AAAA" + azure.options["azure_storage_account_key"][4:]
    lake = azure.lake("key", azure_storage_account_key=wrong, **FAST)
    for text in failures(lake, filled(PLAIN, rng)):
        assert "does not accept the key: check azure_storage_account_key" in text
        assert wrong not in text
        assert "\n" not in text


def test_a_store_that_is_away(s3: S3, rng: random.Random) -> None:
    """The error names the endpoint that does not answer."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    lake = s3.lake("x", endpoint_url=endpoint, **FAST)
    for text in failures(lake, filled(PLAIN, rng)):
        assert "the store cannot be reached: check endpoint_url" in text
        assert endpoint in text


def test_keys_from_the_environment(
    s3: S3, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without keys in the settings, those of the environment are used."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    options = {"endpoint_url": s3.endpoint, "allow_http": "true"}
    lake = LakeSettings(path=f"s3://{BUCKET}/env", storage_options=options)
    rows = filled(PLAIN, rng)
    copied(lake, rows)
    check_bucket(lake)
    assert in_order(lake_rows(opened(lake, rows))) == in_order(rows.rows.values())
