"""`canal-server files`: what an installation has for systemd, Prometheus and others."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from canal_server import cli
from canal_server.cli.files.shipped_files import KINDS

DEPLOY = Path(__file__).parents[3] / "deploy"


def files_below(folder):
    """Return the files of a folder by their paths in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind(kind, tmp_path, capsys):
    """Its files are written as the sources have them, and printed."""
    folder = tmp_path / "new/folder"
    assert cli.main(["files", kind, "--to", str(folder)]) == 0
    printed = capsys.readouterr().out
    expected = files_below(DEPLOY / kind)
    found = files_below(folder)
    assert found.keys() == expected.keys()
    if kind != "systemd":
        assert found == expected
    assert all(f"wrote {folder / name}\n" in printed for name in found)
    scripts = [path for path in folder.rglob("*.sh") if path.is_file()]
    assert all(os.access(path, os.X_OK) for path in scripts)
    assert cli.main(["files", kind, "--to", str(folder)]) == 0
    assert "has all files of this version" in capsys.readouterr().out


def test_the_unit_runs_this_installation(tmp_path):
    """Its command is the one beside this Python."""
    assert cli.main(["files", "systemd", "--to", str(tmp_path)]) == 0
    (unit,) = files_below(tmp_path).values()
    (start,) = (
        line for line in unit.decode().splitlines() if line.startswith("ExecStart=")
    )
    command = Path(sys.executable).parent / "canal-server"
    assert start == f"ExecStart={command} start --conf /etc/canal-server"
    before = (DEPLOY / "systemd/canal-server.service").read_text().splitlines()
    changed = set(unit.decode().splitlines()) - set(before)
    assert changed <= {start}


def test_what_was_changed_is_kept(tmp_path, capsys):
    """A file with other content is replaced on request only, else none is written."""
    assert cli.main(["files", "prometheus", "--to", str(tmp_path)]) == 0
    changed, other = sorted(tmp_path.iterdir())
    changed.write_text("groups: []\n")
    other.unlink()
    capsys.readouterr()
    assert cli.main(["files", "prometheus", "--to", str(tmp_path)]) == 1
    shown = capsys.readouterr().err
    assert f"nothing was written, {changed} exists already" in shown
    assert not other.exists()
    options = ["--to", str(tmp_path), "--overwrite", "--json"]
    assert cli.main(["files", "prometheus", *options]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "written": [str(changed), str(other)]
    }
    assert files_below(tmp_path) == files_below(DEPLOY / "prometheus")


def test_list(capsys):
    """Without a kind, all files are listed by kind."""
    assert cli.main(["files"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{kind}: " in f"\n{shown}" for kind in KINDS)
    assert "  canal-server.rules.yml\n" in shown
    assert cli.main(["files", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == list(KINDS)
    assert "canal-server.service" in found["systemd"]["files"]


@pytest.mark.parametrize("options", [["systemd"], ["--to", "folder"]])
def test_half_of_the_options(options, capsys):
    """A kind and a folder belong together."""
    assert cli.main(["files", *options]) == 2
    assert "name a kind and --to DIR" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    """The path and the reason are named."""
    (tmp_path / "file").touch()
    assert cli.main(["files", "bin", "--to", str(tmp_path / "file/folder")]) == 1
    assert f"cannot write {tmp_path}/file/folder/" in capsys.readouterr().err
