"""A source with an archive of its binlog files, and a pipeline that reads both.

::

    def test_x(make_archived):
        made = make_archived("mysql", gtid=True)
        made.write_files(3)
        archive(made.source, made.folder)
        made.pipeline.start()
        made.receive()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fix_pipeline import Pipeline
    from servers import PrivateServer

ARCHIVE = "canal.instance.master.archive.dir"


class Archived:
    """A source of the test's own, its archive, and a pipeline that may read both."""

    def __init__(
        self,
        source: PrivateServer,
        pipeline: Pipeline,
        rng: random.Random,
        folder: Path,
    ) -> None:
        self.source, self.pipeline, self.folder = source, pipeline, folder
        self.writer = pipeline.writer(rng)
        self.checker = pipeline.checker(self.writer)

    def write_files(self, count: int, transactions: int = 5) -> None:
        """Write transactions to several binlog files; the last one is closed."""
        for _ in range(count):
            self.writer.write(transactions)
            self.source.execute("FLUSH BINARY LOGS")

    def receive(self) -> None:
        """Receive and ack all that was written."""
        with self.pipeline.client() as client:
            self.pipeline.receive(client, self.checker)


@pytest.fixture
def make_archived(
    own_server: Callable[[str, Sequence[str]], PrivateServer],
    make_pipeline: Callable[..., Pipeline],
    rng: random.Random,
    tmp_path: Path,
) -> Callable[..., Archived]:
    """Give `make(flavour, gtid, options)`: some transactions written and received.

    The pipeline is stopped and the archive is empty.
    """

    def make(
        flavour: str, *, gtid: bool = False, options: Sequence[str] = ()
    ) -> Archived:
        source = own_server(flavour, options)
        source.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        folder = tmp_path / "archive"
        folder.mkdir()
        settings = {ARCHIVE: folder, "canal.instance.gtidon": gtid}
        pipeline = make_pipeline(source, "shop", settings)
        pipeline.start()
        made = Archived(source, pipeline, rng, folder)
        made.writer.write(5)
        made.receive()
        pipeline.stop()
        made.checker.resume(5, 5)
        return made

    return make
