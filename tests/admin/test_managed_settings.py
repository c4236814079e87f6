"""Settings that canal-admin hands out, without a server process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from fix_conf import MASTER
from recorded_canal_admin import RecordedCanalAdmin, hash_of

from canal_server.admin.managed_settings import ManagedSettings
from canal_server.admin.settings_client import SettingsError
from canal_server.cli.start import managed_settings
from canal_server.config.load import (
    InstanceLoader,
    listed_destinations,
    load,
    load_data_dir,
    load_managed,
)
from canal_server.errors import ConfigError

SERVER = """canal.port = 0
canal.auto.scan = true
canal.instance.global.mode = manager
canal.instance.global.spring.xml = classpath:spring/file-instance.xml
"""
LOCAL = f"""canal.register.ip = 127.0.0.1
canal.admin.port = 11110
canal.admin.user = admin
canal.admin.passwd = {hash_of("secret")}
"""


@pytest.fixture
def admin():
    """Give a canal-admin with a server and one destination."""
    admin = RecordedCanalAdmin(SERVER, shop=MASTER)
    with admin.serving():
        yield admin


@pytest.fixture
def conf(admin, tmp_path):
    """Give a conf folder that names the canal-admin."""
    folder = tmp_path / "conf"
    folder.mkdir()
    write(folder, admin)
    return folder


def write(folder, admin, more=""):
    """Write canal.properties."""
    manager = f"canal.admin.manager = 127.0.0.1:{admin.port}\n"
    (folder / "canal.properties").write_text(LOCAL + manager + more)


def settings_of(conf):
    """Return the settings as `start` uses them."""
    managed = load_managed(conf, {})
    assert managed is not None
    return ManagedSettings(
        managed, lambda: load(conf, {}), lambda: listed_destinations(conf, {})
    )


def test_fetched(conf, admin):
    """All is fetched once, and read as if it were in the conf folder."""
    settings = settings_of(conf)
    assert not settings.has_copy
    changes = settings.fetch()
    assert changes.server
    assert changes.destinations
    config = load(conf, {})
    assert config.destinations == ("shop",)
    assert config.server.port == 0
    assert config.instances_managed
    # The data stays where it would be without canal-admin.
    assert config.data_dir == conf
    assert config.instances[0].position.data_dir == conf
    assert "no destinations" not in "".join(config.warnings)
    admin.requests.clear()
    assert settings.fetch() == type(changes)()
    md5s = {path: query["md5"] for path, query in admin.requests}
    assert all(md5s.values())


def test_only_for_the_owner(conf):
    """The copy has passwords: others cannot read it."""
    before = os.umask(0)
    try:
        settings_of(conf).fetch()
    finally:
        os.umask(before)
    copy = conf / "canal-admin"
    paths = [copy, *copy.rglob("*")]
    assert len(paths) > 1
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_local_settings_count_more(conf, admin):
    """A key of the local file overrides that of canal-admin."""
    write(conf, admin, "canal.port = 4711\n")
    settings_of(conf).fetch()
    assert load(conf, {}).server.port == 4711


def test_registered(conf, admin):
    """A server that canal-admin does not know is an error, or is added."""
    admin.is_registered = False
    with pytest.raises(SettingsError, match=r"does not know this server.*auto"):
        settings_of(conf).fetch()
    write(
        conf,
        admin,
        "canal.admin.register.auto = true\ncanal.admin.register.cluster = a & b\n"
        "canal.admin.register.name = one\n",
    )
    with pytest.raises(SettingsError, match="auto cluster : a & b is not found"):
        settings_of(conf).fetch()
    admin.clusters.append("a & b")
    settings_of(conf).fetch()
    _, query = next(each for each in reversed(admin.requests) if "name" in each[1])
    assert query["name"] == "one"
    assert query["ip"] == "127.0.0.1"
    assert query["port"] == "11110"


def test_changes(conf, admin):
    """A changed, a new and a removed destination are in the copy after a round."""
    settings = settings_of(conf)
    settings.fetch()
    admin.instances["shop"] = MASTER + "canal.instance.filter.regex = a\\\\..*\n"
    admin.instances["new"] = MASTER
    assert settings.fetch().destinations
    loader = InstanceLoader(conf, {})
    assert loader.scanned() == ["new", "shop"]
    assert loader.load("shop", ())[0].filter.regex == r"a\..*"
    del admin.instances["shop"]
    assert settings.fetch().destinations
    assert loader.scanned() == ["new"]
    assert not settings.fetch().destinations


def test_listed_by_name(conf, admin):
    """Without a scan, the destinations are those that are listed."""
    admin.server = SERVER.replace("scan = true", "scan = false") + (
        "canal.destinations = shop\n"
    )
    admin.instances["other"] = MASTER
    settings_of(conf).fetch()
    assert load(conf, {}).destinations == ("shop",)


def test_characters(conf, admin):
    """Texts are UTF-8 in canal-admin, and keep their characters here."""
    admin.instances["shop"] = f"# Grüße, 你好, 😀\n{MASTER}canal.user = 你😀\n"
    settings_of(conf).fetch()
    path = conf / "canal-admin" / "instances" / "shop" / "instance.properties"
    assert path.read_bytes().isascii()
    assert r"canal.user = \u4F60\uD83D\uDE00" in path.read_text()


def test_invalid_server_settings(conf, admin):
    """A changed canal.properties that cannot be used leaves the one before."""
    settings = settings_of(conf)
    settings.fetch()
    admin.server = SERVER + "canal.server.connections.max = many\n"
    changes = settings.fetch()
    assert not changes.server
    assert "connections.max = many: not a whole number" in changes.refused
    assert load(conf, {}).destinations == ("shop",)
    assert not settings.fetch().refused  # it is the same text still
    # Nor one with which a destination no longer starts.
    admin.server = SERVER + "canal.instance.memory.buffer.size = 5\n"
    assert "not a power of two" in settings.fetch().refused
    assert load(conf, {}).destinations == ("shop",)
    admin.server = SERVER + "canal.instance.memory.buffer.size = 1024\n"
    assert settings.fetch().server


def test_invalid_destination(conf, admin):
    """A destination with invalid settings does not keep the others from starting."""
    admin.instances["bad"] = "canal.instance.master.address = ,\n"
    settings_of(conf).fetch()
    config = load(conf, {})
    assert config.destinations == ("shop",)
    assert any(
        "bad" in each and each.endswith("; it does not start")
        for each in config.warnings
    )


@pytest.mark.parametrize("name", ["..", "a/b", "x" * 101])
def test_impossible_names(conf, admin, name):
    """A name that is no folder is refused, and writes nothing elsewhere."""
    admin.instances[name] = MASTER
    with pytest.raises(SettingsError, match="cannot be used; rename it"):
        settings_of(conf).fetch()
    assert not (conf / "canal-admin" / "instance.properties").exists()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"<html>login</html>", "200 OK, which is not an answer of canal-admin"),
        (b"[]", "not an answer of canal-admin"),
        (b'{"code": 20000, "data": {"content": 5}}', "settings that are not text"),
        (b'{"code": 1, "message": "no\\u001b[31m", "data": null}', r"no\?\[31m"),
    ],
    ids=["page", "list", "number", "control characters"],
)
def test_other_answers(conf, admin, raw, said):
    """What is no answer of a canal-admin is an error that says so."""
    admin.raw = raw
    with pytest.raises(SettingsError, match=said):
        settings_of(conf).fetch()


def test_stored_later(conf, admin):
    """What could not be written is asked for again, though it did not change."""
    settings = settings_of(conf)
    settings.fetch()
    admin.instances["new"] = MASTER
    path = conf / "canal-admin" / "instances" / "new"
    path.write_text("a file where the folder has to be")
    with pytest.raises(SettingsError, match="cannot store the settings"):
        settings.fetch()
    path.unlink()
    assert settings.fetch().destinations
    assert load(conf, {}).destinations == ("new", "shop")


def test_relative_conf_folder(conf, monkeypatch, admin):
    """Changes are read from the same folder when the process is in another one."""
    monkeypatch.chdir(conf.parent)
    settings = managed_settings(Path(conf.name)).settings
    assert settings is not None
    monkeypatch.chdir("/")
    admin.server = f"{SERVER}canal.server.connections.max = 7\n"
    assert settings.fetch().server
    assert load(conf, {}).server.connections_max == 7


@pytest.mark.parametrize(
    "local",
    [f"canal.admin.manager = {'x' * 70}.example:1", "canal.admin.user = \\u4F60"],
    ids=["host", "user"],
)
def test_what_cannot_be_sent(conf, admin, local):
    """A host or user that HTTP cannot have is an error without a traceback."""
    write(conf, admin, f"{local}\n")
    with pytest.raises(SettingsError, match="cannot reach canal-admin"):
        settings_of(conf).fetch()


@pytest.mark.parametrize(
    "address",
    ["ops:word@host:1", "host:1?a=word", "host:1#word", "ftp://word/"],
    ids=["login", "query", "fragment", "scheme"],
)
def test_no_address(conf, admin, address):
    """More than an address is refused; it may hold a password, which is not shown."""
    write(conf, admin, f"canal.admin.manager = {address}\n")
    with pytest.raises(ConfigError, match=r"canal\.admin\.manager") as caught:
        load_managed(conf, {})
    assert "word" not in str(caught.value)


def test_wrong_password(conf, admin):
    """The refusal names the cause; the password's hash is nowhere in it."""
    admin.passwd = hash_of("other")
    with pytest.raises(SettingsError, match="auth :admin is failed") as caught:
        settings_of(conf).fetch()
    assert hash_of("secret") not in str(caught.value)


