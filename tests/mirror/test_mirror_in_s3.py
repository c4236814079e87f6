"""A whole mirror whose lake is in an S3 store: mirror, store and server are killed.

In the end `mirror verify` finds each row of the source once.
"""

from __future__ import annotations

import os
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fix_interop import SWITCH
from fix_mounts import mounted
from fix_random import longer
from mirror_scene import MirrorScene
from mirror_stores import in_store, start
from mirror_writes import MirrorLoad
from small_disk import full

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from fix_mirror_process import MirrorProcess
    from fix_s3 import S3Process

    OwnS3 = Callable[[Path], S3Process]
    MakeMirror = Callable[..., MirrorProcess]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(0),
    pytest.mark.skipif(SWITCH not in os.environ, reason=f"{SWITCH}=1 runs it"),
]

SCHEMA = "shop"
KILLS = ("mirror", "server", "jvm")


@pytest.fixture(params=["delta", "iceberg"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Return the catalog of Iceberg tables, in SQLite; none for Delta tables."""
    if request.param == "delta":
        return {}
    pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
    return {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}"}


def _has_written(load: MirrorLoad, commits: int) -> bool:
    return load.commits >= commits


@pytest.fixture
def shop(own_server: Any, make_mirror: MakeMirror) -> MirrorProcess:
    """Give a mirror of a source of its own, which was not started."""
    source = own_server("mysql", ())
    source.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
    return make_mirror(source, SCHEMA)


def test_killed(
    shop: Any,
    own_s3: OwnS3,
    rng: random.Random,
    tmp_path: Path,
    catalog: dict[str, str],
) -> None:
    """The mirror and the store, at random moments, while tables of all types change."""
    objects = tmp_path / "objects"
    server, mirror = own_s3(objects), shop
    in_store(mirror, server, objects, tmp_path, catalog)
    mirror.settings["copy"] = {"chunk_rows": 100}
    mirror.settings["stream"] |= {"max_rows": 500, "min_partition_rows": 50}
    load = MirrorLoad(mirror.source, SCHEMA, rng, statements=0.005)
    load.write(100)
    scene = MirrorScene(mirror, load, rng)
    with load:
        for what in (
            "store",
            "both",
            *(rng.choice(KILLS) for _ in range(longer(1) - 1)),
        ):
            if mirror.process is None:
                start(mirror)
            enough = partial(_has_written, load, load.commits + rng.randrange(20, 200))
            mirror.wait_for(enough, "writing")
            print(f"{time.strftime('%X')} {load.commits} transactions: {what}")
            if what in KILLS:
                scene.round(what)
                continue
            server.kill()
            if what == "both":
                mirror.kill()
            server.start()
    if mirror.process is None:
        start(mirror)
    scene.verify(scene.settle())
    mirror.stop()


def test_a_full_bucket(
    shop: Any, own_s3: OwnS3, tmp_path: Path, catalog: dict[str, str]
) -> None:
    """Changes wait, the log says why, and each is there once when there is room.

    Also if the mirror is killed in the meantime.
    """
    mirror = shop
    with mounted(tmp_path / "disk", "size=64m") as disk:
        server = own_s3(disk)
        in_store(mirror, server, disk, tmp_path, catalog)
        mirror.source.execute(
            f"CREATE TABLE {SCHEMA}.t (id INT PRIMARY KEY, v VARCHAR(20))",
            f"CREATE TABLE {SCHEMA}.keyless (n INT)",
            f"INSERT INTO {SCHEMA}.t VALUES (1, 'a'), (2, 'b')",
        )
        start(mirror)
        mirror.agree(t=("id",), keyless=())
        for number, is_killed in enumerate((False, True)):
            with full(disk):
                mirror.source.execute(
                    f"INSERT INTO {SCHEMA}.t VALUES ({10 + number}, 'waits')",
                    f"UPDATE {SCHEMA}.t SET v = 'round {number}' WHERE id = 1",
                    f"INSERT INTO {SCHEMA}.keyless VALUES ({number}), ({number})",
                )
                said = mirror.process.log
                fails = partial(_fails, said, len(said))
                mirror.wait_for(fails, "the error")
                if is_killed:
                    mirror.kill()
            if mirror.process is None:
                start(mirror)
            mirror.agree(t=("id",), keyless=())
        mirror.stop()
        server.kill()


def _fails(log: list[str], after: int) -> bool:
    """Check whether lines of a log say that the stream fails as the store is full."""
    found = "the stream failed.*the store fails: check whether it is full"
    return any(re.search(found, line) for line in log[after:])
