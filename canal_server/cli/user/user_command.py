"""`canal-server user …`: the users that may log in, and their rights."""

from __future__ import annotations

from canal_server.cli.actions import Command
from canal_server.cli.user import user_add, user_list, user_passwd, user_remove

_COMMAND = Command(
    name="user",
    description="Manage the file of users that canal.users.file names. A running server"
    " reads it again within a second.",
    actions={
        "add": user_add,
        "passwd": user_passwd,
        "list": user_list,
        "remove": user_remove,
    },
)

add_parser = _COMMAND.add_parser
run = _COMMAND.run
