"""What is checked of this machine: real folders, ports and processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from fix_conf import ACCOUNT

from canal_server import cli
from canal_server.cli.check.host_checks import (
    FREE_BYTES_LOW,
    FREE_BYTES_MIN,
    Running,
    check_http_port,
    check_metrics_port,
    check_open_ports,
    check_port,
    data_folder,
    disk,
    time_zone,
)
from canal_server.config.schema import ServerConfig
from canal_server.model.check_results import Outcome

NOWHERE = f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"
MAIN = "canal.destinations = example\ncanal.ip = 127.0.0.1\n"


@pytest.fixture
def check(capsys):
    """Return a function that runs the command: its exit status, and results by name."""

    def run(conf, *arguments):
        status = cli.main(["check", "--conf", str(conf), "--json", *arguments])
        found = {}
        for each in json.loads(capsys.readouterr().out)["checks"]:
            message = "; ".join(filter(None, (each["text"], each["remedy"])))
            subject = "server" if each["subject"] == "server" else "other"
            found[subject, each["check"]] = (each["outcome"], message)
        return status, found

    return run


@pytest.fixture
def used_port():
    """Give a port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


# --- TLS ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "outcome", "text"),
    [
        (300, "ok", "the certificate is valid until 2"),
        (10, "warn", "the certificate is valid until 2"),
        (-1, "fail", "the certificate expired at 2"),
    ],
)
def test_a_certificate(make_conf, check, authority, days, outcome, text):  # noqa: PLR0917
    """Its end is shown, and near or past it is a warning or a failure."""
    cert, key = authority.issue("server", days=days)
    conf = make_conf(
        f"{MAIN}canal.tls.certFile = {cert}\ncanal.tls.keyFile = {key}\n",
        example=NOWHERE,
    )
    _, found = check(conf)
    assert found["server", "tls"][0] == outcome
    assert text in found["server", "tls"][1]


def test_a_missing_certificate(make_conf, check):
    """The key and the file are named."""
    conf = make_conf(f"{MAIN}canal.tls.certFile = missing.pem\n", example=NOWHERE)
    _, found = check(conf)
    outcome, message = found["server", "tls"]
    assert outcome == "fail"
    assert message.startswith(f"canal.tls.certFile = {conf}/missing.pem: cannot read")


# --- the data folder ------------------------------------------------------------------


def test_a_data_folder_that_is_a_file(make_conf, tmp_path, check):
    """The key, the path and what is in the way are named."""
    (tmp_path / "file").touch()
    data = f"canal.file.data.dir = {tmp_path}/file/data"
    conf = make_conf(f"{MAIN}{data}", example=NOWHERE)
    status, found = check(conf)
    outcome, message = found["server", "data_folder"]
    assert (status, outcome) == (1, "fail")
    assert message == (
        f"canal.file.data.dir = {tmp_path}/file/data: {tmp_path}/file is not a folder;"
        " set another canal.file.data.dir"
    )
    outcome, message = found["other", "table_history"]
    assert outcome == "fail"
    assert "tablemeta.sqlite cannot be created" in message


def test_a_folder_that_will_be_created(make_conf, tmp_path, check):
    """A folder that does not exist can be created where the one above can be written.

    The check itself creates nothing.
    """
    conf = make_conf(f"{MAIN}canal.file.data.dir = {tmp_path}/a/b", example=NOWHERE)
    _, found = check(conf)
    outcome, message = found["server", "data_folder"]
    assert outcome == "ok"
    assert message.endswith("does not exist and can be created")
    assert not (tmp_path / "a").exists()


def test_a_folder_of_somebody_else(tmp_path, monkeypatch):
    """A folder that this user cannot write is named."""
    # Root, who may run the tests, may write everywhere.
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = data_folder(tmp_path, tmp_path, None)
    assert found.outcome is Outcome.FAIL
    assert "cannot be written by this user" in found.text


