"""`canal-server position …`: where clients stand, and moving them."""

from __future__ import annotations

from canal_server.cli.actions import Command
from canal_server.cli.position import position_seek, position_show

_COMMAND = Command(
    name="position",
    description="Show where the clients of a destination stand and how far they are "
    "behind, and move them: while a server runs, and when none does.",
    actions={"show": position_show, "seek": position_seek},
)

add_parser = _COMMAND.add_parser
run = _COMMAND.run
