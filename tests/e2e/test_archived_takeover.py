"""Another server takes over whose binlog files continue the archive by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from binlog_archiver import archive
from fix_archived import ARCHIVE
from fix_failover import BY_SET, GTID_MODE, TickingWriter

from canal_server import cli
from canal_server.model.positions import binlog_file_number

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from fix_pipeline import Pipeline
    from fix_replicas import Replicas
    from servers import PrivateServer

ADDRESS = "canal.instance.master.address"


def file_number(server: PrivateServer) -> int:
    """Return the number of the file that a server writes."""
    return binlog_file_number(server.binlog_position()[0])


@pytest.mark.parametrize("by", ["gtid", "set"])
def test_archives_of_both(
    make_pipeline: Callable[..., Pipeline],
    replicas: Replicas,
    *,
    replicated_schema: str,
    rng: random.Random,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    by: str,
) -> None:
    """The former server's archive is not read, and `check` and the error say why.

    With the archive of the new one nothing is lost, and nothing comes twice by GTID.
    """
    former, new = replicas.source, replicas.replica
    settings = {"gtid": GTID_MODE, "set": BY_SET}[by]
    of_former, of_new = tmp_path / "former", tmp_path / "new"
    of_former.mkdir()
    pipeline = make_pipeline(
        former,
        replicated_schema,
        {ARCHIVE: of_former, "canal.file.flush.period": 20, **settings},
    )
    writer = TickingWriter(former, replicated_schema, rng)
    checker = pipeline.checker(writer)
    pipeline.start()
    with pipeline.client() as client:
        writer.write(5)
        pipeline.receive(client, checker)
    pipeline.stop()
    writer.write(20)
    while file_number(former) <= file_number(new):
        former.execute("FLUSH BINARY LOGS")
    replicas.catch_up()
    names = archive(former, of_former)
    former.kill()
    replicas.take_over()
    while file_number(new) < binlog_file_number(names[-1]):
        new.execute("FLUSH BINARY LOGS")
    archive(new, of_new)
    assert file_number(new) == binlog_file_number(names[-1]) + 1

    pipeline.configure({ADDRESS: f"{new.host}:{new.port}"})
    assert cli.main(["check", "--conf", str(pipeline.conf)]) == 1
    expected = f"{names[-1]} is of the server with id {former.port}, but "
    assert expected in capsys.readouterr().out
    pipeline.start()
    line = pipeline.process.wait_for_log("ERROR .*Purged")
    print(line)
    assert by == "set" or expected in line
    pipeline.stop()

    pipeline.configure({ARCHIVE: of_new})
    pipeline.start()
    writer.go_to(new)
    writer.write(5)
    checker.resume(5 if by == "gtid" else 0, 5)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    assert checker.done == len(writer.transactions)
    assert by == "set" or checker.repeated == 0