def test_the_folder_of_our_own_server(make_conf, start_server, check):
    """While the server of the conf folder runs, its folder and port are its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conf = make_conf(f"{MAIN}canal.port = {port}\n", example=NOWHERE)
    server = start_server(conf)
    server.read_until("canal-server 0")
    _, found = check(conf)
    pid = server.process.pid
    outcome, message = found["server", "data_folder"]
    assert outcome == "ok"
    assert message.endswith(f"is in use by this server (process {pid})")
    assert found["server", "port"] == (
        "ok",
        f"canal.port = {port} is held by this server (process {pid})",
    )


def test_the_folder_of_another_server(make_conf, tmp_path, start_server, check):
    """A data folder that the server of another conf folder uses is named with it."""
    data = f"canal.file.data.dir = {tmp_path}/data\ncanal.port = 0\n"
    conf = make_conf(f"{MAIN}{data}", example=NOWHERE)
    other = shutil.copytree(conf, tmp_path / "other")
    server = start_server(other)
    server.read_until("canal-server 0")
    status, found = check(conf)
    outcome, message = found["server", "data_folder"]
    assert (status, outcome) == (1, "fail")
    pid = server.process.pid
    assert f"the server of {other} (process {pid}) uses it; stop that server" in message


def test_a_server_that_does_not_answer(make_conf, start_server, check, monkeypatch):
    """A paused server holds the folder; its process and the remedy are named."""
    monkeypatch.setattr("canal_server.cli.check.host_checks.ANSWER_S", 0.2)
    conf = make_conf(f"{MAIN}canal.port = 0\n", example=NOWHERE)
    server = start_server(conf)
    server.read_until("canal-server 0")
    server.freeze()
    status, found = check(conf)
    outcome, message = found["server", "data_folder"]
    assert (status, outcome) == (1, "fail")
    assert f"its process {server.process.pid} is paused" in message


@pytest.mark.parametrize(
    ("free", "outcome"),
    [
        (FREE_BYTES_MIN - 1, Outcome.FAIL),
        (FREE_BYTES_MIN, Outcome.WARN),
        (FREE_BYTES_LOW - 1, Outcome.WARN),
        (FREE_BYTES_LOW, Outcome.OK),
    ],
)
def test_free_space(free, outcome):
    """Less than 64 MiB is too little, less than 1 GiB worth a warning."""
    found = disk(Path("/data"), free)
    assert found.outcome is outcome
    assert "are free for /data" in found.message
    assert bool(found.remedy) == (outcome is not Outcome.OK)


# --- ports ----------------------------------------------------------------------------


def test_a_port_in_use(make_conf, used_port, check, monkeypatch):
    """The port for clients is needed; without the others a server starts."""
    for name in ("CANAL_METRICS_PULL_PORT", "CANAL_HTTP_PORT"):
        monkeypatch.delenv(name)
    conf = make_conf(
        f"{MAIN}canal.port = {used_port}\ncanal.metrics.pull.port = {used_port}\n"
        f"canal.http.port = {used_port}\n",
        example=NOWHERE,
    )
    status, found = check(conf)
    outcome, message = found["server", "port"]
    assert (status, outcome) == (1, "fail")
    assert f"cannot listen on 127.0.0.1:{used_port}: Address already in use" in message
    for name, key in (
        ("metrics_port", "canal.metrics.pull.port"),
        ("http_port", "canal.http.port"),
    ):
        outcome, message = found["server", name]
        assert outcome == "warn"
        assert f"{key} = {used_port}: cannot listen on" in message
        assert message.endswith(f"set another {key}, or -1 for none")


def test_an_address_of_another_machine(make_conf, check):
    """`canal.ip` must be an address of this machine."""
    conf = make_conf(
        "canal.destinations = example\ncanal.ip = 192.0.2.1\n"
        "canal.anonymous.enable = true\n",
        example=NOWHERE,
    )
    _, found = check(conf)
    outcome, message = found["server", "port"]
    assert outcome == "fail"
    assert "canal.ip" in message


OURS = Running(7, "/conf", 11111, 11112, 11113)


@pytest.mark.parametrize(
    ("config", "running", "texts"),
    [
        (
            ServerConfig(listen=False, metrics_port=-1, http_port=-1),
            None,
            (
                "no port for clients is opened",
                "canal.metrics.pull.port = -1: turned off",
                "canal.http.port = -1: turned off",
            ),
        ),
        (
            ServerConfig(port=0, metrics_port=0, http_port=0),
            None,
            (
                "canal.port = 0: any free port",
                "canal.metrics.pull.port = 0: any free port",
                "canal.http.port = 0: any free port",
            ),
        ),
        (
            ServerConfig(),
            OURS,
            (
                "canal.port = 11111 is held by this server (process 7)",
                "canal.metrics.pull.port = 11112 is held by this server",
                "canal.http.port = 11113 is held by this server",
            ),
        ),
    ],
)
def test_ports_that_need_no_check(config, running, texts):
    """Ports that nobody opens, that are chosen later, or that are our own."""
    checks = (check_port, check_metrics_port, check_http_port)
    found = [check(config, running) for check in checks]
    assert tuple(each.text for each in found) == texts
    assert {each.outcome for each in found} == {Outcome.OK}


def test_ports_that_are_open(make_conf, check, monkeypatch):
    """Each port that others may read without a login is a warning with its keys."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    conf = make_conf(f"{MAIN}canal.http.ip = 0.0.0.0\n", example=NOWHERE)
    _, found = check(conf)
    outcome, message = found["server", "open_page"]
    assert outcome == "warn"
    assert "canal.http.ip = 0.0.0.0: anyone who can reach 0.0.0.0" in message
    assert "set canal.http.user" in message
    assert ("server", "open_metrics") not in found
    server = ServerConfig(ip="192.0.2.1", passwd="x")
    (metrics,) = check_open_ports(server)
    assert metrics.text.startswith("canal.ip = 192.0.2.1: anyone who can reach it")


