"""What is known of a server of a destination before it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.config.schema import HostConfig, InstanceConfig
    from canal_server.model.cursors import ClientCursor
    from canal_server.model.positions import LogIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSource:
    """The settings of a source and the stored positions of its clients.

    `role` is master or standby, `host` the settings of that server, `identity` its
    address in positions. `is_running`: our own server runs the destination now;
    `is_reading`: and without an error.
    """

    config: InstanceConfig
    role: str
    host: HostConfig
    identity: LogIdentity
    host_name: str  # of this machine, by which a source knows our replica
    cursors: Sequence[ClientCursor] = ()
    is_running: bool = False
    is_reading: bool = False
    expiry_warning_days: int = 30  # of certificates

    @property
    def key(self) -> str:
        """Return the beginning of the keys of this server."""
        return f"canal.instance.{self.role}{self.config.source.number or ''}"

    @property
    def seek(self) -> str:
        """Return the command that moves clients of this source, up to the client."""
        group, _, source = self.config.destination.partition("/")
        named = f" --source {source}" if source else ""
        conf = self.config.conf_option
        return f"canal-server position seek {conf}--destination {group}{named}"

    @property
    def starts_as_configured(self) -> bool:
        """Return whether nothing is stored, so that the settings say where to start."""
        return not any(each.cursor for each in self.cursors)
