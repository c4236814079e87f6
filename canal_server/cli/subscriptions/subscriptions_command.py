"""`canal-server subscriptions …`: the cursors of ranged reads, and removing them."""

from __future__ import annotations

from canal_server.cli.actions import Command
from canal_server.cli.subscriptions import subscriptions_list, subscriptions_remove

_COMMAND = Command(
    name="subscriptions",
    description="Show the subscriptions of ranged readers, such as Spark's streaming "
    "queries, and remove those that nobody reads any more: while a server runs, and "
    "when none does.",
    actions={"list": subscriptions_list, "remove": subscriptions_remove},
)

add_parser = _COMMAND.add_parser
run = _COMMAND.run
