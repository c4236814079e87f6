"""All messages, by area. Leaves out the notes on errors, see the modules `…_notes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canal_server.messages import (
    client_messages,
    cluster_messages,
    daemon_messages,
    delivery_messages,
    destination_messages,
    filter_messages,
    history_messages,
    position_messages,
    ranged_read_messages,
    server_messages,
    source_messages,
    spark_messages,
)
from canal_server.messages.message import Message
from canal_server.messages.mirror import (
    mirror_run_messages,
    mirror_stream_messages,
    mirror_table_messages,
)

if TYPE_CHECKING:
    from types import ModuleType


@dataclass(frozen=True, slots=True)
class Area:
    """A table of messages, and its heading."""

    title: str
    table: ModuleType

    def messages(self) -> dict[str, Message]:
        """Return the messages by the names of their constants, sorted."""
        found = {
            constant: value
            for constant, value in vars(self.table).items()
            if isinstance(value, Message)
        }
        return dict(sorted(found.items()))


SERVER_AREAS: Final = (
    Area("Process and settings", daemon_messages),
    Area("Destinations", destination_messages),
    Area("Clients", server_messages),
    Area("Message queues", delivery_messages),
    Area("Filters", filter_messages),
    Area("Cursors and positions", position_messages),
    Area("Sources", source_messages),
    Area("Table history", history_messages),
    Area("Clusters", cluster_messages),
    Area("Ranged reads", ranged_read_messages),
    Area("Spark", spark_messages),
    Area("Python client", client_messages),
)
MIRROR_AREAS: Final = (
    Area("Process", mirror_run_messages),
    Area("Stream", mirror_stream_messages),
    Area("Tables", mirror_table_messages),
)


def all_messages(
    areas: tuple[Area, ...] = SERVER_AREAS + MIRROR_AREAS,
) -> dict[str, Message]:
    """Return all messages by name. Raises ValueError when two have one name."""
    found: dict[str, Message] = {}
    for area in areas:
        for message in area.messages().values():
            if message.name in found:
                raise ValueError(f"two messages have the name {message.name}")
            found[message.name] = message
    return dict(sorted(found.items()))
