"""The process: its parts in one process, and whole processes with signals."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
import time
from dataclasses import replace

import pytest
from fix_daemon import SAME_SIGNAL, STOP_TIMEOUT, FakeInstance

from canal_server import control
from canal_server.config.load import load
from canal_server.config.schema import InstanceConfig, PositionConfig, Wiring
from canal_server.daemon import Daemon, Destinations
from canal_server.errors import CanalError, ConfigError
from canal_server.lifecycle import Deadline

LONG = 60.0  # seconds; never waited for unless something hangs
MAIN = "canal.ip = 127.0.0.1\ncanal.port = 0\ncanal.destinations = "
MASTER = "canal.instance.master.address = db:3306\n"


def configs(*names, lazy=()):
    """Return configurations of instances."""
    return [InstanceConfig(destination=name, lazy=name in lazy) for name in names]


class Makes:
    """Makes fake instances and remembers them."""

    def __init__(self) -> None:
        self.made: list[FakeInstance] = []

    def __call__(self, config):
        """Make one."""
        self.made.append(FakeInstance(config))
        return self.made[-1]

    def calls(self):
        """Return what was asked of each instance."""
        return {instance.destination: instance.calls for instance in self.made}


class TestDestinations:
    """The port `Instances`."""

    def test_all_but_lazy_ones_start(self):
        """Instances start with the process, lazy ones do not run yet."""
        destinations = Destinations(configs("a", "b", lazy="b"), Makes())
        assert destinations.running("a") is None
        destinations.start()
        running = destinations.running("a")
        assert running
        assert running.destination == "a"
        assert destinations.running("b") is None
        assert [destinations.is_configured(name) for name in "abc"] == [
            True,
            True,
            False,
        ]

    def test_a_lazy_one_starts_once(self):
        """The first client starts a lazy instance, later ones find it."""
        makes = Makes()
        destinations = Destinations(configs("a", lazy="a"), makes)
        destinations.start()
        first = destinations.start_lazy("a")
        assert first
        assert destinations.start_lazy("a") is first
        assert destinations.running("a") is first
        assert makes.calls() == {"a": ["start"]}

    def test_an_unknown_one_does_not_start(self):
        """A destination that is not configured cannot be started."""
        assert Destinations(configs("a"), Makes()).start_lazy("b") is None

    def test_two_first_clients_start_it_once(self):
        """Of two threads that start an instance at once, one waits for the other.

        Forbidden: two starts, or one thread that gets nothing.
        """
        makes = Makes()
        destinations = Destinations(configs("a", "b", lazy="ab"), makes)
        makes.made[0].may_start.clear()
        found: list[object] = []
        threads = [
            threading.Thread(target=lambda: found.append(destinations.start_lazy("a")))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        # Another destination is not held up meanwhile.
        assert destinations.start_lazy("b")
        assert destinations.running("a") is None
        makes.made[0].may_start.set()
        for thread in threads:
            thread.join(LONG)
        assert found == [makes.made[0]] * 2
        assert makes.made[0].calls == ["start"]

    def test_a_failing_one_does_not_hold_others_up(self, caplog):
        """A failing start is logged with its reason, and the next one starts."""
        destinations = Destinations(configs("broken", "b"), Makes())
        destinations.start()
        assert destinations.running("broken") is None
        assert destinations.running("b")
        assert (
            "destination broken cannot start: the cursors cannot be read" in caplog.text
        )

    def test_a_failed_one_can_be_tried_again(self):
        """Each further try starts a new instance."""
        makes = Makes()
        destinations = Destinations(configs("broken", lazy=["broken"]), makes)
        assert destinations.start_lazy("broken") is None
        assert destinations.start_lazy("broken") is None
        assert [instance.calls for instance in makes.made] == [["start"], ["start"]]

    def test_all_wrong_settings_at_once(self):
        """Instances that cannot be made are told together."""
        with pytest.raises(ConfigError) as caught:
            Destinations(configs("wrong1", "a", "wrong2"), Makes())
        assert caught.value.problems == ["wrong1 is wrong", "wrong2 is wrong"]

    def test_all_end(self):
        """A stop reaches every running instance, and none starts after it."""
        makes = Makes()
        destinations = Destinations(configs("a", "b", "c", lazy="c"), makes)
        destinations.start()
        destinations.request_stop()
        assert destinations.join(Deadline(LONG))
        assert destinations.running("a") is None
        assert destinations.start_lazy("c") is None
        assert makes.calls() == {
            "a": ["start", "request_stop", "join"],
            "b": ["start", "request_stop", "join"],
            "c": [],
        }

    def test_one_ends_badly(self, caplog):
        """An instance that cannot write its cursors is told, and the others end."""
        makes = Makes()
        destinations = Destinations(configs("a", "unwritten", "c"), makes)
        destinations.start()
        destinations.request_stop()
        with pytest.raises(CanalError, match="cannot write the cursors"):
            destinations.join(Deadline(LONG))
        assert all(calls[-1] == "join" for calls in makes.calls().values())
        assert (
            "destination unwritten ended badly: cannot write the cursors" in caplog.text
        )

    def test_a_stop_during_a_start(self):
        """An instance whose start ends after the stop is ended as well.

        Forbidden: it runs on, or its starter gets it.
        """
        makes = Makes()
        destinations = Destinations(configs("a", lazy="a"), makes)
        makes.made[0].may_start.clear()
        found = []
        starter = threading.Thread(
            target=lambda: found.append(destinations.start_lazy("a"))
        )
        starter.start()
        assert makes.made[0].begun.wait(LONG)
        destinations.request_stop()
        makes.made[0].may_start.set()
        starter.join(LONG)
        assert found == [None]
        assert destinations.join(Deadline(LONG))
        assert makes.made[0].calls == ["start", "request_stop", "join"]

    def test_one_that_waits_in_its_start(self):
        """One with cursors in ZooKeeper holds nobody up, and a stop reaches its start.

        Forbidden: the others wait for it, or it for ever.
        """
        makes = Makes()
        (waiting,), (other,) = configs("a"), configs("b")
        waiting = replace(waiting, position=PositionConfig(wiring=Wiring.ZOOKEEPER))
        destinations = Destinations([waiting, other], makes)
        makes.made[0].may_start.clear()
        destinations.start()
        assert makes.made[0].begun.wait(LONG)
        assert destinations.running("a") is None
        assert destinations.running("b")
        destinations.request_stop()
        assert makes.made[0].calls == ["start", "request_stop"]
        makes.made[0].may_start.set()
        assert destinations.join(Deadline(LONG))
        assert destinations.running("a") is None
        assert makes.made[0].calls[-1] == "join"

    def test_status(self):
        """The state of each destination stands in the order of the settings."""
        destinations = Destinations(configs("b", "a", lazy="a"), Makes())
        destinations.start()
        assert destinations.status() == [
            {"destination": "b", "running": True, "lazy": False, "state": "fake"},
            {"destination": "a", "running": False, "lazy": True},
        ]


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
        """A started process takes connections on its port and tells its state."""
        conf = make_conf(MAIN + "example")
        with running(conf) as daemon:
            with socket.create_connection(("127.0.0.1", daemon.port), LONG) as client:
                assert client.recv(4)
            reply = control.ask(conf, "status")
        assert reply["port"] == daemon.port > 0
        assert reply["stopping"] is False
        assert [one["destination"] for one in reply["instances"]] == ["example"]

    def test_no_port(self, make_conf):
        """canal.withoutNetty opens no port."""
        conf = make_conf(f"{MAIN}example\ncanal.withoutNetty = true\n")
        with running(conf):
            assert control.ask(conf, "status")["port"] is None

    def test_stop_on_the_control_socket(self, make_conf):
        """A stop asked for on the socket wakes whoever runs the process."""
        conf = make_conf(MAIN + "example")
        with running(conf) as daemon:
            assert not daemon.stop.requested()
            assert control.ask(conf, "stop")["ok"]
            assert daemon.stop.requested()

    def test_a_start_that_fails_ends_what_it_began(self, make_conf):
        """A port in use is an error that names it; instances and lock are let go."""
        makes = Makes()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            conf = make_conf(f"{MAIN}example\ncanal.port = {port}\n")
            daemon = Daemon(load(conf, {}), makes)
            with pytest.raises(ConfigError, match=str(port)):
                daemon.start()
        assert makes.calls() == {"example": ["start", "request_stop", "join"]}
        assert not (conf / control.SOCKET_NAME).exists()

    def test_a_stage_that_does_not_end_is_named(self, make_conf, caplog):
        """The log tells which instance did not end, and the join says so."""
        conf = make_conf(MAIN + "stuck, a", stuck=MASTER, a=MASTER)
        daemon = Daemon(load(conf, {}), Makes())
        daemon.start()
        daemon.request_stop()
        assert daemon.join(Deadline(0.05)) is False
        assert "destination stuck does not stop" in caplog.text
        assert "the instances did not stop in time" in caplog.text

    def test_a_stage_that_ends_badly_is_named(self, make_conf, caplog):
        """The log does not call it late, and the stages before it end, too."""
        conf = make_conf(MAIN + "unwritten", unwritten=MASTER)
        daemon = Daemon(load(conf, {}), Makes())
        daemon.start()
        daemon.request_stop()
        assert daemon.join(Deadline(LONG)) is False
        assert "the instances did not end well: cannot write the cursors" in caplog.text
        assert "in time" not in caplog.text
        assert not (conf / control.SOCKET_NAME).exists()

    def test_warnings_are_logged(self, make_conf, caplog):
        """What the settings warn of stands in the log."""
        conf = make_conf(f"{MAIN}example\ncanal.prot = 1\n")
        with caplog.at_level(logging.WARNING), running(conf):
            pass
        assert (
            "canal.prot: unknown key, ignored; did you mean canal.port?" in caplog.text
        )


class TestProcess:
    """Whole processes."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_it_cleanly(self, make_conf, start_server, number):
        """1. start; 2. one signal. It says so, ends with status 0, leaves no socket."""
        conf = make_conf(MAIN + "example")
        server = start_server(conf)
        server.read_until("canal-server 0")
        server.process.send_signal(number)
        assert server.wait() == 0
        assert f"{number.name} came, stopping" in server.log
        assert server.log.endswith("stopped\n")
        assert not (conf / control.SOCKET_NAME).exists()

    def test_a_second_signal_forces(self, make_conf, start_server):
        """1. start; 2. a signal, an instance is stuck; 3. another one. It ends at 3."""
        conf = make_conf(MAIN + "stuck", stuck=MASTER)
        server = start_server(conf, **{STOP_TIMEOUT: str(LONG)})
        server.read_until("canal-server 0")
        server.process.send_signal(signal.SIGTERM)
        server.read_until("SIGTERM came")
        while server.process.poll() is None:  # for a moment it counts as the first
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        assert server.wait() == 128 + signal.SIGTERM
        assert server.log.endswith("ended by a second signal\n")

    def test_a_signal_that_comes_twice_is_one(self, make_conf, start_server):
        """1. start; 2. a signal, an instance is stuck; 3. it comes again soon after.

        As `timeout` and others send it: to the process, then to its group. It ends
        when the time to stop is over.
        """
        conf = make_conf(MAIN + "stuck", stuck=MASTER)
        times = {STOP_TIMEOUT: "0.3", SAME_SIGNAL: str(LONG)}
        server = start_server(conf, **times)
        server.read_until("canal-server 0")
        server.process.send_signal(signal.SIGTERM)
        server.read_until("SIGTERM came")
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
        assert "destination stuck does not stop" in server.log

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
        """1. start on a port that is taken. One clear line, status not 0."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            conf = make_conf(f"{MAIN}example\ncanal.port = {port}\n")
            server = start_server(conf)
            assert server.wait() == 2
        assert f"{port}" in server.log.splitlines()[-1]
        assert "Traceback" not in server.log

    def test_two_servers_on_one_folder(self, make_conf, start_server):
        """1. start; 2. start again. The second one is refused, the first goes on."""
        conf = make_conf(MAIN + "example")
        first = start_server(conf)
        first.read_until("canal-server 0")
        second = start_server(conf)
        assert second.wait() == 1
        assert f"(process {first.process.pid})" in second.log
        assert control.ask(conf, "status")["pid"] == first.process.pid

    def test_settings_that_cannot_be_used(self, make_conf, start_server):
        """1. start with wrong settings. Status 2, each of them told, no traceback."""
        conf = make_conf(f"{MAIN}example\ncanal.serverMode = kafka\n", example="")
        server = start_server(conf)
        assert server.wait() == 2
        first, second = server.log.splitlines()
        assert "canal.serverMode = kafka" in first
        assert "canal.instance.master.address = " in second
