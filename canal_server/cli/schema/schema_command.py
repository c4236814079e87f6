"""`canal-server schema …`: show, verify, export and import the table history."""

from __future__ import annotations

from canal_server.cli.actions import Command
from canal_server.cli.schema import (
    schema_export,
    schema_history,
    schema_import,
    schema_show,
    schema_verify,
)

_COMMAND = Command(
    name="schema",
    description="Work with the history of table definitions that a server keeps, "
    "whether it runs or not.",
    actions={
        "show": schema_show,
        "history": schema_history,
        "verify": schema_verify,
        "export": schema_export,
        "import": schema_import,
    },
    failed=" or verify found differences",
)

add_parser = _COMMAND.add_parser
run = _COMMAND.run
