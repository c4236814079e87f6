"""Which ports for HTTP anybody may use who reaches them, for warnings.

The port for clients is stricter: that is refused, see `server_section`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.runtime.loopback import is_loopback

if TYPE_CHECKING:
    from canal_server.config.schema import ServerConfig

LOOPBACK: Final = "127.0.0.1"
ALL_ADDRESSES: Final = "all addresses"  # an empty one


def metrics_address(server: ServerConfig) -> str:
    """Return the address of the port for metrics."""
    return server.metrics_ip or server.ip or LOOPBACK


def page_is_open(server: ServerConfig) -> bool:
    """Return whether other hosts may read the page and the REST interface."""
    needs_login = bool(server.http_user or server.users_file)
    return _is_open(server, server.http_ip, server.http_port, needs_login=needs_login)


def metrics_are_open(server: ServerConfig) -> bool:
    """Return whether other hosts may read the metrics."""
    return _is_open(
        server,
        metrics_address(server),
        server.metrics_port,
        needs_login=server.users_file is not None,
    )


def _is_open(server: ServerConfig, ip: str, port: int, *, needs_login: bool) -> bool:
    if port < 0 or needs_login or server.anonymous:
        return False  # anonymous: everybody may read the tables as well
    return not is_loopback(ip)
