"""Warns at the start of ports that anybody may use as they are."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.admin.admin_server import is_in_clear_text, stays_closed
from canal_server.config.open_ports import (
    ALL_ADDRESSES,
    metrics_address,
    metrics_are_open,
    page_is_open,
)
from canal_server.messages import daemon_messages, server_messages

if TYPE_CHECKING:
    from canal_server.config.schema import ServerConfig

log = logging.getLogger(__name__)


def warn_of_open_ports(server: ServerConfig) -> None:
    """Log each port that needs no login, or has no TLS although that is required.

    Also one that is closed because of it.
    """
    if server.lets_everybody_in and not (server.ip or server.anonymous):
        server_messages.SERVER_IS_OPEN.log(log, server.port)
    if stays_closed(server):
        daemon_messages.ADMIN_PORT_CLOSED.log(log)
    if is_in_clear_text(server):
        daemon_messages.ADMIN_PORT_IN_CLEAR_TEXT.log(log, server.admin_port)
    if page_is_open(server):
        daemon_messages.PAGE_IS_OPEN.log(
            log, server.http_port, server.http_ip or ALL_ADDRESSES
        )
    if metrics_are_open(server):
        daemon_messages.METRICS_ARE_OPEN.log(
            log, server.metrics_port, metrics_address(server)
        )
