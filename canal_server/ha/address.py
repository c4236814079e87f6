"""The address of this server that ZooKeeper gives to clients."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import socket
import struct
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.errors import ConfigError
from canal_server.messages import cluster_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

ALL: Final = ("", "0.0.0.0", "::")  # as the address to listen on  # noqa: S104
LOOPBACK: Final = "127.0.0.1"

_SIOCGIFADDR: Final = 0x8915  # asks Linux for the IPv4 address of an interface
_INTERFACE_NAME_BYTES: Final = 15


class Settings(Protocol):
    """The settings that this module needs."""

    @property
    def ip(self) -> str:
        """Address to listen on."""

    @property
    def register_ip(self) -> str:
        """Address to register, empty: find one."""


def registered_ip(settings: Settings) -> str:
    """Return the address to register. Raises ConfigError.

    It is `canal.register.ip`, else `canal.ip`, else the first address of this host that
    others may reach.
    """
    key, ip = "canal.register.ip", settings.register_ip
    if not ip and settings.ip not in ALL:
        key, ip = "canal.ip", settings.ip
    if not ip:
        return _of_this_host()
    if ":" in ip:
        problem = (
            f"{key} = {ip}: clients cannot read an IPv6 address from ZooKeeper, where"
            " a colon ends the address; set canal.register.ip to an IPv4 address or a"
            " name"
        )
        raise ConfigError([problem])
    return ip


def _of_this_host() -> str:
    for address in _addresses():
        if not address.startswith("127."):
            return address
    cluster_messages.ADDRESS_IS_LOOPBACK.log(log, LOOPBACK)
    return LOOPBACK


def _addresses() -> Iterator[str]:
    """Yield the addresses of this host, that of its host name first."""
    with contextlib.suppress(OSError):  # the name does not resolve
        yield socket.gethostbyname(socket.gethostname())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:_INTERFACE_NAME_BYTES])
            with contextlib.suppress(OSError):  # the interface has no IPv4 address
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, request)
                # struct ifreq: 16 bytes name, then sockaddr_in: family, port, address.
                yield socket.inet_ntoa(answer[20:24])
