"""Whole mirrors whose lakes are in a store of their own, which tests kill and fill."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fix_mirror_process import PATIENCE_S
from fix_s3 import BUCKET

if TYPE_CHECKING:
    from pathlib import Path

    from fix_mirror_process import MirrorProcess
    from fix_s3 import S3Process

NAME = "lake-of-the-mirror"
# Of a request, so that a store that does not answer is noticed at once.
FAST = {"max_retries": "1", "retry_timeout": "4s", "timeout": "4s"}
REFUSED = "this mirror is already running"


def in_store(
    mirror: MirrorProcess,
    server: S3Process,
    objects: Path,
    folder: Path,
    catalog: dict[str, str] | None = None,
) -> None:
    """Let a mirror write into a bucket; its objects are files, which tests read.

    `catalog`: of Iceberg tables; without it, the tables are Delta tables.
    """
    store = server.store.lake(NAME, **FAST)
    lake: dict[str, Any] = {
        "path": store.path,
        "storage_options": dict(store.storage_options),
    }
    if catalog:
        lake |= {"format": "iceberg", "catalog": catalog}
    mirror.settings["lake"] = lake
    mirror.settings["checkpoint"] = str(folder / "checkpoint")
    mirror.path = objects / BUCKET / NAME


def start(mirror: MirrorProcess) -> None:
    """Start a mirror as a supervisor does: again, while the old lease lasts."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        mirror.start(wait=False)
        process = mirror.process
        assert process is not None
        text = f"{REFUSED}|follow(s|ing) the stream|nothing to do"
        if REFUSED not in process.wait_for_log(text, PATIENCE_S):
            return
        process.wait(PATIENCE_S)
        mirror.process = None
        assert time.monotonic() < give_up_at, "the lease does not expire"
