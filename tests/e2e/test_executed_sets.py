"""The GTID set beside a cursor outside of GTID mode, against what the server says."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from fix_pipeline import POLL_S, UNIT_S

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fix_pipeline import Pipeline
    from ledger import Checker, Writer
    from servers import Server

OFTEN = {"canal.file.flush.period": 20}
PATIENCE_S = 9 * UNIT_S


def executed(server: Server) -> str:
    """Return the set that a server has logged, as one line of text."""
    name = "gtid_executed" if server.flavour == "mysql" else "gtid_binlog_pos"
    text: str = server.execute(f"SELECT @@global.{name}")[0][0]
    return "".join(text.split())


def entries(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return what stands beside the cursor, as it is stored now."""
    path = pipeline.meta_file.with_name("meta.dat.full")
    if not path.exists():
        return []
    found: list[dict[str, Any]] = []
    for client in json.loads(path.read_text())["clients"]:
        found += client["entries"]
    return found


def is_beside(pipeline: Pipeline, gtids: str) -> bool:
    """Wait until the cursor's position has a set; return whether it is this.

    The cursor is that of the last transaction, or is about to be.
    """
    give_up_at = time.monotonic() + UNIT_S / 5
    while time.monotonic() < give_up_at:
        # It is not there before it is first written.
        if not pipeline.meta_file.exists():
            time.sleep(POLL_S)
            continue
        (client,) = json.loads(pipeline.meta_file.read_text())["clientDatas"]
        cursor = client.get("cursor", {}).get("postion", {})
        assert cursor.pop("gtid", "") == ""
        found = [
            each["executed"]["gtids"]
            for each in entries(pipeline)
            if each["position"]["postion"] == cursor
        ]
        if found == [gtids]:
            return True
        time.sleep(POLL_S)
    return False


def receive(pipeline: Pipeline, writer: Writer, checker: Checker) -> None:
    """Write some, ack all that comes, until the set of it all stands beside the cursor.

    A cursor that is written before the source has said that there is no more has the
    set of a little before.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        writer.write(3)
        with pipeline.client() as client:
            pipeline.receive(client, checker)
        if is_beside(pipeline, executed(pipeline.source)):
            return
    raise AssertionError(f"{entries(pipeline)}, not {executed(pipeline.source)}")


def test_the_set_of_the_cursor(
    make_pipeline: Callable[..., Pipeline],
    source_server: Server,
    database: str,
    rng: random.Random,
) -> None:
    """Whenever all was delivered the set is the server's own, whatever was before.

    At first, in the next file, after a restart with more to read, and where no set
    was stored, as of a cursor that somebody else wrote.
    """
    pipeline = make_pipeline(source_server, database, OFTEN)
    pipeline.start()
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    receive(pipeline, writer, checker)
    source_server.execute("FLUSH BINARY LOGS")
    receive(pipeline, writer, checker)
    pipeline.kill()
    writer.write(3)
    pipeline.start()
    checker.resume()
    receive(pipeline, writer, checker)
    pipeline.kill()
    pipeline.meta_file.with_name("meta.dat.full").unlink()
    pipeline.start()
    checker.resume()
    receive(pipeline, writer, checker)
