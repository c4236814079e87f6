"""Recorded binlogs of releases of all ages: decoded, they are what SELECT showed.

`tools/record_release.py` makes them. Columns come from the recorded statements alone.
"""

from __future__ import annotations

import json
import re
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from golden_form import ReplayedImages, Workload, decode_fields, entries_of
from golden_truth import Tables
from random_columns import same_document
from server_releases import RELEASES

from canal_server.decoder.text.time_zone import read_zone
from canal_server.model.entry import EntryType

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, str | None]

DATA = Path(__file__).parent / "releases"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
BYTES_MAX = 200_000


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in the time zone of the recordings."""
    monkeypatch.setenv("TZ", "UTC")
    take_zone()
    yield
    monkeypatch.undo()
    take_zone()


def take_zone() -> None:
    """Use the time zone of the environment."""
    time.tzset()
    read_zone()


def recorded(name: str) -> tuple[dict[str, bytes], dict[str, list[Row]]]:
    """Return the binlogs of a recording, and the rows of each table."""
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        files = {
            entry.name: content.read()
            for entry in archive.getmembers()
            if (content := archive.extractfile(entry)) is not None
        }
    truth: dict[str, list[Row]] = {}
    for line in files["rows.jsonl"].splitlines():
        found = json.loads(line)
        truth.setdefault(found["table"], []).append(found["row"])
    binlogs = {file: files[file] for file in sorted(files) if "binlog." in file}
    return binlogs, truth


@pytest.mark.parametrize("name", NAMES)
def test_recorded_rows(name: str, tmp_path: Path) -> None:
    """Applying every delivered row gives exactly what SELECT returned in the end."""
    binlogs, truth = recorded(name)
    workload = Workload(name, "", binlogs, [], [], {}, [])
    images = ReplayedImages(mariadb=name.startswith("mariadb"))
    tables = Tables()
    documents = set()
    for entry in entries_of(decode_fields(workload, tmp_path, images)):
        if entry.entry_type == EntryType.ROWDATA:
            tables.apply(entry)
            for data in entry.row_change().row_datas:
                documents |= {
                    (entry.header.table_name, column.name)
                    for column in data.after_columns
                    if column.mysql_type == "json"
                }
    assert sum(map(len, truth.values())) > 20
    for (_, table), rows in tables.rows.items():
        left = list(truth.pop(table, []))
        for row in rows:
            shown = {
                column: same_document(text)
                if text and (table, column) in documents
                else text
                for column, text in row.items()
            }
            match = next((r for r in left if r.items() <= shown.items()), None)
            assert match is not None, f"{table}: only decoded: {shown}"
            left.remove(match)
        assert not left, f"{table}: only on the server: {left[0]}"
    assert not truth, "tables without an entry"


def test_recordings_are_small_and_of_each_kind() -> None:
    """There is a recording of each release that can be had, none of them large."""
    assert set(RELEASES) <= set(NAMES)
    for name in NAMES:
        assert re.fullmatch(r"(mysql|mariadb)-\d+\.\d+(\.\d+)?", name)
        assert (DATA / f"{name}.tar.xz").stat().st_size < BYTES_MAX