def test_a_port_for_canal_admin_that_stays_closed():
    """A public password and a file of users are a warning with the key."""
    server = ServerConfig(ip="127.0.0.1", admin_port=1, users_file=Path("users.yml"))
    (closed,) = check_open_ports(server)
    assert closed.text.startswith("canal.admin.port = 1: stays closed")
    assert "canal.admin.passwd" in closed.remedy
    assert not list(check_open_ports(replace(server, admin_passwd="ab" * 20)))


# --- the time zone, and ZooKeeper -----------------------------------------------------


def test_time_zones():
    """A zone without a name is worth a warning, with the variable that gives it one."""
    assert time_zone("Europe/Berlin").outcome is Outcome.OK
    found = time_zone("")
    assert found.outcome is Outcome.WARN
    assert found.remedy == "set the environment variable TZ, such as TZ=UTC"
    found = time_zone("", "Europe/Berlim")
    assert found.outcome is Outcome.WARN
    assert found.text == (
        "TZ=Europe/Berlim is no time zone of this machine: TIMESTAMP columns are"
        " written in UTC"
    )


def test_a_zookeeper_that_does_not_answer(make_conf, check, monkeypatch):
    """Its address is named with the key; so is that positions cannot be read there."""
    monkeypatch.setattr("canal_server.cli.check.host_checks.ANSWER_S", 0.2)
    monkeypatch.setattr("canal_server.position.offline.CONNECT_S", 0.2)
    conf = make_conf(
        f"{MAIN}canal.port = 0\ncanal.zkServers = 127.0.0.1:1\n"
        "canal.instance.global.spring.xml = default-instance.xml\n",
        example=NOWHERE,
    )
    status, found = check(conf)
    outcome, message = found["server", "zookeeper"]
    assert (status, outcome) == (1, "fail")
    assert "127.0.0.1:1 did not answer" in message
    assert "check canal.zkServers" in message
    assert found["other", "stored_positions"][0] == "fail"


# --- settings -------------------------------------------------------------------------


def test_invalid_settings(make_conf, capsys):
    """All problems are listed, the rest is skipped, and the exit status is 2."""
    conf = make_conf(
        "canal.destinations = one,two\ncanal.port = many\n",
        one="canal.instance.master.address = 127.0.0.1:1\n",
        two=f"{NOWHERE}canal.instance.filter.regex = (\n",
    )
    assert cli.main(["check", "--conf", str(conf)]) == 2
    lines = capsys.readouterr().out.splitlines()
    failed = [line for line in lines if line.startswith("FAIL  conf: ")]
    for key in (
        "canal.port = many",
        "canal.instance.dbUsername",
        "canal.instance.dbPassword",
        "canal.instance.filter.regex = (",
    ):
        assert any(key in line for line in failed), key
    assert lines[-1] == (
        "skip  conf: cannot check everything else: the settings are invalid"
    )


def test_a_conf_folder_that_does_not_exist(tmp_path, capsys):
    """It is named with the option, and the exit status is 2."""
    assert cli.main(["check", "--conf", str(tmp_path / "none")]) == 2
    assert f"FAIL  conf: {tmp_path}/none/canal.properties: file not found" in (
        capsys.readouterr().out
    )


def test_one_destination_of_several(make_conf, check, capsys):
    """Invalid settings of another one do not matter; an unknown name is wrong use."""
    conf = make_conf(
        "canal.destinations = one,two\ncanal.port = 0\n", one=NOWHERE, two="\n"
    )
    status, found = check(conf, "--destination", "one")
    assert status == 1
    assert found["other", "reachable"][0] == "fail"
    conf = make_conf("canal.destinations = one\ncanal.port = 0\n", one=NOWHERE)
    assert cli.main(["check", "--conf", str(conf), "--destination", "three"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "--destination three: not configured" in printed.err


def test_warnings_of_settings(make_conf, capsys):
    """What a start logs about the settings is a warning here."""
    conf = make_conf(f"{MAIN}canal.port = 0\ncanal.no.such.key = 1\n", example=NOWHERE)
    assert cli.main(["check", "--conf", str(conf)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(
        line.startswith("warn  conf: ") and "canal.no.such.key" in line
        for line in lines
    )


def test_the_conf_folder_under_another_path(tmp_path):
    """A link to the conf folder is the same folder, and no other server uses it."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "link").symlink_to("conf")
    running = Running(7, str(tmp_path / "conf"), None, None)
    found = data_folder(tmp_path, tmp_path / "link", running)
    assert found.outcome is Outcome.OK
    assert "in use by this server (process 7)" in found.text
