"""A source that is quiet, and whose binlog files are purged all the same."""

from __future__ import annotations

import pytest
from purge import purge

from canal_server.cli import main


@pytest.fixture
def quiet(request, own_server, make_pipeline, rng):
    """Give a pipeline of a source of its own, its writer and its checker."""
    source = own_server(request.param)
    source.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
    pipeline = make_pipeline(source, "shop")
    pipeline.start()
    writer = pipeline.writer(rng)
    return pipeline, writer, pipeline.checker(writer)


FLAVOURS = [
    pytest.param(name, marks=getattr(pytest.mark, name))
    for name in ("mysql", "mariadb")
]


@pytest.mark.parametrize("quiet", FLAVOURS, indirect=True)
def test_files_without_anything_unread_may_go(quiet, capsys) -> None:
    """A client that has all leaves a file that has ended, and misses nothing then.

    Nor does one that is purged while nobody is connected, across a start.
    """
    pipeline, writer, checker = quiet
    for _ in range(2):
        writer.write(2)
        with pipeline.client() as client:
            pipeline.receive(client, checker)
            pipeline.settle(client)
        pipeline.source.execute("FLUSH BINARY LOGS")
        file, _ = pipeline.source.binlog_position()
        pipeline.wait_for_status(lambda s, file=file: s["position"].startswith(file))
        assert main(["position", "show", "--conf", str(pipeline.conf)]) == 0
        shown = capsys.readouterr().out.splitlines()
        (found,) = [line for line in shown if "client 1001 at" in line]
        assert "up to date" in found
        pipeline.stop()
        assert file in pipeline.meta_file.read_text()
        purge(pipeline.source, file)
        pipeline.start()
    writer.write(2)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    assert checker.repeated == 0


@pytest.mark.parametrize("quiet", FLAVOURS, indirect=True)
def test_a_file_with_something_unread_is_not_left(quiet) -> None:
    """What a client was given and has not acked comes again after a rotation."""
    pipeline, writer, checker = quiet
    writer.write(1)
    with pipeline.client() as client:
        pipeline.receive(client, checker)
        pipeline.settle(client)
        before, _ = pipeline.source.binlog_position()
        writer.write(1)
        message = next(pipeline.messages(client))
        assert message.entries
        pipeline.source.execute("FLUSH BINARY LOGS")
        file, _ = pipeline.source.binlog_position()
        pipeline.wait_for_status(lambda s: s["position"].startswith(file))
    pipeline.stop()
    text = pipeline.meta_file.read_text()
    assert before in text
    assert file not in text
    pipeline.start()
    with pipeline.client() as client:
        pipeline.receive(client, checker)
    assert checker.done == 2
