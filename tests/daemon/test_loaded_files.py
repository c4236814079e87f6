"""Changed files of settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from fix_conf import ACCOUNT
from fix_daemon import FakeInstance

from canal_server.config.load import load
from canal_server.daemon.daemon import Daemon
from canal_server.daemon.loaded_files import LoadedFiles

if TYPE_CHECKING:
    from canal_server.daemon.destination_life import MakeInstance

MAIN = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = one\n"
MASTER = f"canal.instance.master.address = db:3306\n{ACCOUNT}"


def test_content_counts(tmp_path):
    """A file that is written again with the same content has not changed."""
    file, absent = tmp_path / "a", tmp_path / "b"
    file.write_text("x = 1")
    loaded = LoadedFiles([file, absent])
    assert loaded.changed() == []
    os.utime(file, ns=(1, 1))
    assert loaded.changed() == []
    file.write_text("x = 2")
    assert loaded.changed() == [str(file)]
    absent.write_text("")
    assert loaded.changed() == [str(file), str(absent)]
    file.write_text("x = 1")
    absent.unlink()
    assert loaded.changed() == []
    file.unlink()
    assert loaded.changed() == [str(file)]


def test_what_the_watch_applies_needs_no_restart(make_conf):
    """With automatic scans only `canal.properties` is named, else destinations too."""
    for scans, named in (("false", 2), ("true", 1)):
        conf = make_conf(f"{MAIN}canal.auto.scan = {scans}", one=MASTER)
        daemon = Daemon(load(conf, {}), cast("MakeInstance", FakeInstance))
        for file in (conf / "canal.properties", conf / "one/instance.properties"):
            file.write_text(file.read_text() + "\n# changed")
        changed = daemon.status()["changed_settings"]
        assert isinstance(changed, list)
        assert len(changed) == named
        assert changed[0] == str(conf / "canal.properties")
