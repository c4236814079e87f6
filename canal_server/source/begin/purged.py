"""Message and remedy when a source has purged what is still needed.

Leaves out how that is detected (`canal_server.mysql.server_errors`, `start_finder`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.position.log_position_managers import same_server

if TYPE_CHECKING:
    from canal_server.model.positions import LogIdentity, LogPosition
    from canal_server.source.read.available_positions import SourceFiles


def purged_message(
    error: str,
    destination: str,
    stored: LogPosition | None,
    read: LogIdentity,
    files: SourceFiles,
    *,
    conf_option: str = "",
) -> str:
    """Return an error's text with the missing files and the remedy.

    `read` is the server that reported it, which has these files now; `conf_option` is
    for the commands in the text. In a group
    `destination` is that of the source, `group/masterN`.
    """
    group, _, source = destination.partition("/")
    named = f"{conf_option}--destination {group}" + (
        f" --source {source}" if source else ""
    )
    message = error
    if stored is not None:
        back, purged = "", None
        if same_server(stored.identity, read):
            purged = files.purged_from(stored.position.journal_name)
        if purged is not None:
            back = "restore the files, or "
            oldest = files.files[0].name
            message += f"; missing: {purged}, the oldest file is now {oldest}"
        # The words that `position show` uses for such a client.
        who = "with a position of another binlog or server"
        if purged is not None:
            who = "as purged"
        show = f"canal-server position show {conf_option}".rstrip()
        message += (
            f"; {back}reload the tables and run `canal-server position seek {named}"
            " --client-id ID --to oldest` to resume at the oldest file, for each client"
            f" that `{show}` shows {who}; the others resume automatically"
        )
    else:
        message += (
            "; the start is configured by canal.instance.master.journal.name and"
            " .position: correct them, or set the name to oldest"
        )
    if source:
        message += f"; the other sources of {group} continue"
    return message
