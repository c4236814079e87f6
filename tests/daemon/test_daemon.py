"""The process: its parts in one process, and whole processes with signals."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import socket
import subprocess
import sys
import time

import pytest
from fix_conf import ACCOUNT
from fix_daemon import SAME_SIGNAL, STOP_TIMEOUT, FakeInstance, Makes, child_environ
from fix_store import eventually

from canal_server.config.load import load
from canal_server.daemon import control
from canal_server.daemon.daemon import Daemon
from canal_server.errors import ConfigError
from canal_server.runtime.lifecycle import Deadline

LONG = 60.0  # seconds; never waited for unless something hangs
MAIN = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = "
MASTER = f"canal.instance.master.address = db:3306\n{ACCOUNT}"


@contextlib.contextmanager
def running(conf, make_instance=FakeInstance):
    """Run a daemon in this process."""
    daemon = Daemon(load(conf, {}), make_instance)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.request_stop()
        daemon.join(Deadline(LONG))


class TestDaemon:
    """All stages together."""

    def test_it_serves_clients_and_control(self, make_conf):
        """A started process accepts connections on its port and reports its status."""
        conf = make_conf(MAIN + "example")
        with running(conf) as daemon:
            with socket.create_connection(("127.0.0.1", daemon.port), LONG) as client:
                assert client.recv(4)
            reply = control.ask(conf, "status")
        assert reply["port"] == daemon.port > 0
        assert reply["stopping"] is False
        assert [one["destination"] for one in reply["instances"]] == ["example"]

    def test_ports_that_are_open(self, make_conf, caplog):
        """The page and metrics beyond loopback without a login are warnings."""
        more = "canal.http.ip = 0.0.0.0\ncanal.http.port = 0\ncanal.metrics.ip = ::\n"
        conf = make_conf(f"{MAIN}example\n{more}canal.metrics.pull.port = 0\n")
        with running(conf):
            pass
        names = [getattr(each, "message_name", "") for each in caplog.records]
        assert names.count("page-is-open") == names.count("metrics-are-open") == 1

    def test_canal_admin_in_clear_text(self, make_conf, caplog, authority):
        """A port for canal-admin that others reach is a warning with required TLS."""
        files = authority.server()
        conf = make_conf(
            f"canal.ip =\ncanal.port = 0\ncanal.destinations = example\n"
            f"canal.admin.port = 0\ncanal.admin.passwd = {'ab' * 20}\n"
            f"canal.tls.certFile = {files.cert_file}\ncanal.tls.required = true\n"
            f"canal.tls.keyFile = {files.key_file}\n"
        )
        with running(conf):
            pass
        names = [getattr(each, "message_name", "") for each in caplog.records]
        assert names.count("admin-port-in-clear-text") == 1

    def test_no_port(self, make_conf):
        """canal.withoutNetty opens no port."""
        conf = make_conf(f"{MAIN}example\ncanal.withoutNetty = true\n")
        with running(conf):
            assert control.ask(conf, "status")["port"] is None

    def test_stop_on_the_control_socket(self, make_conf):
        """A stop command on the socket wakes the main thread."""
        conf = make_conf(MAIN + "example")
        with running(conf) as daemon:
            assert not daemon.stop.requested()
            assert control.ask(conf, "stop")["ok"]
            assert daemon.stop.requested()

    def test_a_start_that_fails_ends_what_it_began(self, make_conf):
        """A port in use is an error that names it; the lock is released."""
        makes = Makes()
        with socket.create_server(("127.0.0.1", 0)) as occupied:
            port = occupied.getsockname()[1]
            conf = make_conf(f"{MAIN}example\ncanal.port = {port}\n")
            daemon = Daemon(load(conf, {}), makes)
            with pytest.raises(ConfigError, match=str(port)):
                daemon.start()
        assert makes.calls() == {"example": []}
        assert not (conf / control.SOCKET_NAME).exists()

    def test_a_stage_that_does_not_end_is_named(self, make_conf, caplog):
        """The log names the instance that did not end, and `join` returns it."""
        conf = make_conf(MAIN + "stuck, a", stuck=MASTER, a=MASTER)
        makes = Makes()
        daemon = Daemon(load(conf, {}), makes)
        daemon.start()
        daemon.request_stop()
        assert daemon.join(Deadline(0.05)) is False
        assert "destination stuck did not stop in time" in caplog.text
        assert "the instances did not stop in time" in caplog.text
        # Its thread would continue to log that, during other tests.
        for instance in makes.made:
            instance.freed.set()
        assert daemon.join(Deadline(LONG)) is True

    def test_a_stage_that_ends_badly_is_named(self, make_conf, caplog):
        """The log does not call it late, and the stages before it end, too."""
        conf = make_conf(MAIN + "unwritten", unwritten=MASTER)
        daemon = Daemon(load(conf, {}), Makes())
        daemon.start()
        daemon.request_stop()
        assert daemon.join(Deadline(LONG)) is False
        assert (
            "the instances failed during shutdown: cannot write the cursors"
            in caplog.text
        )
        assert "in time" not in caplog.text
        assert not (conf / control.SOCKET_NAME).exists()

    def test_warnings_are_logged(self, make_conf, caplog):
        """The log has the warnings about the settings."""
        conf = make_conf(f"{MAIN}example\ncanal.prot = 1\n")
        with caplog.at_level(logging.WARNING), running(conf):
            pass
        assert (
            "canal.prot: unknown key, ignored; did you mean canal.port?" in caplog.text
        )

    @pytest.mark.parametrize(
        ("settings", "warns"),
        [
            ("canal.ip =", True),
            ("canal.ip = 127.0.0.1", False),
            ("canal.ip =\ncanal.passwd = " + "0" * 40, False),
            ("canal.ip =\ncanal.withoutNetty = true", False),
            ("canal.ip =\ncanal.anonymous.enable = true", False),
        ],
    )
    def test_a_port_open_to_everybody(self, make_conf, caplog, settings, warns):
        """Without an address and a password one warning names both keys."""
        conf = make_conf(f"{MAIN}example\n{settings}\n")
        with caplog.at_level(logging.WARNING), running(conf):
            pass
        messages = [each for each in caplog.messages if "anyone who" in each]
        assert len(messages) == warns
        assert all("canal.ip" in each and "canal.passwd" in each for each in messages)


class TestProcess:
    """Whole processes."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_a_signal_ends_it_cleanly(self, make_conf, start_server, number):
        """1. start; 2. one signal. It logs it, ends with status 0, leaves no socket."""
        conf = make_conf(MAIN + "example")
        server = start_server(conf)
        server.read_until("canal-server 0")
        server.process.send_signal(number)
        assert server.wait() == 0
        assert f"received {number.name}, shutting down" in server.log
        assert server.log.endswith("shut down\n")
        assert not (conf / control.SOCKET_NAME).exists()

    def test_log_files(self, make_conf, tmp_path):
        """With the options, lines of JSON are in files, and standard error is empty."""
        conf = make_conf(MAIN + "example", example=MASTER)
        options = ("--log-format", "json", "--log-dir", str(tmp_path / "logs"))
        command = ("-m", "canal_server", "start", "--conf", str(conf), *options)
        process = subprocess.Popen(
            [sys.executable, *command], stderr=subprocess.PIPE, env=child_environ()
        )
        eventually((conf / control.SOCKET_NAME).exists)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, b"")
        for name, text in (("canal", "shut down"), ("example", "example started")):
            lines = (tmp_path / f"logs/{name}/{name}.log").read_text().splitlines()
            messages = [json.loads(line)["message"] for line in lines]
            assert any(text in message for message in messages), messages

    def test_a_second_signal_forces(self, make_conf, start_server):
        """1. start; 2. a signal, an instance is stuck; 3. another one. It ends at 3."""
        conf = make_conf(MAIN + "stuck", stuck=MASTER)
        server = start_server(conf, **{STOP_TIMEOUT: str(LONG)})
        server.read_until("canal-server 0")
        server.process.send_signal(signal.SIGTERM)
        server.read_until("received SIGTERM")
        while server.process.poll() is None:  # for a moment it counts as the first
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        assert server.wait() == 128 + signal.SIGTERM
        assert server.log.endswith("ended by a second signal\n")

    def test_a_signal_that_comes_twice_is_one(self, make_conf, start_server):
        """1. start; 2. a signal, an instance is stuck; 3. the same again soon after.

        As `timeout` and others send it: to the process, then to its group. It ends
        when the time to stop is over.
        """
        conf = make_conf(MAIN + "stuck", stuck=MASTER)
        times = {STOP_TIMEOUT: "0.3", SAME_SIGNAL: str(LONG)}
        server = start_server(conf, **times)
        server.read_until("canal-server 0")
        server.process.send_signal(signal.SIGTERM)
        server.read_until("received SIGTERM")
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 1
        assert "second signal" not in server.log

    def test_a_stuck_instance_is_left_behind(self, make_conf, start_server):
        """1. start; 2. a signal, an instance is stuck. It ends with status 1."""
        conf = make_conf(MAIN + "stuck", stuck=MASTER)
        server = start_server(conf, **{STOP_TIMEOUT: "0.1"})
        server.read_until("canal-server 0")
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 1
        assert "destination stuck did not stop in time" in server.log

    def test_a_broken_instance_does_not_end_it(self, make_conf, start_server):
        """1. start with an instance that fails. The process serves the other one."""
        conf = make_conf(MAIN + "broken, a", broken=MASTER, a=MASTER)
        server = start_server(conf)
        server.read_until("canal-server 0")
        reply = control.ask(conf, "status")
        assert [one["running"] for one in reply["instances"]] == [False, True]
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0

    def test_a_port_in_use(self, make_conf, start_server):
        """1. start on a port in use. One clear line, status not 0."""
        with socket.create_server(("127.0.0.1", 0)) as occupied:
            port = occupied.getsockname()[1]
            conf = make_conf(f"{MAIN}example\ncanal.port = {port}\n")
            server = start_server(conf)
            assert server.wait() == 2
        assert f"{port}" in server.log.splitlines()[-1]
        assert "Traceback" not in server.log

    def test_two_servers_on_one_folder(self, make_conf, start_server):
        """1. start; 2. start again. The second one is refused, the first continues."""
        conf = make_conf(MAIN + "example")
        first = start_server(conf)
        first.read_until("canal-server 0")
        second = start_server(conf)
        assert second.wait() == 1
        assert f"(process {first.process.pid})" in second.log
        assert control.ask(conf, "status")["pid"] == first.process.pid

    def test_settings_that_cannot_be_used(self, make_conf, start_server):
        """1. start with wrong settings. Status 2, each one reported, no traceback."""
        conf = make_conf(
            f"{MAIN}example\ncanal.serverMode = rocketMQ\n",
            example="canal.instance.standby.address = a,b:3306\n"
            "canal.instance.filter.regex = ${TABLES}\n",
        )
        server = start_server(conf)
        assert server.wait() == 2
        messages = server.log.splitlines()
        for problem in (
            "canal.serverMode = rocketMQ: RocketMQ is not supported",
            "canal.instance.master.address = ",
            "canal.instance.standby.address = a,b:3306: contains several servers",
            "canal.instance.filter.regex = ${TABLES}: ${TABLES} is not set",
            "canal.instance.dbUsername = : not set; set a MySQL account",
            "canal.instance.dbPassword = : not set",
        ):
            (line,) = (line for line in messages if problem in line)
            messages.remove(line)
        assert messages == []
