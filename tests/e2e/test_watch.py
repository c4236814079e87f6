"""Destinations added, changed and removed while a server runs and clients receive."""

from __future__ import annotations

import shutil

import pytest
from fix_store import eventually

from canal_server.daemon.control import ask
from canal_server.errors import ClientError


def test_while_it_runs(make_pipeline, mysql_server, database, rng):
    """A client of a destination that comes, changes, breaks and goes misses nothing."""
    pipeline = make_pipeline(mysql_server, database)
    main = pipeline.conf / "canal.properties"
    folder = pipeline.conf / "example"
    aside = pipeline.conf.with_name("aside")
    main.write_text(
        main.read_text().replace("canal.destinations = example\n", "")
        + "canal.auto.scan = true\ncanal.auto.scan.interval = 1\n"
    )
    folder.rename(aside)
    pipeline.start()
    pipeline.process.wait_for_log("no destinations yet")

    shutil.copytree(aside, folder)
    pipeline.process.wait_for_log("destination example reads")
    writer = pipeline.writer(rng)
    checker = pipeline.checker(writer)
    writer.write(3)
    with pipeline.client() as client:
        pipeline.receive(client, checker)

    regex = pipeline.settings["canal.instance.filter.regex"]
    pipeline.configure({"canal.instance.filter.regex": "["})
    pipeline.process.wait_for_log(
        r"filter.regex = \[: .*it keeps its previous settings"
    )
    writer.write(3)
    with pipeline.client() as client:
        pipeline.receive(client, checker)

    pipeline.configure({"canal.instance.filter.regex": f"{regex},other"})
    pipeline.process.wait_for_log("destination example was changed")
    writer.write(3)
    checker.resume(6, 6)
    eventually(lambda: runs(pipeline))
    with pipeline.client() as client:
        pipeline.receive(client, checker)

    shutil.copytree(folder, aside, dirs_exist_ok=True)
    (folder / "instance.properties").unlink()
    pipeline.process.wait_for_log("destination example was removed")
    writer.write(3)
    with (
        pipeline.unsubscribed_client() as client,
        pytest.raises(ClientError, match="can't find destination:example"),
    ):
        client.subscribe()

    shutil.copy(aside / "instance.properties", folder)
    eventually(lambda: runs(pipeline))
    checker.resume(9, 9)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    assert checker.done == 12


def runs(pipeline):
    """Return whether the server has a destination, and runs it."""
    return [each["running"] for each in ask(pipeline.conf, "status")["instances"]] == [
        True
    ]
