"""`canal-server subscriptions …`: list and remove the subscriptions of ranged reads."""

from __future__ import annotations

from canal_server.cli.actions import Command
from canal_server.cli.subscriptions import subscriptions_list, subscriptions_remove

_COMMAND = Command(
    name="subscriptions",
    description="Show the subscriptions of ranged readers, such as Spark's streaming "
    "queries, and remove those no longer in use, whether a server runs or not.",
    actions={"list": subscriptions_list, "remove": subscriptions_remove},
)

add_parser = _COMMAND.add_parser
run = _COMMAND.run
