"""Carries out what a plan says; each fault is over when its method returns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import small_disk

from canal_server.errors import CanalError
from canal_server.model.running import decode
from canal_server.model.znodes import running_path
from soak.sources import standing_still

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from servers import PrivateServer
    from zookeepers import PrivateZooKeeper

    from canal_server.doors.zookeeper import ZooKeeper
    from soak.cluster import Node
    from soak.load import Load
    from soak.plan import Fault
    from soak.readers import Reader
    from soak.sources import Source


TURNED_S = (3600, -3600, 30, -86400)  # by which the clock of a server is wrong


class Faults:
    """All that can be done to the parts of a run."""

    def __init__(
        self,
        *,
        sources: list[Source],
        loads: list[Load],
        nodes: list[Node],
        zookeeper: PrivateZooKeeper,
        observer: ZooKeeper,
        history: PrivateServer,
        readers: Mapping[str, Reader],
        purgeable: Callable[[Source], str],
    ) -> None:
        """Take the parts; `purgeable` says up to which file nobody needs any."""
        self._sources, self._loads, self._nodes = sources, loads, nodes
        self._zookeeper, self._observer = zookeeper, observer
        self._history = history
        self._readers, self._purgeable = readers, purgeable
        self._known: dict[str, Callable[[Fault], str]] = {
            "kill a server": self._kill_server,
            "pause a server": self._pause_server,
            "stop a server": self._stop_server,
            "turn a clock": self._turn_clock,
            "kill a source": self._kill_source,
            "pause a source": self._pause_source,
            "kill a standby": self._kill_standby,
            "fail over": self._fail_over,
            "cut a link": self._cut,
            "silence a link": self._silence,
            "refuse a link": self._refuse,
            "rotate": self._rotate,
            "purge": self._purge,
            "hand over": self._hand_over,
            "kill ZooKeeper": self._kill_zookeeper,
            "pause ZooKeeper": self._pause_zookeeper,
            "kill the history of tables": self._kill_history,
        }
        if all(node.has_disk for node in nodes):
            self._known["fill a disk"] = self._fill
        for name in readers:
            self._known[f"kill the {name}"] = self._kill_reader
            self._known[f"pause the {name}"] = self._pause_reader
        if "mirror" in readers:
            self._known["stop the mirror"] = self._stop_reader

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return what can be done here."""
        return tuple(self._known)

    def carry_out(self, fault: Fault) -> str:
        """Do it, and undo it; returns what there is to say of it."""
        return self._known[fault.kind](fault)

    def _source(self, fault: Fault) -> Source:
        return self._sources[fault.which % len(self._sources)]

    def _node(self, fault: Fault) -> Node:
        return self._nodes[fault.which % len(self._nodes)]

    def _reader(self, fault: Fault) -> Reader:
        return self._readers[fault.kind.partition(" the ")[2]]

    # --- servers ----------------------------------------------------------------------

    def _kill_server(self, fault: Fault) -> str:
        node = self._node(fault)
        node.kill()
        time.sleep(fault.length_s)
        node.launch()
        return node.name

    def _stop_server(self, fault: Fault) -> str:
        node = self._node(fault)
        wrong = node.stop()
        time.sleep(fault.length_s / 4)
        node.launch()
        if wrong:
            raise AssertionError(wrong)
        return node.name

    def _pause_server(self, fault: Fault) -> str:
        node = self._node(fault)
        with standing_still(node.pid):
            time.sleep(fault.length_s)
        return node.name

    def _fill(self, fault: Fault) -> str:
        node = self._node(fault)
        with small_disk.full(node.data):
            time.sleep(fault.length_s)
        return node.name

    def _turn_clock(self, fault: Fault) -> str:
        node, seconds = self._node(fault), TURNED_S[fault.which % len(TURNED_S)]
        with node.clock.turned(seconds):
            time.sleep(fault.length_s)
        return f"{node.name} by {seconds:+d} s"

    def _hand_over(self, fault: Fault) -> str:
        """Ask who runs a destination to give it up, as an operator does."""
        source = self._source(fault)
        path = running_path(source.flavour)
        try:
            node = self._observer.read(path)
            if node is None or node.data is None or decode(node.data) is None:
                return f"nobody runs {source.flavour}"
            data = node.data.replace(b"true", b"false")
            self._observer.write(path, data, node.version)
        except CanalError as error:
            return f"{source.flavour}: {error}"
        return source.flavour

    # --- sources ----------------------------------------------------------------------

    def _kill_source(self, fault: Fault) -> str:
        source = self._source(fault)
        source.kill()
        return source.flavour

    def _pause_source(self, fault: Fault) -> str:
        source = self._source(fault)
        with source.stopped():
            time.sleep(fault.length_s)
        return source.flavour

    def _kill_standby(self, fault: Fault) -> str:
        source = self._source(fault)
        source.kill_standby()
        return source.flavour

    def _fail_over(self, fault: Fault) -> str:
        number = fault.which % len(self._sources)
        self._sources[number].fail_over(self._loads[number])
        return self._sources[number].flavour

    def _rotate(self, fault: Fault) -> str:
        source = self._source(fault)
        source.rotate()
        return source.flavour

    def _purge(self, fault: Fault) -> str:
        source = self._source(fault)
        file = self._purgeable(source)
        if not file:
            return f"{source.flavour}: every file is needed"
        source.purge_to(file)
        return f"{source.flavour} to {file}"

    # --- links ------------------------------------------------------------------------

    def _cut(self, fault: Fault) -> str:
        source = self._source(fault)
        way = source.way()
        sizes = [1 + int(fault.length_s * 997) * n for n in (1, 7, 13)]
        with way.cut(*sizes, reset=fault.which > 1):
            time.sleep(fault.length_s)
        return source.flavour

    def _silence(self, fault: Fault) -> str:
        source = self._source(fault)
        with source.way().silence():
            time.sleep(fault.length_s)
        return source.flavour

    def _refuse(self, fault: Fault) -> str:
        source = self._source(fault)
        way = source.way()
        with way.refuse():
            way.end_all()
            time.sleep(fault.length_s)
        return source.flavour

    # --- the rest ---------------------------------------------------------------------

    def _kill_zookeeper(self, fault: Fault) -> str:
        self._zookeeper.kill()
        time.sleep(fault.length_s)
        self._zookeeper.restart()
        return ""

    def _pause_zookeeper(self, fault: Fault) -> str:
        self._zookeeper.pause()
        time.sleep(fault.length_s)
        self._zookeeper.resume()
        return ""

    def _kill_history(self, fault: Fault) -> str:
        self._history.kill()
        time.sleep(fault.length_s)
        self._history.restart()
        return ""

    def _kill_reader(self, fault: Fault) -> str:
        reader = self._reader(fault)
        reader.kill()
        time.sleep(fault.length_s / 2)
        reader.launch()
        return ""

    def _stop_reader(self, fault: Fault) -> str:
        reader = self._reader(fault)
        status = reader.stop()
        reader.launch()
        return f"status {status}"

    def _pause_reader(self, fault: Fault) -> str:
        with standing_still(self._reader(fault).pid):
            time.sleep(fault.length_s)
        return ""
