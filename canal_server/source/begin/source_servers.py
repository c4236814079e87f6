"""The servers that one destination may be read from: a master, perhaps a standby.

Says which one is read now. Leaves out when to switch (`detecting`) and the switch
itself (`pump`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from canal_server.model.positions import LogIdentity
from canal_server.position.log_position_managers import same_server

if TYPE_CHECKING:
    from canal_server.config.schema import HostConfig, SourceConfig
    from canal_server.mysql.source_settings import Access

MASTER, STANDBY = "master", "standby"


@dataclass(frozen=True, slots=True)
class Source:
    """One server: how to reach it, and where to start when nothing is stored."""

    role: str  # its name in the settings, whatever its role is now
    access: Access
    configured: HostConfig

    @property
    def identity(self) -> LogIdentity:
        """Return the identity in positions read there."""
        return LogIdentity(self.access.address.host, self.access.address.port)

    def __str__(self) -> str:
        return f"{self.role} {self.access.address}"


def standby_start(master: HostConfig, standby: HostConfig) -> HostConfig:
    """Return the standby's settings with a start position, if one is known.

    Without one of its own, the master's time or GTID set applies: both hold on any
    server.
    """
    if standby.has_start:
        return standby
    return replace(standby, timestamp_ms=master.timestamp_ms, gtid=master.gtid)


class Sources:
    """Which server is read; changed by the pump's thread, read by any thread."""

    def __init__(self, master: Source, standby: Source | None = None) -> None:
        self.current = master
        self.switches = 0  # since the start
        self._known = (master,) if standby is None else (master, standby)

    @property
    def other(self) -> Source | None:
        """Return the server that is not read now; None when there is only one."""
        return next((each for each in self._known if each is not self.current), None)

    def begin_with(self, stored: LogIdentity | None) -> None:
        """Start with the server that a stored position names, else with the master.

        So after a switch, a restart resumes on the same server, whatever the settings
        call it. Call it before anything is read.
        """
        if stored is None:
            return
        for each in self._known:
            if same_server(each.identity, stored):
                self.current = each
                return

    def switch_to(self, source: Source) -> None:
        """Read another server from now on."""
        assert source in self._known
        self.current = source
        self.switches += 1


def sources_of(config: SourceConfig, master: Access, standby: Access | None) -> Sources:
    """Return the servers in the settings, given how to reach them."""
    other = None
    if standby is not None:
        configured = standby_start(config.master, config.standby)
        other = Source(STANDBY, standby, configured)
    return Sources(Source(MASTER, master, config.master), other)
