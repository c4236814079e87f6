"""Statements as a release writes them to its binlog, against its own answers.

Old releases have faults of their own in rare statements: of those that are named by
CANAL_SERVER_RELEASES, one in fifty may differ. MariaDB 10.1 loses the labels of a SET
when their character set changes, shows no table with a generated column that it cannot
compute, and calls generated columns of all geometries `geometry`. MariaDB 10.4.20 has
the comment of a compressed column without its M, which is not held against us.
"""

from __future__ import annotations

import json
import lzma
import os
from typing import TYPE_CHECKING, Any

import pytest
import record_ddl
from ddl_agreement import Sum, compare, lines_of
from ddl_subject import Subject
from server_data import template_of
from server_folders import Unavailable
from server_packages import find_programs
from server_releases import RELEASES_WANTED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLAVOURS = [
    pytest.param("mysql", marks=pytest.mark.mysql),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]


def in_new_words(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a corpus with types as newer releases write them."""
    for line in lines_of(path):
        text = json.dumps(line).replace("/*!100301 COMPRESSED", "/*M!100301 COMPRESSED")
        yield json.loads(text)


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_random_statements(flavour, tmp_path):
    """After the statements, tables, columns, types and keys are the server's."""
    try:
        template_of(find_programs(flavour))
    except Unavailable as error:
        pytest.skip(f"no {flavour}: {error}")
    out = tmp_path / "out.jsonl.xz"
    seeds = ["random:1", "random:2"]
    assert record_ddl.main([flavour, str(out), *seeds, "--lines", "150"]) == 0
    with lzma.open(out) as file:
        assert file.read(1), f"{seeds} left nothing in the binlog"
    total = Sum()
    subject = Subject(mariadb=flavour == "mariadb")
    found = [str(each) for each in compare(subject, in_new_words(out), total)]
    print(*found, sep="\n")
    assert total.changing > 50
    allowed = total.changing // 50 if os.environ.get(RELEASES_WANTED) else 0
    assert len(found) <= allowed