def test_out_of_reach(conf, admin):
    """Without an answer, the copy of before is used."""
    settings_of(conf).fetch()
    (conf / "canal.properties").write_text(
        LOCAL + "canal.admin.manager = 127.0.0.1:1\n"
    )
    settings = settings_of(conf)
    with pytest.raises(SettingsError, match="cannot reach canal-admin at"):
        settings.fetch()
    assert settings.has_copy
    assert load(conf, {}).destinations == ("shop",)


def test_nothing_fetched_yet(conf):
    """Before the first fetch, commands say how to get the settings."""
    with pytest.raises(ConfigError, match="nothing was fetched from canal-admin"):
        load(conf, {})
    assert load_data_dir(conf, {}) == conf


def test_no_password(conf, admin):
    """A canal-admin hands out nothing without a password: the key is named."""
    (conf / "canal.properties").write_text(
        f"canal.admin.manager = 127.0.0.1:{admin.port}\n"
    )
    with pytest.raises(ConfigError, match=r"canal\.admin\.passwd"):
        load_managed(conf, {})


def test_local_instances(conf, admin):
    """In mode spring, instances are in the conf folder; the rest is canal-admin's."""
    admin.server = SERVER.replace("manager", "spring")
    settings_of(conf).fetch()
    (conf / "mine").mkdir()
    (conf / "mine" / "instance.properties").write_text(MASTER)
    config = load(conf, {})
    assert config.destinations == ("mine",)
    assert not config.instances_managed


def test_without_a_manager(make_conf):
    """A conf folder without canal-admin has no managed settings."""
    assert load_managed(make_conf(), {}) is None
