"""`mirror verify` and `mirror plot`: their output where no Spark is needed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")
pytest.importorskip("yaml", reason="the extra `mirror` is not installed")

from canal_server import cli
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.state.run_history import Batch, History

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "copy"
WRONG_SETTINGS = 2


@pytest.fixture
def mirror(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Give a function that runs the command on an empty lake, and returns its text."""
    conf = tmp_path / "mirror.yml"
    settings = {
        "name": NAME,
        "canal": {"servers": "127.0.0.1:1", "destination": "example"},
        "source": {"host": "127.0.0.1", "port": 1, "user": "u", "password": "p"},
        "lake": {"path": str(tmp_path / "lake")},
        "tables": [{"match": r"shop\..*"}],
    }
    conf.write_text(json.dumps(settings))  # JSON is YAML

    def run(*arguments: str, expected: int = 0) -> str:
        assert cli.main(["mirror", *arguments, "--conf", str(conf)]) == expected
        output = capsys.readouterr()
        return output.out + output.err

    return run


def test_verify_without_tables(mirror) -> None:
    """A mirror that knows no table has nothing to compare; names have two parts."""
    assert mirror("verify") == "the mirror has no tables yet\n"
    output = mirror("verify", "orders", ".x", expected=WRONG_SETTINGS)
    assert "table orders: expected schema.table" in output
    assert "table .x: expected schema.table" in output


def test_plot(mirror, tmp_path: Path) -> None:
    """The history is printed and plotted; a picture that cannot be written fails."""
    assert "no batch" in mirror("plot")
    lake = LakeSettings(path=str(tmp_path / "lake"))
    history = History(open_folder(lake, f"_mirror/{NAME}"))
    for number in range(60):
        at_ms = 1_800_000_000_000 + 1000 * number
        history.add(Batch(at_ms, number, rows=50, seconds=0.5, delay_ms=700))
    history.flush()
    picture = tmp_path / "delay.svg"
    output = mirror("plot", "--output", str(picture))
    assert "60 batches, 3,000 rows" in output
    assert "median 700 ms" in output
    assert "<svg" in picture.read_text()
    assert "31 batches" in mirror("plot", "--hours", str(30 / 3600))
    nowhere = tmp_path / "no" / "delay.svg"
    output = mirror("plot", "--output", str(nowhere), expected=cli.FAILED)
    assert f"cannot write {nowhere}" in output
