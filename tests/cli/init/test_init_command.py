"""`canal-server init`: a conf folder with which a server starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canal_server import cli
from canal_server.config.load import load

CONF = Path(__file__).parents[3] / "conf"


def test_the_sample(tmp_path, capsys):
    """The folder is that of the sources, and what to do next is printed."""
    folder = tmp_path / "etc/canal"
    assert cli.main(["init", "--conf", str(folder)]) == 0
    shown = capsys.readouterr().out
    for name in ("canal.properties", "example/instance.properties"):
        assert (folder / name).read_bytes() == (CONF / name).read_bytes()
        assert f"wrote {folder / name}" in shown
    assert f"canal-server check --conf {folder}\n" in shown
    config = load(folder, {})
    assert [each.destination for each in config.instances] == ["example"]


def test_another_destination(tmp_path, monkeypatch, capsys):
    """The destination has the name that is asked for, and is the only one."""
    folder = tmp_path / "conf"
    monkeypatch.setenv("CANAL_CONF", str(folder))
    assert cli.main(["init", "--destination", "shop", "--json"]) == 0
    written = [str(folder / "canal.properties"), f"{folder}/shop/instance.properties"]
    found = json.loads(capsys.readouterr().out)
    assert found == {"conf": str(folder), "written": written}
    assert [each.destination for each in load(folder, {}).instances] == ["shop"]
    assert not (folder / "example").exists()
    text = (folder / "shop/instance.properties").read_text()
    assert text.startswith('# Settings of the destination "shop"')


def test_nothing_is_replaced(tmp_path, capsys):
    """A folder with settings stays as it is."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "canal.properties").write_text("canal.port = 1\n")
    assert cli.main(["init", "--conf", str(folder)]) == 1
    assert "canal.properties exists already" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["canal.properties"]
    (folder / "canal.properties").unlink()
    (folder / "example").mkdir()
    (folder / "example/instance.properties").write_text("")
    assert cli.main(["init", "--conf", str(folder)]) == 1
    assert "instance.properties exists already" in capsys.readouterr().err
    assert not (folder / "canal.properties").exists()


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "a,b"])
def test_names_that_cannot_be(name, tmp_path, capsys):
    """A name that is no folder of its own is refused."""
    arguments = ["init", "--conf", str(tmp_path / "conf"), "--destination", name]
    assert cli.main(arguments) == 2
    assert "not a name of a destination" in capsys.readouterr().err
    assert not (tmp_path / "conf").exists()
