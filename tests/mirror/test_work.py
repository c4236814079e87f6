"""A table on its way into the stream: what is noted of copies that were in vain."""

from __future__ import annotations

import io
from dataclasses import replace

from canal_server.lifecycle import Stop
from canal_server.mirror.follower import CopyNeededError
from canal_server.mirror.model import TableName
from canal_server.mirror.progress import Progress
from canal_server.mirror.settings_file import read
from canal_server.mirror.state import Phase, States, TableState
from canal_server.mirror.storage import open_folder
from canal_server.mirror.stream import ChangeStream
from canal_server.mirror.work import COPIES_MAX, TableWork

TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables: [{match: .*}]
"""
T = TableName("shop", "t")


class Outrun(TableWork):
    """Copies a table whose columns change in the meantime, each time."""

    def _bring_in(self, state: TableState) -> None:
        begun = replace(
            state, phase=Phase.COPYING, copy_id=f"c{state.copies}",
            copies=state.copies + 1,
        )  # fmt: skip
        self._store.write(begun)
        raise CopyNeededError("its columns changed")


def test_copies_in_a_row_are_counted(tmp_path) -> None:
    """A table that is outrun all the time is stopped, after so many copies."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    store = States(open_folder(settings.lake, settings.folder))

    def nothing(*_):
        raise AssertionError("there is no stream")

    stream = ChangeStream(
        "example", 1, parts_max=1, on_statement=nothing, on_left=nothing,
        on_batch=nothing,
    )  # fmt: skip
    work = Outrun(
        settings, None, store, stream, progress=Progress(io.StringIO()), stop=Stop(),
        is_mariadb=False,
    )  # fmt: skip
    work.bring_in(TableState(T, "shop/t", copies=3))
    state = store.read(T)
    assert state is not None
    assert state.phase is Phase.STOPPED
    assert "it was copied 5 times and changed in the meantime" in state.message
    assert state.copies == 3 + COPIES_MAX
