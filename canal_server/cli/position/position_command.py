"""`canal-server position …`: show and move the positions of clients."""

from __future__ import annotations

from canal_server.cli.actions import Command
from canal_server.cli.position import position_seek, position_show

_COMMAND = Command(
    name="position",
    description="Show the positions and the lag of the clients of a destination, and "
    "move them, whether a server runs or not.",
    actions={"show": position_show, "seek": position_seek},
)

add_parser = _COMMAND.add_parser
run = _COMMAND.run
