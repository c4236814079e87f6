"""What to say, and what to do, when a source has purged what is still needed.

Leaves out how that is noticed (`canal_server.mysql.server_errors`, `start`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.position.log_positions import same_server

if TYPE_CHECKING:
    from canal_server.model.positions import LogIdentity, LogPosition
    from canal_server.source.read.available_positions import SourceFiles


def purged_message(
    error: str,
    destination: str,
    stored: LogPosition | None,
    read: LogIdentity,
    files: SourceFiles,
) -> str:
    """Return an error's text with the files that are missing, and the way out.

    `read` is the server that said it, which has these files now. In a group
    `destination` is that of the source, `group/masterN`.
    """
    group, _, member = destination.partition("/")
    named = f"--destination {group}" + (f" --source {member}" if member else "")
    told = error
    if stored is not None:
        back, purged = "", None
        if same_server(stored.identity, read):
            purged = files.purged_from(stored.position.journal_name)
        if purged is not None:
            back = "put the files back, or "
            told += f"; missing: {purged}, the oldest left is {files.files[0].name}"
        # What `position show` says of such a client.
        who = "with a position of another binlog or server"
        if purged is not None:
            who = "as purged"
        told += (
            f"; {back}load the tables anew and run `canal-server position seek {named}"
            " --client ID --to oldest` to resume with what is left, for each client"
            f" that `canal-server position show` shows {who}; others resume by"
            " themselves"
        )
    else:
        told += (
            "; where to begin is configured by canal.instance.master.journal.name and"
            " .position: correct them, or write oldest as the name"
        )
    if member:
        told += f"; the other sources of {group} go on meanwhile"
    return told
