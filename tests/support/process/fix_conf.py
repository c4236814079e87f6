"""Conf folders for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ACCOUNT = "canal.instance.dbUsername = canal\ncanal.instance.dbPassword = canal\n"
MASTER = f"canal.instance.master.address = db:3306\n{ACCOUNT}"


@pytest.fixture
def make_conf(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a conf folder and returns it.

    `main` is the text of canal.properties, each further argument that of the
    instance with its name.
    """

    def make(main: str = "canal.destinations = example", **instances: str) -> Path:
        folder = tmp_path / "conf"
        folder.mkdir(exist_ok=True)
        (folder / "canal.properties").write_text(main, encoding="latin-1")
        for name, text in (instances or {"example": MASTER}).items():
            (folder / name).mkdir(exist_ok=True)
            (folder / name / "instance.properties").write_text(text, encoding="latin-1")
        return folder

    return make
