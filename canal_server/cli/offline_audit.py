"""Notes in the audit file what a command changes while no server runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from canal_server.config.load import load_server
from canal_server.runtime.accounts import own_account
from canal_server.users.audit_log import COMMAND, AuditLog

if TYPE_CHECKING:
    from pathlib import Path


class OfflineAudit:
    """The audit of a server that is stopped, opened before anything is changed.

    Used while servers are locked out of the data folder.
    """

    def __init__(self, conf: Path, data_dir: Path) -> None:
        """Open the file, if the settings name one. Raises ConfigError."""
        path = load_server(conf, os.environ).audit_file
        is_new = path is not None and not path.exists()
        self._audit = AuditLog(path)
        self._audit.open()
        if is_new and path is not None and os.geteuid() == 0:
            # Otherwise the server's account could not write it.
            owner = data_dir.stat()
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

    def note(self, event: str, **more: Any) -> None:
        """Append an event, with the account that runs this command."""
        self._audit.note(event, None, COMMAND, account=own_account(), **more)
