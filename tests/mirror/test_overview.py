"""What `mirror status` tells, from what is in the lake."""

from __future__ import annotations

import re
import time
from dataclasses import replace

from canal_server.mirror.history import Batch, Status, write_status
from canal_server.mirror.model import TableName
from canal_server.mirror.overview import as_text, overview
from canal_server.mirror.pauses import copied_again
from canal_server.mirror.report import Report
from canal_server.mirror.settings_file import read
from canal_server.mirror.state import Phase, States, TableState
from canal_server.mirror.storage import open_folder

TEXT = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables: [{match: .*}]
"""


def test_a_mirror_that_ended_and_a_table_that_waits(tmp_path) -> None:
    """Why it ended is told until it runs again, and how long a table still waits."""
    settings = read(TEXT, str(tmp_path / "m.yml"), {})
    folder = open_folder(settings.lake, settings.folder)
    report = Report(settings, folder)
    report.end("nothing was told before")
    assert overview(settings).status is None

    now = time.time()
    last = Batch(round(now * 1000), rows=5, journal="b.000001", position=4)
    status = Status("shop", "here", 1, 0, round(now * 1000), last=last)
    write_status(folder, status)
    report.end("changes would be missing")
    table = TableState(
        TableName("shop", "t"), "shop/t", Phase.FOLLOWING, leaves=4,
        left_at_ms=round(now * 1000),
    )  # fmt: skip
    States(folder).write(copied_again(table, "its key is another one", now))

    found = overview(settings)
    assert found.status == replace(status, message="changes would be missing")
    text = list(as_text(found))
    assert text[2] == "ended: changes would be missing"
    assert re.search(r"waiting, \d+ (s|min) left", text[5])
    assert text[6] == (
        "shop.t: its key is another one (it has to be copied again 5 times in a row, "
        "so it waits for 2 min)"
    )
    (told,) = found.to_json()["tables"]
    assert told["due_at_ms"] == round((now + 120) * 1000)

    report.turn()
    assert "ended: " not in "\n".join(as_text(overview(settings)))
