"""A server process whose settings come from a canal-admin."""

from __future__ import annotations

import pytest
from fix_conf import MASTER
from recorded_canal_admin import RecordedCanalAdmin, hash_of

from canal_server.daemon.control import ask

SERVER = """canal.port = 0
canal.metrics.pull.port = -1
canal.auto.scan = true
canal.auto.scan.interval = 1
canal.instance.global.mode = manager
"""


@pytest.fixture
def admin():
    """Give a canal-admin with one destination; its port stays the same."""
    admin = RecordedCanalAdmin(SERVER, shop=MASTER)
    with admin.serving():
        pass
    return admin


@pytest.fixture
def conf(admin, tmp_path):
    """Give a conf folder with the settings that stay on the host."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "canal.properties").write_text(
        "canal.register.ip = 127.0.0.1\n"
        f"canal.admin.manager = 127.0.0.1:{admin.port}\n"
        "canal.admin.user = admin\n"
        f"canal.admin.passwd = {hash_of('secret')}\n"
        "canal.http.port = -1\n"
        "canal.admin.port = 0\n"
    )
    return folder


def states_of(conf):
    """Return the destinations of the running server."""
    return [each["destination"] for each in ask(conf, "status")["instances"]]


def test_follows(start_server, conf, admin):
    """Destinations come and go, and a changed canal.properties restarts the stages."""
    with admin.serving(admin.port):
        server = start_server(conf)
        server.read_until("started with")
        assert states_of(conf) == ["shop"]
        pid = ask(conf, "status")["pid"]

        admin.instances["new"] = MASTER
        server.read_until("destination new was added")
        del admin.instances["shop"]
        server.read_until("destination shop was removed")
        assert states_of(conf) == ["new"]

        admin.server = SERVER + "canal.port = many\n"
        line = server.read_until("admin-settings-refused")
        assert "canal.port = many: not a whole number" in line
        assert states_of(conf) == ["new"]

        admin.server = SERVER + "canal.withoutNetty = true\n"
        server.read_until("canal-admin changed canal.properties, restarting")
        server.read_until("started with")
        status = ask(conf, "status")
        assert (status["port"], status["pid"]) == (None, pid)
        assert states_of(conf) == ["new"]
        ask(conf, "stop")
        assert server.wait() == 0


def test_away(start_server, conf, admin):
    """Settings that were fetched once are enough to start; changes follow later."""
    server = start_server(conf)
    assert server.wait() == 1
    assert "cannot reach canal-admin at http://127.0.0.1" in server.log
    assert "Traceback" not in server.log

    with admin.serving(admin.port):
        server = start_server(conf)
        server.read_until("started with")
    server.read_until("admin-settings-unavailable")
    assert states_of(conf) == ["shop"]
    ask(conf, "stop")
    assert server.wait() == 0

    server = start_server(conf)
    assert "using the last ones that it sent" in server.read_until("settings from")
    server.read_until("started with")
    assert states_of(conf) == ["shop"]
    admin.instances["new"] = MASTER
    with admin.serving(admin.port):
        server.read_until("canal-admin provides settings again")
        server.read_until("destination new was added")
        ask(conf, "stop")
        assert server.wait() == 0


def test_invalid_from_the_start(start_server, conf, admin):
    """Settings that cannot be used are an error that names the file and the key."""
    admin.server = SERVER + "canal.port = many\n"
    with admin.serving(admin.port):
        server = start_server(conf)
        assert server.wait() == 2
    assert "canal-admin/canal.properties: canal.port = many" in server.log
